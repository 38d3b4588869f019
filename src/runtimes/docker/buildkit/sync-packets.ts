/**
 * Packets of the file transfer in a build's session (types/wire.proto of github.com/tonistiigi/fsutil): the sender lists all
 * entries, the receiver requests contents by the entries' numbers.
 */
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { readFields, textOf } from "../../../engine/buildkit/control-messages.ts";

/** An entry of a directory. */
export interface SyncEntry {
  /** One character per byte, because names do not have to be UTF-8. */
  readonly path: string;
  readonly type: "file" | "directory" | "symlink";
  /** Permissions and the set-uid, set-gid and sticky bits as in stat(2). */
  readonly mode: number;
  readonly sizeBytes: number;
  readonly modifiedNs: bigint;
  /** Target of a symlink, encoded as `path` is. */
  readonly target: string;
}

export type SyncRequest = { readonly type: "request"; readonly id: number } | { readonly type: "end" };

const packetTypes = { stat: 0, request: 1, data: 2, end: 3, error: 4 };
/** Bits of Go's `os.FileMode`. */
const goTypeBits = { file: 0, directory: 2 ** 31, symlink: 2 ** 27 };
const goSpecialBits = [
  [0o4000, 2 ** 23],
  [0o2000, 2 ** 22],
  [0o1000, 2 ** 20],
] as const;

export function entryPacket({ path, type, mode, sizeBytes, modifiedNs, target }: SyncEntry): Uint8Array {
  const special = goSpecialBits.reduce((sum, [bit, goBit]) => sum + ((mode & bit) === 0 ? 0 : goBit), 0);
  const stat = new BinaryWriter();
  stat.tag(1, WireType.LengthDelimited).bytes(Buffer.from(path, "latin1"));
  stat.tag(2, WireType.Varint).uint32((mode & 0o777) + special + goTypeBits[type]);
  stat.tag(5, WireType.Varint).int64(sizeBytes);
  stat.tag(6, WireType.Varint).int64(modifiedNs);
  if (target !== "") stat.tag(7, WireType.LengthDelimited).bytes(Buffer.from(target, "latin1"));
  // The default type needs no field.
  return new BinaryWriter().tag(2, WireType.LengthDelimited).bytes(stat.finish()).finish();
}

/** Ends the list of entries. */
export function lastEntryPacket(): Uint8Array {
  return new BinaryWriter().tag(1, WireType.Varint).int32(packetTypes.stat).finish();
}

/** A part of a content; an empty one ends it. */
export function dataPacket(id: number, data: Uint8Array): Uint8Array {
  const writer = new BinaryWriter();
  writer.tag(1, WireType.Varint).int32(packetTypes.data);
  writer.tag(3, WireType.Varint).uint32(id);
  if (data.length > 0) writer.tag(4, WireType.LengthDelimited).bytes(data);
  return writer.finish();
}

export function endPacket(): Uint8Array {
  return new BinaryWriter().tag(1, WireType.Varint).int32(packetTypes.end).finish();
}

/** @throws Error with the receiver's message, and for packets that a receiver does not send */
export function readRequest(packet: Uint8Array): SyncRequest {
  const fields = new Map(readFields(packet));
  const type = Number(fields.get(1) ?? packetTypes.stat);
  if (type === packetTypes.request) return { type: "request", id: Number(fields.get(3) ?? 0) };
  if (type === packetTypes.end) return { type: "end" };
  throw new Error(
    type === packetTypes.error ? textOf(fields.get(4)) : `packet type ${type} is not valid in a request`,
  );
}
