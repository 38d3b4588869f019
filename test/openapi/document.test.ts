/** `openapi.json` is an OpenAPI 3.1 document that others' tools digest, and says all that a client has to know. */
import { readFile } from "node:fs/promises";
import { Validator } from "@seriousme/openapi-schema-validator";
import test from "ava";
import { ErrorDetailReasons } from "../../gen/svc/v1/words.ts";
import type { Document, Response } from "../../src/codegen/openapi-document.ts";

const text = await readFile(new URL("../../openapi/openapi.json", import.meta.url), "utf8");
const document = JSON.parse(text) as Document;
const operations = Object.values(document.paths).flatMap((byMethod) => Object.values(byMethod));

test("validates as OpenAPI 3.1", async (t) => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate(JSON.parse(text) as Record<string, unknown>);
  t.deepEqual([validator.version, valid, errors], ["3.1", true, undefined]);
  const broken = { ...(JSON.parse(text) as Record<string, unknown>), info: {} };
  t.false((await new Validator().validate(broken)).valid, "the validator looks");
});

test("no name means both a schema and a response, which Go's generator refuses", (t) => {
  const { schemas, responses } = document.components;
  t.deepEqual(
    Object.keys(responses).filter((name) => name in schemas),
    [],
  );
});

test("only media types that generators know", (t) => {
  const types = new Set([...text.matchAll(/"([\w*]+\/[\w.*+-]+)": \{\s*"schema"/g)].map((match) => match[1]));
  // NDJSON is for what comes line by line: generators hand it over as it is.
  t.deepEqual([...types].sort(), [
    "application/json",
    "application/octet-stream",
    "application/x-ndjson",
    "text/plain",
  ]);
});

test("every operation, parameter and property says what it is", (t) => {
  for (const operation of operations) {
    t.true(operation.summary.length > 3, operation.operationId);
    for (const { name, description } of operation.parameters ?? [])
      t.truthy(description, `${operation.operationId}: ${name}`);
  }
  for (const [schema, { description, properties }] of Object.entries(document.components.schemas)) {
    t.truthy(description, schema);
    for (const [name, property] of Object.entries(properties ?? {}))
      t.truthy(property.description ?? property.$ref, `${schema}.${name}`);
  }
});

test("every reason of an error is named by the status that it comes with", (t) => {
  const descriptions = Object.values(document.components.responses).map((response) => response.description);
  const told = [...descriptions, document.info.description].join("\n");
  // Nobody is left to be told of `canceled`.
  const missing = ErrorDetailReasons.filter(
    (reason) => reason !== "canceled" && !told.includes(`\`${reason}\``),
  );
  t.deepEqual(missing, []);
});

test("every answer of an error has its body and the request's id", (t) => {
  for (const [name, response] of Object.entries<Response>(document.components.responses)) {
    if (name === "HeadTooLarge") continue;
    t.true("X-Request-Id" in (response.headers ?? {}), name);
    t.deepEqual(response.content?.["application/json"]?.schema, { $ref: "#/components/schemas/Error" }, name);
  }
});

test("an operation has no status that it cannot answer with", (t) => {
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
