/**
 * Turns what protoc-gen-connect-openapi writes into the document that describes what the server does. The tool knows the
 * routes and what the contract says about them; parameters, bodies, answers, errors and schemas follow our decisions.
 */
import { createFileRegistry, fromBinary, type DescField, type DescMessage } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { hasRawAnswer } from "../rest/body-streams.ts";
import { hasRawBody } from "../rest/bind.ts";
import { findField } from "../rest/explain-json.ts";
import type { Route } from "../rest/route.ts";
import { textKindOf } from "../rest/text-value.ts";
import { collectRoutes } from "./collect-routes.ts";
import { readContractOptions, type Access, type ContractOptions } from "./contract-options.ts";
import type { BaseDocument, Content, Document, Operation, Parameter, Schema } from "./openapi-document.ts";
import { errorReferences, errorResponses, errorSchema, payloadMessages } from "./openapi-errors.ts";
import { SchemaWriter, componentName, isInlined } from "./openapi-schemas.ts";

const accessTexts: Readonly<Record<Access, string>> = {
  USER: "Access: any identified caller; a regular user sees and changes what is their own.",
  ROOT: "Access: a root context (a root peer on the socket, or any bearer token but a regular user's session).",
  PRIMARY: "Access: the primary token, or a root peer on the socket.",
  PEER: "Access: any peer of the socket; no bearer token.",
  CODE: "Access: the code of a session as bearer token.",
};

/** Code generators know this type where they do not know a range of types. */
const rawType = "application/octet-stream";
/** What raw answers are, where they are always the same. */
const rawAnswerTypes: Readonly<Record<string, string>> = {
  "svc.v1.DaemonService.GetDaemonMetrics": "text/plain",
};

/** Fields that say how much of a list is wanted, and name nothing. */
const pagingFields = new Set(["limit", "page_token"]);

/**
 * @param base the tool's output
 * @param descriptors a serialised `google.protobuf.FileDescriptorSet` of the same contract
 * @throws Error when a route of the contract is not in `base`, which is then older than the contract
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
      description:
        "The daemon that runs the software of one Linux machine. Bodies and answers are JSON unless an operation says otherwise.\n\n" +
        "An error is an object with `error`, `code` and `reason`, and the payload of the reason under its name. " +
        "Unknown fields and query parameters are a 400 that names them. " +
        "`HEAD` works wherever `GET` does; any other method on a known path is a 405 (`method_not_allowed`) with `Allow`. " +
        "A console's path is a WebSocket's: anything else there is a 426 (`upgrade_required`). " +
        "What is no HTTP, or has more headers than fit, is a 400, 408 or 431 without a body.\n\n" +
        "On the unix socket the caller is known by its process, and no token is sent. Without a token, TCP answers only " +
        "`GET /healthz`, `GET /v1/openapi.json` and `GET /docs`, which shows this document.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "http://127.0.0.1:8420", description: "The TCP listener at its default address" }],
    security: [{ bearer: [] }],
    tags: services.map((service) => ({
      name: service.name,
      description: clean(base.tags.find((tag) => tag.name === service.typeName)?.description),
    })),
    paths: finishPaths(base, routes, options, schemas),
    components: {
      securitySchemes: {
        bearer: {
          type: "http",
          scheme: "bearer",
          description: "The primary token, or an access token made from it.",
        },
      },
      schemas: finishSchemas(base, routes, schemas),
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
        `openapi/base.json has no ${route.httpMethod} ${path}: it is older than the contract; generate where Go is installed`,
      );
    }
    const operation = finishOperation(route, clean(known.description), options, schemas);
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
  if (access === undefined)
    throw new Error(`${method.parent.typeName}.${method.name} states no access level`);
  const capability = options.capability(method);
  const notes = [accessTexts[access], ...(capability === "" ? [] : [`Capability: \`${capability}\`.`])];
  const parameters = finishParameters(route, schemas);
  const requestBody = finishRequestBody(route, schemas);
  return {
    operationId: method.localName,
    tags: [method.parent.name],
    summary: firstSentence(comment),
    description: [comment, ...notes].join("\n\n"),
    "x-svc-access": access,
    ...(capability !== "" && { "x-svc-capability": capability }),
    ...(parameters.length > 0 && { parameters }),
    ...(requestBody !== undefined && { requestBody }),
    responses: {
      200: { description: "Done.", content: answerContent(route, schemas) },
      ...errorReferences({
        changes: route.httpMethod !== "GET",
        namesSomething: method.input.fields.some((field) => !pagingFields.has(field.name)),
        takesText: parameters.some(({ schema }) => schema.type === "string" || schema.type === "array"),
        isUpload: hasRawBody(route),
        isDownload: hasRawAnswer(route),
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

/** Every field that a query can give, which are all but secrets; those of messages are dotted. */
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
    const note = isList ? "Separated by commas; may also be repeated." : undefined;
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
    return { required: false, description: "The bare bytes, of any type.", content: rawContent(rawType) };
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

