/** The OpenAPI document: its routes, schemas, access levels and statuses. */
import { readFile } from "node:fs/promises";
import { Validator } from "@seriousme/openapi-schema-validator";
import addFormats from "ajv-formats";
import { Ajv2020 } from "ajv/dist/2020.js";
import test from "ava";
import { methodPolicies } from "../../gen/svc/v1/methods.ts";
import { routes } from "../../gen/svc/v1/routes.ts";
import { ErrorDetailReasons } from "../../gen/svc/v1/values.ts";
import type { Document, Response, Operation, Schema } from "../../src/codegen/openapi-document.ts";
import { SvcError } from "../../src/errors.ts";
import { errorResponse, statusByCode } from "../../src/server/rest/errors.ts";
import { JsonWriter } from "../../src/server/rest/json-writer.ts";

// `openapi.json` is valid OpenAPI 3.1, works with code generators, and documents everything.

const text = await readFile(new URL("../../openapi/openapi.json", import.meta.url), "utf8");
const document = JSON.parse(text) as Document;
const allOperations = Object.values(document.paths).flatMap((byMethod) => Object.values(byMethod));

test("the document is valid OpenAPI 3.1", async (t) => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate(JSON.parse(text) as Record<string, unknown>);
  t.deepEqual([validator.version, valid, errors], ["3.1", true, undefined]);
  const broken = { ...(JSON.parse(text) as Record<string, unknown>), info: {} };
  t.false((await new Validator().validate(broken)).valid, "a broken document is not valid");
});

test("the document for generators without 3.1 is valid OpenAPI 3.0 with the same operations", async (t) => {
  const url = new URL("../../openapi/openapi-3.0.json", import.meta.url);
  const older = await readFile(url, "utf8");
  const validator = new Validator();
  const { valid, errors } = await validator.validate(JSON.parse(older) as Record<string, unknown>);
  t.deepEqual([validator.version, valid, errors], ["3.0", true, undefined]);
  const { paths, components } = JSON.parse(older) as Document;
  const idsOf = (each: Document["paths"]) =>
    Object.values(each).flatMap((byMethod) => Object.values(byMethod).map(({ operationId }) => operationId));
  t.deepEqual(idsOf(paths), idsOf(document.paths));
  t.deepEqual(Object.keys(components.schemas), Object.keys(document.components.schemas));
  // Keywords beside a reference are ignored, and the conditions of errors do not exist.
  t.notRegex(older, /"\$ref": "[^"]*",|"const":|"if":|"propertyNames":/);
  const { origin } = components.schemas["App"]?.properties ?? {};
  t.deepEqual(origin?.allOf, [{ $ref: "#/components/schemas/AppOrigin" }]);
  t.truthy(origin?.description);
});

test("the document for generators without 3.1 describes streams of lines as bytes, which ogen requires", async (t) => {
  const url = new URL("../../openapi/openapi-3.0.json", import.meta.url);
  const older = JSON.parse(await readFile(url, "utf8")) as object;
  const schemas: unknown[] = [];
  JSON.stringify(older, (key, value: unknown) => {
    if (key === "application/x-ndjson") schemas.push((value as { schema: unknown }).schema);
    return value;
  });
  t.is(schemas.length, [...text.matchAll(/"application\/x-ndjson"/g)].length);
  for (const schema of schemas) t.like(schema, { type: "string", format: "binary" });
});

test("schemas and responses have different names, as the Go generator requires", (t) => {
  const { schemas, responses } = document.components;
  t.deepEqual(
    Object.keys(responses).filter((name) => name in schemas),
    [],
  );
});

