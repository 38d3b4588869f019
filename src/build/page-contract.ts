/**
 * Reduces the contract to what the web page needs: calls and messages, without options for the daemon's checks, in a
 * form that loads fast, because the page reads all of it at its start.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isFieldSet, type DescFile, type DescMessage } from "@bufbuild/protobuf";
import {
  FieldOptionsSchema,
  MethodOptions_IdempotencyLevel,
  type DescriptorProto,
  type EnumDescriptorProto,
  type FieldDescriptorProto,
  type MethodDescriptorProto,
  type ServiceDescriptorProto,
} from "@bufbuild/protobuf/wkt";
import type { Plugin } from "esbuild";
import type {
  EnumShape,
  FieldShape,
  FileShape,
  MessageShape,
  MethodShape,
  ServiceShape,
} from "../web/described-file.ts";

const describedFile = join(import.meta.dirname, "../web/described-file.ts");
/** The call in a generated file that contains its description and dependencies. */
const call = /fileDesc\("[\w+/]+"(?:, \[[^\]]*\])?\)/;

export const leanContract: Plugin = {
  name: "lean-contract",
  setup(building) {
    building.onLoad({ filter: /_pb\.[jt]s$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      // The description of descriptors itself has another form.
      if (!call.test(text)) return undefined;
      const generated = (await import(pathToFileURL(path).href)) as Readonly<Record<string, unknown>>;
      const file = Object.values(generated).find(isFile);
      if (file === undefined) throw new Error(`${path} describes no file`);
      // Files of older syntax, and those that extend descriptors, are not needed.
      if (file.proto.syntax !== "proto3" || extendsOthers(file)) return undefined;
      const types = filesOfTypes(file);
      const imports = file.dependencies.filter((each) => types.has(each)).map(nameOf);
      const json = JSON.stringify(JSON.stringify(shapeOf(file)));
      const described = text.replace(call, () => `describedFile(${json}, [${imports.join(", ")}])`);
      const contents = `import { describedFile } from ${JSON.stringify(describedFile)};\n${described}`;
      return { contents, loader: path.endsWith(".ts") ? "ts" : "js" };
    });
  },
};

function isFile(value: unknown): value is DescFile {
  return typeof value === "object" && value !== null && "kind" in value && value.kind === "file";
}

function extendsOthers({ extensions, messages }: DescFile): boolean {
  const inMessage = ({ nestedExtensions, nestedMessages }: DescMessage): boolean =>
    nestedExtensions.length > 0 || nestedMessages.some(inMessage);
  return extensions.length > 0 || messages.some(inMessage);
}

/** Name of its import: `file_svc_v1_app`. */
function nameOf({ name }: DescFile): string {
  return `file_${name.replaceAll(/\W/g, "_")}`;
}

/** All files with types that a file uses. */
function filesOfTypes({ messages, services }: DescFile): Set<DescFile | undefined> {
  const found = new Set<DescFile | undefined>();
  const pending = [...messages];
  for (const { nestedMessages, fields } of pending) {
    pending.push(...nestedMessages);
    for (const { message, enum: named } of fields) found.add(message?.file).add(named?.file);
  }
  for (const { methods } of services)
    for (const { input, output } of methods) found.add(input.file).add(output.file);
  return found;
}

function shapeOf({ proto }: DescFile): FileShape {
  return {
    name: proto.name,
    package: proto.package,
    messages: proto.messageType.map(messageOf),
    enums: proto.enumType.map(enumOf),
    services: proto.service.map(serviceOf),
  };
}

function messageOf({ name, field, nestedType, enumType, oneofDecl, options }: DescriptorProto): MessageShape {
  return {
    name,
    fields: field.map(fieldOf),
    ...(nestedType.length > 0 && { messages: nestedType.map(messageOf) }),
    ...(enumType.length > 0 && { enums: enumType.map(enumOf) }),
    ...(oneofDecl.length > 0 && { oneofs: oneofDecl.map((oneof) => oneof.name) }),
    ...(options?.mapEntry === true && { mapEntry: true }),
  };
}

/** @throws if it has options that change its encoding */
function fieldOf(field: FieldDescriptorProto): FieldShape {
  const { name, number, type, label, jsonName, typeName, proto3Optional, options } = field;
  const { features, packed, jstype } = FieldOptionsSchema.field;
  if (options !== undefined && [features, packed, jstype].some((each) => isFieldSet(options, each)))
    throw new Error(`${name} has an option that the page would not know of`);
  return {
    ...{ name, number, type, label },
    ...(jsonName !== name && { jsonName }),
    ...(typeName !== "" && { typeName }),
    // Zero is a valid index.
    ...(Object.hasOwn(field, "oneofIndex") && { oneofIndex: field.oneofIndex }),
    ...(proto3Optional && { proto3Optional }),
  };
}

function enumOf({ name, value }: EnumDescriptorProto): EnumShape {
  return { name, value: value.map((each) => ({ name: each.name, number: each.number })) };
}

function serviceOf({ name, method }: ServiceDescriptorProto): ServiceShape {
  return { name, method: method.map(methodOf) };
}

function methodOf(method: MethodDescriptorProto): MethodShape {
  const { name, inputType, outputType, clientStreaming, serverStreaming, options } = method;
  const idempotencyLevel = options?.idempotencyLevel ?? MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN;
  return {
    ...{ name, inputType, outputType },
    ...(clientStreaming && { clientStreaming }),
    ...(serverStreaming && { serverStreaming }),
    ...(idempotencyLevel !== MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN && { idempotencyLevel }),
  };
}