function answerContent(route: Route, schemas: SchemaWriter): Content {
  const { method, responseBody } = route;
  if (hasRawAnswer(route))
    return rawContent(rawAnswerTypes[`${method.parent.typeName}.${method.name}`] ?? rawType);
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

/** Schemas of every message that a route or an error speaks of. What is both sent and received promises no more than a request. */
function finishSchemas(
  base: BaseDocument,
  routes: readonly Route[],
  schemas: SchemaWriter,
): Record<string, Schema> {
  const requests = new Set<DescMessage>();
  const answers = new Set<DescMessage>(payloadMessages.flatMap((message) => [...reachable([message])]));
  for (const route of routes) {
    const { method } = route;
    if (route.body !== "" && !hasRawBody(route)) reachable([method.input], requests);
    if (!hasRawAnswer(route)) reachable([method.output], answers);
  }
  // The bodies of paths with variables are written where they stand, empty ones are not written.
  const inline = new Set(
    routes.filter((route) => route.template.variables.length > 0).map((route) => route.method.input),
  );
  const finished: Record<string, Schema> = { Error: errorSchema() };
  const byName = (a: DescMessage, b: DescMessage): number => (componentName(a) < componentName(b) ? -1 : 1);
  for (const message of [...requests, ...[...answers].filter((each) => !requests.has(each))].sort(byName)) {
    const isUnnamed = inline.has(message) || (requests.has(message) && message.fields.length === 0);
    if (isUnnamed && !answers.has(message)) continue;
    const description = clean(base.components.schemas[message.typeName]?.description);
    const schema = schemas.object(message.fields, requests.has(message) ? "request" : "answer");
    finished[componentName(message)] = { ...schema, ...(description !== "" && { description }) };
  }
  return finished;
}

/** Adds the messages that `roots` are made of, themselves included. */
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
  return schema && (clean(findProperty(schema, field.jsonName)?.description) || undefined);
}

/** The tool puts the members of a oneof into branches. */
function findProperty(schema: Schema, name: string): Schema | undefined {
  const found = schema.properties?.[name];
  if (found !== undefined) return found;
  for (const branch of [...(schema.allOf ?? []), ...(schema.oneOf ?? [])]) {
    const within = findProperty(branch, name);
    if (within !== undefined) return within;
  }
  return undefined;
}

/** A comment of the contract as running text. */
function clean(comment: string | undefined): string {
  return (comment ?? "").replaceAll(/\n /g, "\n").trim();
}

function firstSentence(text: string): string {
  return (text.split(/(?<=[.:;])\s/, 1)[0] ?? "").replace(/[.:;]$/, "");
}

function componentReference(message: DescMessage): string {
  return `#/components/schemas/${componentName(message)}`;
}

function isOurs(typeName: string): boolean {
  return typeName.startsWith("svc.v1.");
}
