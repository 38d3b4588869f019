/** `openapi.json` is valid OpenAPI 3.1, works with code generators, and documents everything. */
import { readFile } from "node:fs/promises";
import { Validator } from "@seriousme/openapi-schema-validator";
import test from "ava";
import { ErrorDetailReasons } from "../../gen/svc/v1/values.ts";
import type { Document, Response } from "../../src/codegen/openapi-document.ts";

const text = await readFile(new URL("../../openapi/openapi.json", import.meta.url), "utf8");
const document = JSON.parse(text) as Document;
const operations = Object.values(document.paths).flatMap((byMethod) => Object.values(byMethod));

test("the document is valid OpenAPI 3.1", async (t) => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate(JSON.parse(text) as Record<string, unknown>);
  t.deepEqual([validator.version, valid, errors], ["3.1", true, undefined]);
  const broken = { ...(JSON.parse(text) as Record<string, unknown>), info: {} };
  t.false((await new Validator().validate(broken)).valid, "a broken document is not valid");
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
  for (const operation of operations) {
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
  // A client that canceled its call does not receive `canceled`.
  const missing = ErrorDetailReasons.filter(
    (reason) => reason !== "canceled" && !text.includes(`\`${reason}\``),
  );
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
      t.is("409" in responses, method !== "get", operationId);
      if (parameters === undefined && requestBody === undefined) t.false("404" in responses, operationId);
      if (path.includes("{")) t.true("404" in responses, operationId);
      t.false("499" in responses, operationId);
    }
  }
});