test("the document uses only media types that code generators support", (t) => {
  const types = new Set([...text.matchAll(/"([\w*]+\/[\w.*+-]+)": \{\s*"schema"/g)].map((match) => match[1]));
  // NDJSON is for streams of lines; generators return it as raw text.
  t.deepEqual([...types].sort(), [
    "application/json",
    "application/octet-stream",
    "application/x-ndjson",
    "text/plain",
  ]);
});

test("every operation, parameter and property is described", (t) => {
  for (const operation of allOperations) {
    const words = operation.summary.split(" ").length;
    t.true(words >= 2 && words <= 7, `${operation.operationId}: ${operation.summary}`);
    t.regex(operation.summary, /^[A-Z][^.:;]+$/, operation.operationId);
    for (const { name, description } of operation.parameters ?? [])
      t.truthy(description, `${operation.operationId}: ${name}`);
  }
  for (const [schema, { description, properties }] of Object.entries(document.components.schemas)) {
    t.truthy(description, schema);
    for (const [name, property] of Object.entries(properties ?? {}))
      t.truthy(property.description ?? property.$ref, `${schema}.${name}`);
  }
});

test("every error reason is documented", (t) => {
  const descriptions = Object.values(document.components.responses).map((response) => response.description);
  const text = [...descriptions, document.info.description].join("\n");
  const missing = ErrorDetailReasons.filter((reason) => !text.includes(`\`${reason}\``));
  t.deepEqual(missing, []);
});

test("every error response has a body and a request ID", (t) => {
  for (const [name, response] of Object.entries<Response>(document.components.responses)) {
    if (name === "HeadTooLarge") continue;
    t.true("X-Request-Id" in (response.headers ?? {}), name);
    t.deepEqual(response.content?.["application/json"]?.schema, { $ref: "#/components/schemas/Error" }, name);
  }
});

test("an operation lists only statuses that it can return", (t) => {
  for (const [path, byMethod] of Object.entries(document.paths)) {
    for (const [method, { operationId, parameters, requestBody, responses }] of Object.entries(byMethod)) {
      const isUpload = requestBody?.content["application/octet-stream"] !== undefined;
      const takesBody = method !== "get" && !isUpload;
      t.is("413" in responses, takesBody, operationId);
      t.is("415" in responses, takesBody, operationId);
      t.is("499" in responses, method !== "get", operationId);
      if (method === "get") t.is("409" in responses, "404" in responses, operationId);
      if (parameters === undefined && requestBody === undefined) t.false("404" in responses, operationId);
      if (path.includes("{")) t.true("404" in responses, operationId);
    }
  }
});

const ajv = new Ajv2020({ strict: false, allErrors: true });
addFormats.default(ajv);
ajv.addSchema(document, "openapi");

const operations = Object.entries(document.paths).flatMap(([template, byMethod]) =>
  Object.entries(byMethod).map(([httpMethod, operation]) => ({ template, httpMethod, operation })),
);

test("the document has exactly the routes of the contract", (t) => {
  const documented = operations.map(({ template, httpMethod }) => `${httpMethod.toUpperCase()} ${template}`);
  t.deepEqual(
    documented.sort(),
    routes.map((route) => `${route.httpMethod} ${route.template.source}`).sort(),
  );
});

test("each operation has its access level and its capability", (t) => {
  for (const { method, httpMethod, template } of routes) {
    const operation = document.paths[template.source]?.[httpMethod.toLowerCase()] as Operation;
    const policy = methodPolicies[`${method.parent.typeName}/${method.name}` as keyof typeof methodPolicies];
    t.is(operation["x-svc-access"], policy.access);
    t.is(operation["x-svc-capability"] ?? "", policy.capability);
    t.regex(operation.description, /Access: /);
  }
});

test("every schema compiles and every reference resolves", (t) => {
  for (const name of Object.keys(document.components.schemas)) {
    t.notThrows(() => ajv.compile({ $ref: `openapi#/components/schemas/${name}` }), name);
  }
  const text = JSON.stringify(document);
  for (const [, kind = "", name = ""] of text.matchAll(/"#\/components\/(schemas|responses)\/([^"]+)"/g)) {
    t.true(name in document.components[kind as "schemas" | "responses"], name);
  }
});

test("every schema is used", (t) => {
  const text = JSON.stringify(document);
  for (const name of Object.keys(document.components.schemas)) {
    t.true(text.includes(`"#/components/schemas/${name}"`), name);
  }
});

test("an optional string may be empty regardless of its pattern; a required string may not", (t) => {
  const isValid = (schema: string, value: object): boolean =>
    ajv.compile({ $ref: `openapi#/components/schemas/${schema}` })(value);
  for (const tag of ["", "v1.2.0", "a/b"]) t.true(isValid("InstallAppRequest", { spec: "hello", tag }), tag);
  for (const tag of ["-x", "a..b", "a/", "v 1"])
    t.false(isValid("InstallAppRequest", { spec: "hello", tag }), tag);
  t.false(isValid("InstallAppRequest", { spec: "" }));
});

test("64-bit integers are integers, and no type includes null", (t) => {
  const walk = (schema: Schema, at: string): void => {
    t.false(Array.isArray(schema.type), `${at} has one type`);
    for (const [name, property] of Object.entries(schema.properties ?? {})) walk(property, `${at}.${name}`);
    if (schema.items !== undefined) walk(schema.items, `${at}[]`);
  };
  for (const [name, schema] of Object.entries(document.components.schemas)) walk(schema, name);
});

test("the schema of errors requires the payload of each reason", (t) => {
  const validate = ajv.compile({ $ref: "openapi#/components/schemas/Error" });
  const writer = new JsonWriter();
  for (const reason of ErrorDetailReasons) {
    const { body } = errorResponse(writer, new SvcError(reason, "no"));
    t.true(validate(JSON.parse(body)), `${reason}: ${ajv.errorsText(validate.errors)}`);
  }
  t.false(
    validate({ error: "no", code: "permission_denied", reason: "token_denied" }),
    "an error without its payload is rejected",
  );
});

test("an operation lists every status that it can return", (t) => {
  const changing = operations.filter(({ httpMethod }) => httpMethod !== "get");
  for (const { operation } of changing) {
    const namesNothing = operation.parameters === undefined && operation.requestBody === undefined;
    for (const status of new Set(Object.values(statusByCode))) {
      if (!(namesNothing && status === 404))
        t.true(String(status) in operation.responses, `${operation.operationId}: ${status}`);
    }
  }
});
