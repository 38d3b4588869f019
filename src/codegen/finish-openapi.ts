/**
 * Completes the output of protoc-gen-connect-openapi. That tool provides routes and comments; parameters, bodies, responses,
 * errors and schemas are written here, because REST's JSON differs from ProtoJSON.
 */
import { createFileRegistry, fromBinary, type DescField, type DescMessage } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { hasRawResponse } from "../server/rest/body-streams.ts";
import { hasRawBody } from "../server/rest/bind.ts";
import { findField } from "../server/rest/explain-json.ts";
import type { Route } from "../server/rest/router.ts";
import { textKindOf } from "../server/rest/text-value.ts";
import { collectRoutes } from "./collect-routes.ts";
import { readContractOptions, type ContractOptions } from "./contract-options.ts";
import type { BaseDocument, Content, Document, Operation, Parameter, Schema } from "./openapi-document.ts";
import { errorReferences, errorResponses, errorSchema, payloadMessages } from "./openapi-errors.ts";
import { SchemaWriter, componentName, isInlined } from "./openapi-schemas.ts";

/** Explains once what all operations have in common. */
const introduction = `The API of svc, which installs and runs apps on a Linux host.

## Requests and responses

Bodies are JSON unless an operation says otherwise. An unknown field or query parameter is a 400 that names it. \`HEAD\` works
for each \`GET\`; any other method on a known path is a 405 (\`method_not_allowed\`) with an \`Allow\` header.
The path of a console accepts only a WebSocket upgrade; any other request is a 426 (\`upgrade_required\`).

## Errors

An error body has \`error\` (a sentence for people), \`code\`, \`reason\` (for programs), and for some reasons a payload with the name
of the reason. A request that is not valid HTTP, or whose headers are too large, is a 400, 408 or 431 without a body.

## Authentication

On the unix socket, the kernel identifies the caller, and no token is needed. Over TCP, only \`GET /healthz\`,
\`GET /v1/openapi.json\` and \`GET /docs\` (this document) work without a bearer token.

## Access levels

Each operation names its access level, also as \`x-svc-access\`:

- \`USER\`: any identified caller. Regular users see and change only their own objects; other users' objects are \`not_found\`.
- \`ROOT\`: root on the socket, or any bearer token except the session of a regular user. Others get \`root_required\`.
- \`PRIMARY\`: the primary token, or root on the socket. Other tokens and sessions get \`token_denied\`.
- \`PEER\`: any user on the socket. Bearer tokens get \`token_denied\`.
- \`CODE\`: a session code as bearer token. Others get \`token_denied\`.

## Capabilities

An operation with a capability, also as \`x-svc-capability\`, works if \`capabilities\` of \`GET /v1/status\` lists it. Otherwise it is
a 501 (\`not_implemented\`).`;

/** Code generators support this type, but not a range of types. */
const rawType = "application/octet-stream";
/** Content types of raw responses that are always the same. */
const rawResponseTypes: Readonly<Record<string, string>> = {
  "svc.v1.DaemonService.GetDaemonMetrics": "text/plain",
};

/** Fields that select a page of a list, and so do not name an object. */
const pagingFields = new Set(["limit", "page_token"]);

/**
 * @param base the output of protoc-gen-connect-openapi
 * @param descriptors serialized `google.protobuf.FileDescriptorSet` of the same contract
 * @throws Error if `base` lacks a route of the contract, because it is older than the contract
 */
export function finishOpenApi(base: BaseDocument, descriptors: Uint8Array): Document {
  const files = createFileRegistry(fromBinary(FileDescriptorSetSchema, descriptors));
  const services = [...files.files]
    .flatMap((file) => file.services)
    .filter((service) => isOurs(service.typeName));
  const options = readContractOptions(files.files);
  const routes = collectRoutes(services, (method) => options.httpRule(method));
  const schemas = new SchemaWriter(options, (field) => describeField(base, field));

  return {
    openapi: "3.1.0",
    info: {
      title: "svc",
      version: "v1",
      description: unwrap(introduction),
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "http://127.0.0.1:8420", description: "TCP listener at its default address" }],
    security: [{ bearer: [] }],
    tags: services.map((service) => ({
      name: service.name,
      description: unwrap(base.tags.find((tag) => tag.name === service.typeName)?.description),
    })),
    paths: finishPaths(base, routes, options, schemas),
    components: {
      securitySchemes: {
        bearer: {
          type: "http",
          scheme: "bearer",
          description: "The primary token, an access token, or the token of a session.",
        },
      },
      schemas: {
        Error: errorSchema(
          files.getMessage("svc.v1.ErrorDetail")?.fields.flatMap((field) => options.reasons(field)) ?? [],
        ),
        ...finishSchemas(base, routes, schemas),
      },
      responses: errorResponses(),
    },
  };
}

