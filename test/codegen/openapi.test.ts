import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import test from "ava";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { methodPolicies } from "../../gen/svc/v1/methods.ts";
import { routes } from "../../gen/svc/v1/routes.ts";
import { ErrorDetailReasons } from "../../gen/svc/v1/values.ts";
import type { Document, Operation, Schema } from "../../src/codegen/openapi-document.ts";
import { SvcError } from "../../src/errors.ts";
import { errorResponse, statusByCode } from "../../src/server/rest/errors.ts";
import { JsonWriter } from "../../src/server/rest/json-writer.ts";

const path = join(import.meta.dirname, "../../openapi/openapi.json");
const document = JSON.parse(await readFile(path, "utf8")) as Document;
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
  const neverReceived = new Set([499]);
  for (const { operation } of changing) {
    const namesNothing = operation.parameters === undefined && operation.requestBody === undefined;
    for (const status of new Set(Object.values(statusByCode))) {
      if (!neverReceived.has(status) && !(namesNothing && status === 404))
        t.true(String(status) in operation.responses, `${operation.operationId}: ${status}`);
    }
  }
});
