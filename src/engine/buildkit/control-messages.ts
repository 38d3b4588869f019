/** Messages of BuildKit's `Control` service (api/services/control/control.proto of github.com/moby/buildkit), as far as needed. */
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

export interface Solve {
  /** Random; identifies the build. */
  readonly ref: string;
  /** The session of the build. */
  readonly session: string;
  /** Options of the frontend that reads Dockerfiles. */
  readonly attributes: Readonly<Record<string, string>>;
  /** Names of the image. */
  readonly names: readonly string[];
  readonly entitlements: readonly string[];
}

/** A step of a build. */
export interface Vertex {
  readonly digest: string;
  readonly name: string;
  readonly isCached: boolean;
  readonly isStarted: boolean;
  readonly error: string;
}

export interface SolveStatus {
  readonly vertexes: readonly Vertex[];
  /** Output of the steps, in pieces that may divide a character. */
  readonly logs: readonly StepOutput[];
}

export interface StepOutput {
  /** The step and its stream. */
  readonly source: string;
  readonly data: Uint8Array;
}

/** The engine's exporter: stores the image under its names. */
const exporter = "moby";
const frontend = "dockerfile.v0";

export function solveRequest({ ref, session, attributes, names, entitlements }: Solve): Uint8Array {
  const writer = new BinaryWriter();
  writer.tag(1, WireType.LengthDelimited).string(ref);
  writer.tag(3, WireType.LengthDelimited).string(exporter);
  writeMap(writer, 4, { name: names.join(",") });
  writer.tag(5, WireType.LengthDelimited).string(session);
  writer.tag(6, WireType.LengthDelimited).string(frontend);
  writeMap(writer, 7, attributes);
  // BuildKit requires the cache options, even empty ones.
  writer.tag(8, WireType.LengthDelimited).bytes(new Uint8Array());
  for (const entitlement of entitlements) writer.tag(9, WireType.LengthDelimited).string(entitlement);
  return writer.finish();
}

export function statusRequest(ref: string): Uint8Array {
  return new BinaryWriter().tag(1, WireType.LengthDelimited).string(ref).finish();
}

export function readStatus(message: Uint8Array): SolveStatus {
  const vertexes: Vertex[] = [];
  const logs: StepOutput[] = [];
  for (const [field, value] of readFields(message)) {
    if (field === 1 && value instanceof Uint8Array) vertexes.push(readVertex(value));
    if (field === 3 && value instanceof Uint8Array) logs.push(readOutput(value));
  }
  return { vertexes, logs };
}

function readOutput(message: Uint8Array): StepOutput {
  const parts = new Map(readFields(message));
  return { source: `${textOf(parts.get(1))} ${String(parts.get(3))}`, data: bytesOf(parts.get(4)) };
}

function readVertex(message: Uint8Array): Vertex {
  const parts = new Map(readFields(message));
  return {
    digest: textOf(parts.get(1)),
    name: textOf(parts.get(3)),
    isCached: parts.get(4) === 1,
    isStarted: parts.has(5),
    error: textOf(parts.get(7)),
  };
}

type Field = readonly [number: number, value: Uint8Array | number];

/** The fields of a message; a repeated field once for each value. */
export function* readFields(message: Uint8Array): Generator<Field, void> {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (type === WireType.LengthDelimited) yield [field, reader.bytes()];
    else if (type === WireType.Varint) yield [field, Number(reader.uint64())];
    else reader.skip(type, field);
  }
}

export function textOf(value: Uint8Array | number | undefined): string {
  return Buffer.from(bytesOf(value)).toString();
}

function bytesOf(value: Uint8Array | number | undefined): Uint8Array {
  return value instanceof Uint8Array ? value : new Uint8Array();
}

function writeMap(writer: BinaryWriter, field: number, entries: Readonly<Record<string, string>>): void {
  for (const [key, value] of Object.entries(entries)) {
    writer.tag(field, WireType.LengthDelimited).fork();
    writer.tag(1, WireType.LengthDelimited).string(key);
    writer.tag(2, WireType.LengthDelimited).string(value);
    writer.join();
  }
}
