/** Descriptor files of a set of services, indexed for reflection clients. */
import {
  toBinary,
  type DescEnum,
  type DescExtension,
  type DescFile,
  type DescMessage,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";

export class DescriptorIndex {
  /** By path, such as `svc/v1/app.proto`. */
  readonly #files = new Map<string, DescFile>();
  /** By full name: messages, fields, oneofs, enums, their values, services, methods and extensions. */
  readonly #symbols = new Map<string, DescFile>();
  /** By extended message, and by number. */
  readonly #extensions = new Map<string, Map<number, DescFile>>();

  /** @param files the files to index, with their imports */
  constructor(files: Iterable<DescFile>) {
    for (const file of files) this.#addFile(file);
  }

  file(path: string): DescFile | undefined {
    return this.#files.get(path);
  }

  fileOfSymbol(name: string): DescFile | undefined {
    return this.#symbols.get(name);
  }

  fileOfExtension(extendee: string, number: number): DescFile | undefined {
    return this.#extensions.get(extendee)?.get(number);
  }

  /** Numbers of the extensions of a message, ascending; undefined for an unknown message. */
  extensionNumbers(extendee: string): number[] | undefined {
    const known = this.#extensions.get(extendee);
    if (known === undefined) return this.#symbols.has(extendee) ? [] : undefined;
    return [...known.keys()].sort((a, b) => a - b);
  }

  #addFile(file: DescFile): void {
    if (this.#files.has(file.proto.name)) return;
    this.#files.set(file.proto.name, file);
    for (const dependency of file.dependencies) this.#addFile(dependency);
    for (const message of file.messages) this.#addMessage(message);
    for (const each of file.enums) this.#addEnum(each);
    for (const extension of file.extensions) this.#addExtension(extension);
    for (const service of file.services) {
      this.#symbols.set(service.typeName, file);
      for (const method of service.methods) this.#symbols.set(`${service.typeName}.${method.name}`, file);
    }
  }

  #addMessage(message: DescMessage): void {
    const { file, typeName } = message;
    this.#symbols.set(typeName, file);
    for (const { name } of [...message.fields, ...message.oneofs])
      this.#symbols.set(`${typeName}.${name}`, file);
    for (const nested of message.nestedMessages) this.#addMessage(nested);
    for (const nested of message.nestedEnums) this.#addEnum(nested);
    for (const nested of message.nestedExtensions) this.#addExtension(nested);
  }

  #addEnum({ file, typeName, values }: DescEnum): void {
    this.#symbols.set(typeName, file);
    // The values of an enum are its siblings (language guide, "Enum Value Options").
    const scope = typeName.slice(0, typeName.lastIndexOf(".") + 1);
    for (const { name } of values) this.#symbols.set(scope + name, file);
  }

  #addExtension({ file, typeName, extendee, number }: DescExtension): void {
    this.#symbols.set(typeName, file);
    const known = this.#extensions.get(extendee.typeName);
    if (known === undefined) this.#extensions.set(extendee.typeName, new Map([[number, file]]));
    else known.set(number, file);
  }
}

/** Serializes a file and its imports as `google.protobuf.FileDescriptorProto`, each once, the file first. */
export function serializeFiles(file: DescFile, skip: Set<string>): Uint8Array[] {
  const found: Uint8Array[] = [];
  const add = (each: DescFile): void => {
    if (skip.has(each.proto.name)) return;
    skip.add(each.proto.name);
    found.push(toBinary(FileDescriptorProtoSchema, each.proto));
    for (const dependency of each.dependencies) add(dependency);
  };
  add(file);
  return found;
}
