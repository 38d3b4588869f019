/** The part of OpenAPI 3.1 and JSON Schema 2020-12 that we write. */

export interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  title?: string;
  description?: string;
  enum?: readonly string[];
  const?: string;
  readOnly?: boolean;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  minProperties?: number;
  maxProperties?: number;
  contentEncoding?: string;
  items?: Schema;
  properties?: Record<string, Schema>;
  propertyNames?: Schema;
  required?: string[];
  additionalProperties?: boolean | Schema;
  allOf?: Schema[];
  oneOf?: Schema[];
  not?: Schema;
  if?: Schema;
  then?: Schema;
}

export interface Parameter {
  name: string;
  in: "path" | "query";
  description?: string;
  required?: boolean;
  style?: "form";
  explode?: boolean;
  schema: Schema;
}

export type Content = Record<string, { schema: Schema }>;

export interface Response {
  description: string;
  headers?: Record<string, { description: string; schema: Schema }>;
  content?: Content;
}

export interface Operation {
  operationId: string;
  tags: string[];
  summary: string;
  description: string;
  "x-svc-access": string;
  "x-svc-capability"?: string;
  parameters?: Parameter[];
  requestBody?: { description?: string; required: boolean; content: Content };
  responses: Record<string, Response | { $ref: string }>;
}

export interface Document {
  openapi: string;
  info: {
    title: string;
    version: string;
    description: string;
    license: { name: string; identifier: string };
  };
  servers: { url: string; description: string }[];
  security: Record<string, string[]>[];
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: {
    securitySchemes: Record<string, object>;
    schemas: Record<string, Schema>;
    responses: Record<string, Response>;
  };
}

/** The part of the output of protoc-gen-connect-openapi that is used. */
export interface BaseDocument {
  tags: { name: string; description?: string }[];
  paths: Record<string, Record<string, { summary?: string; description?: string } | undefined> | undefined>;
  components: { schemas: Record<string, Schema | undefined> };
}
