/**
 * A proto file of the contract as JSON, written by the build: decoding binary descriptors would delay the
 * page's start.
 */
import { createFileRegistry, type DescFile, type DescService } from "@bufbuild/protobuf";
import type { GenFile } from "@bufbuild/protobuf/codegenv2";
import type { FileDescriptorProto } from "@bufbuild/protobuf/wkt";

/** proto3; only the options named here are supported. */
export interface FileShape {
  /** `svc/v1/app.proto` */
  readonly name: string;
  readonly package: string;
  readonly messages: readonly MessageShape[];
  readonly enums: readonly EnumShape[];
  readonly services: readonly ServiceShape[];
}

export interface MessageShape {
  readonly name: string;
  readonly fields: readonly FieldShape[];
  readonly messages?: readonly MessageShape[];
  readonly enums?: readonly EnumShape[];
  /** Names of the oneofs, in order. */
  readonly oneofs?: readonly string[];
  readonly mapEntry?: true;
}

/** Numbers are those of `FieldDescriptorProto`. */
export interface FieldShape {
  readonly name: string;
  readonly number: number;
  readonly type: number;
  readonly label: number;
  /** Set if it differs from the name. */
  readonly jsonName?: string;
  readonly typeName?: string;
  readonly oneofIndex?: number;
  readonly proto3Optional?: true;
}

export interface EnumShape {
  readonly name: string;
  readonly value: readonly { readonly name: string; readonly number: number }[];
}

export interface ServiceShape {
  readonly name: string;
  readonly method: readonly MethodShape[];
}

export interface MethodShape {
  readonly name: string;
  readonly inputType: string;
  readonly outputType: string;
  readonly clientStreaming?: true;
  readonly serverStreaming?: true;
  readonly idempotencyLevel?: DescService["methods"][number]["idempotency"];
}

/**
 * @public called by code that the build generates
 * @param json a {@link FileShape}
 * @param imports files that define the types it uses
 */
export function describedFile(json: string, imports: readonly DescFile[]): GenFile {
  const shape = JSON.parse(json) as FileShape;
  const proto = {
    name: shape.name,
    package: shape.package,
    syntax: "proto3",
    dependency: imports.map((file) => file.proto.name),
    messageType: shape.messages.map(messageOf),
    enumType: shape.enums,
    service: shape.services.map(({ name, method }) => ({ name, method: method.map(methodOf) })),
    extension: [],
    $typeName: "google.protobuf.FileDescriptorProto",
  };
  // The library reads only these fields of a file descriptor; the full descriptor of descriptors is large.
  const registry = createFileRegistry(proto as unknown as FileDescriptorProto, (name) =>
    imports.find((file) => file.proto.name === name),
  );
  const file = registry.getFile(shape.name);
  if (file === undefined) throw new Error(`${shape.name} is not described`);
  return file;
}

function messageOf({
  name,
  fields,
  messages = [],
  enums = [],
  oneofs = [],
  mapEntry,
}: MessageShape): unknown {
  return {
    name,
    field: fields.map(fieldOf),
    nestedType: messages.map(messageOf),
    enumType: enums,
    oneofDecl: oneofs.map((oneof) => ({ name: oneof })),
    extension: [],
    options: mapEntry && { mapEntry },
  };
}

function fieldOf(shape: FieldShape): unknown {
  return { jsonName: shape.name, typeName: "", proto3Optional: false, ...shape };
}

function methodOf({ idempotencyLevel, ...method }: MethodShape): unknown {
  return { ...method, options: idempotencyLevel && { idempotencyLevel } };
}