function finishPaths(
  base: BaseDocument,
  routes: readonly Route[],
  options: ContractOptions,
  schemas: SchemaWriter,
): Document["paths"] {
  const paths: Document["paths"] = {};
  const operationIds = new Set<string>();
  for (const route of routes) {
    const path = route.template.source;
    const httpMethod = route.httpMethod.toLowerCase();
    const known = base.paths[path]?.[httpMethod];
    if (known === undefined) {
      throw new Error(
        `openapi/base.json has no ${route.httpMethod} ${path}: it is older than the contract; install Go and run npm run gen`,
      );
    }
    const operation = finishOperation(route, unwrap(known.description), options, schemas);
    // A method can have several routes.
    const { operationId } = operation;
    for (let n = 2; operationIds.has(operation.operationId); n++)
      operation.operationId = operationId + String(n);
    operationIds.add(operation.operationId);
    (paths[path] ??= {})[httpMethod] = operation;
  }
  return paths;
}

function finishOperation(
  route: Route,
  comment: string,
  options: ContractOptions,
  schemas: SchemaWriter,
): Operation {
  const { method } = route;
  const access = options.access(method);
  if (access === undefined) throw new Error(`${method.parent.typeName}.${method.name} has no access level`);
  const capability = options.capability(method);
  const { summary, details } = splitComment(comment);
  const label = `Access: \`${access}\`.${capability === "" ? "" : ` Capability: \`${capability}\`.`}`;
  const parameters = finishParameters(route, schemas);
  const requestBody = finishRequestBody(route, schemas);
  return {
    operationId: method.localName,
    tags: [method.parent.name],
    summary,
    description: details === "" ? label : `${details}\n\n${label}`,
    "x-svc-access": access,
    ...(capability !== "" && { "x-svc-capability": capability }),
    ...(parameters.length > 0 && { parameters }),
    ...(requestBody !== undefined && { requestBody }),
    responses: {
      200: { description: "Success.", content: responseContent(route, schemas) },
      ...errorReferences({
        changes: route.httpMethod !== "GET",
        namesSomething: method.input.fields.some((field) => !pagingFields.has(field.name)),
        takesText: parameters.some(({ schema }) => schema.type === "string" || schema.type === "array"),
        isUpload: hasRawBody(route),
        isDownload: hasRawResponse(route),
      }),
    },
  };
}

function finishParameters({ method, template, body }: Route, schemas: SchemaWriter): Parameter[] {
  const inPath = new Set(template.variables.map((variable) => variable.fieldPath.join(".")));
  const parameters = template.variables.map(({ fieldPath }): Parameter => {
    const field = fieldPath.reduce<DescField | undefined>(
      (within, name) => findField(within?.message ?? method.input, name),
      undefined,
    ) as DescField;
    const { description, ...schema } = schemas.field(field);
    // An empty segment matches no route.
    if (schema.type === "string" && schema.format === undefined && schema.enum === undefined)
      schema.minLength ??= 1;
    return {
      name: fieldPath.join("."),
      in: "path",
      ...(description && { description }),
      required: true,
      schema,
    };
  });
  if (body === "*") return parameters;
  return [
    ...parameters,
    ...queryParameters(method.input, schemas, (name) => inPath.has(name) || name === body),
  ];
}

/** Every field that a query can set: all except secrets, which must not be in a URL. Fields of messages have dotted names. */
function queryParameters(
  message: DescMessage,
  schemas: SchemaWriter,
  isTaken: (name: string) => boolean,
  prefix: readonly DescField[] = [],
): Parameter[] {
  return message.fields.flatMap((field): Parameter[] => {
    const fields = [...prefix, field];
    if (isTaken(fields.map((each) => each.name).join(".")) || prefix.includes(field)) return [];
    if (field.proto.options?.debugRedact === true) return [];
    if (textKindOf(field) === undefined) {
      return field.fieldKind === "message" ? queryParameters(field.message, schemas, isTaken, fields) : [];
    }
    const { description, ...schema } = schemas.field(field);
    const isList = field.fieldKind === "list";
    const note = isList ? "Separate several values with commas, or repeat the parameter." : undefined;
    const text = [description, note].filter((each) => each !== undefined).join(" ");
    return [
      {
        name: fields.map((each) => each.jsonName).join("."),
        in: "query",
        ...(text !== "" && { description: text }),
        ...(schemas.isRequired(field) && prefix.length === 0 && { required: true }),
        ...(isList && { style: "form" as const, explode: false }),
        schema,
      },
    ];
  });
}

function finishRequestBody(route: Route, schemas: SchemaWriter): Operation["requestBody"] {
  const { method, body, template } = route;
  if (body === "") return undefined;
  if (hasRawBody(route))
    return { required: false, description: "Raw bytes of any type.", content: rawContent(rawType) };
  if (body !== "*") {
    const field = findField(method.input, body) as DescField;
    return {
      required: schemas.isRequired(field),
      content: { "application/json": { schema: schemas.field(field) } },
    };
  }
  const inPath = new Set(template.variables.map((variable) => variable.fieldPath[0]));
  const fields = method.input.fields.filter((field) => !inPath.has(field.name));
  if (fields.length === 0) return undefined;
  const schema: Schema =
    inPath.size === 0 ? { $ref: componentReference(method.input) } : schemas.object(fields, "request");
  return {
    required: schemas.object(fields, "request").required !== undefined,
    content: { "application/json": { schema } },
  };
}

function responseContent(route: Route, schemas: SchemaWriter): Content {
  const { method, responseBody } = route;
  if (hasRawResponse(route))
    return rawContent(rawResponseTypes[`${method.parent.typeName}.${method.name}`] ?? rawType);
  const field = findField(method.output, responseBody);
  const schema: Schema =
    field === undefined ? { $ref: componentReference(method.output) } : schemas.field(field);
  return {
    [method.methodKind === "server_streaming" ? "application/x-ndjson" : "application/json"]: { schema },
  };
}

function rawContent(type: string): Content {
  return { [type]: { schema: { type: "string", format: "binary" } } };
}

/** Schemas of every message in a route or an error. A message in requests and responses gets the schema of a request. */
function finishSchemas(
  base: BaseDocument,
  routes: readonly Route[],
  schemas: SchemaWriter,
): Record<string, Schema> {
  const requests = new Set<DescMessage>();
  const sent = new Set<DescMessage>(payloadMessages.flatMap((message) => [...reachable([message])]));
  for (const route of routes) {
    const { method } = route;
    if (route.body !== "" && !hasRawBody(route)) reachable([method.input], requests);
    if (!hasRawResponse(route)) reachable([method.output], sent);
  }
  // Bodies of paths with variables are inlined, and empty bodies are left out.
  const inline = new Set(
    routes.filter((route) => route.template.variables.length > 0).map((route) => route.method.input),
  );
  const finished: Record<string, Schema> = {};
  const byName = (a: DescMessage, b: DescMessage): number => (componentName(a) < componentName(b) ? -1 : 1);
  for (const message of [...requests, ...[...sent].filter((each) => !requests.has(each))].sort(byName)) {
    const isUnnamed = inline.has(message) || (requests.has(message) && message.fields.length === 0);
    if (isUnnamed && !sent.has(message)) continue;
    const description = unwrap(base.components.schemas[message.typeName]?.description);
    const schema = schemas.object(message.fields, requests.has(message) ? "request" : "response");
    finished[componentName(message)] = { ...schema, ...(description !== "" && { description }) };
  }
  return finished;
}

/** Adds `roots` and all messages in their fields to `found`. */
function reachable(roots: readonly DescMessage[], found = new Set<DescMessage>()): Set<DescMessage> {
  for (const message of roots) {
    if (found.has(message) || isInlined(message)) continue;
    found.add(message);
    reachable(
      message.fields.flatMap((field) => field.message ?? []),
      found,
    );
  }
  return found;
}

function describeField(base: BaseDocument, field: DescField): string | undefined {
  const schema = base.components.schemas[field.parent.typeName];
  return schema && (unwrap(findProperty(schema, field.jsonName)?.description) || undefined);
}

/** protoc-gen-connect-openapi puts the members of a oneof into branches. */
function findProperty(schema: Schema, name: string): Schema | undefined {
  const found = schema.properties?.[name];
  if (found !== undefined) return found;
  for (const branch of [...(schema.allOf ?? []), ...(schema.oneOf ?? [])]) {
    const within = findProperty(branch, name);
    if (within !== undefined) return within;
  }
  return undefined;
}

/** A comment with one line per paragraph or list item. */
function unwrap(comment: string | undefined): string {
  return (comment ?? "")
    .trim()
    .replaceAll(/(?<!\n) *\n *(?![\n-])/g, " ")
    .replaceAll(/ *\n */g, "\n");
}

/** Splits off the first sentence of a method's comment, such as "List apps". */
function splitComment(comment: string): { summary: string; details: string } {
  const [, summary = "", details = ""] = /^([^]*?)\.(?:\s+([^]*))?$/.exec(comment) ?? [];
  return { summary, details };
}

function componentReference(message: DescMessage): string {
  return `#/components/schemas/${componentName(message)}`;
}

function isOurs(typeName: string): boolean {
  return typeName.startsWith("svc.v1.");
}
