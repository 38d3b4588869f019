/** Streams volumes of the container engine to and from a helper; `helper/archive/volume-tar.mjs` is the other end. */
import { PassThrough } from "node:stream";
import { SvcError } from "../errors.ts";
import { writeTo } from "../lib/byte-streams.ts";
import { TarReader } from "./helper/archive/tar-reader.mjs";
import type { TakeVolume, VolumeSource } from "./user-helper-types.ts";

const lengthBytes = 4;
const prefixBytes = 8;
const setIdBits = 0o6000;
const noTree = 0xffff_ffff;

/** Yields pieces, each prefixed with its length; an empty piece ends a volume. */
export async function* volumePieces(volumes: readonly VolumeSource[]): AsyncGenerator<Buffer, void> {
  for (const { tar } of volumes) {
    for await (const piece of tar()) {
      if (piece.length > 0) yield* [lengthOf(piece.length), piece];
    }
    yield lengthOf(0);
  }
}

function lengthOf(bytes: number): Buffer {
  const length = Buffer.alloc(lengthBytes);
  length.writeUInt32LE(bytes);
  return length;
}

interface Volume {
  readonly tree: number;
  readonly bytes: PassThrough;
  readonly check: TarCheck;
  readonly taken: Promise<void>;
}

/**
 * Receives the volumes of an archive from a helper. The engine unpacks them as root, but the helper is controlled by
 * its user. So everything is checked that root must not unpack.
 */
export class VolumeReceiver {
  readonly #trees: readonly string[];
  readonly #uid: number;
  readonly #take: TakeVolume;
  /** Prefix of a piece as far as received: its length and the number of its tree. */
  #prefix: Buffer = Buffer.alloc(0);
  #remaining = 0;
  #tree = noTree;
  #volume: Volume | undefined;

  /** @param uid owner of the files */
  constructor(trees: readonly string[], uid: number, take: TakeVolume) {
    this.#trees = trees;
    this.#uid = uid;
    this.#take = take;
  }

  /** Resolves when more can be pushed. @throws SvcError `archive_damaged`; any error of `take` */
  async push(chunk: Uint8Array): Promise<void> {
    let bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length);
    while (bytes.length > 0) {
      if (this.#remaining > 0) {
        const piece = bytes.subarray(0, this.#remaining);
        bytes = bytes.subarray(piece.length);
        this.#remaining -= piece.length;
        await this.#pass(this.#tree, piece);
        continue;
      }
      const part = bytes.subarray(0, prefixBytes - this.#prefix.length);
      bytes = bytes.subarray(part.length);
      this.#prefix = Buffer.concat([this.#prefix, part]);
      if (this.#prefix.length < prefixBytes) return;
      this.#remaining = this.#prefix.readUInt32LE(0);
      this.#tree = this.#prefix.readUInt32LE(4);
      this.#prefix = Buffer.alloc(0);
      if (this.#remaining === 0 && this.#tree !== noTree) await this.#end();
    }
  }

  /** Stops the unpacking of the current volume. */
  async abort(reason: unknown): Promise<void> {
    const volume = this.#volume;
    this.#volume = undefined;
    volume?.bytes.destroy(reason instanceof Error ? reason : new Error("given up"));
    await volume?.taken.catch(() => undefined);
  }

  async #pass(tree: number, piece: Buffer): Promise<void> {
    if (this.#volume?.tree !== tree) {
      const name = this.#trees[tree];
      if (this.#volume !== undefined || name === undefined) throw refused("is out of order");
      this.#volume = this.#begin(tree, name);
    }
    const { bytes, check, taken } = this.#volume;
    check.push(piece);
    const endedEarly = taken.then(() => {
      throw refused("was not read to its end");
    });
    await Promise.race([writeTo(bytes)(piece), endedEarly]);
  }

  #begin(tree: number, name: string): Volume {
    const bytes = new PassThrough({ highWaterMark: 1 << 20 });
    // `taken` reports the error.
    bytes.on("error", () => undefined);
    const taken = this.#take(name, bytes);
    taken.catch(() => undefined);
    return { tree, bytes, check: new TarCheck(this.#uid), taken };
  }

  async #end(): Promise<void> {
    const volume = this.#volume;
    this.#volume = undefined;
    if (volume === undefined) throw refused("is empty");
    volume.check.finish();
    volume.bytes.end();
    await volume.taken;
  }
}

/** Checks that the tar of a volume looks as our helper writes it, without entries that would raise the user's privileges. */
class TarCheck {
  readonly #reader: TarReader;

  constructor(uid: number) {
    const ignore = (): void => undefined;
    this.#reader = new TarReader({
      entry: ({ path, type, mode, uid: owner }, headers) => {
        const isInside = path === "volume" || (path.startsWith("volume/") && !path.split("/").includes(".."));
        if (!isInside) throw refused("has a name outside of it");
        if (headers.includes("SCHILY.")) throw refused("has extended attributes that are not allowed");
        if (uid === 0) return;
        if (type === "device") throw refused("has a device");
        if (type === "file" && (mode & setIdBits) !== 0 && owner !== uid)
          throw refused("has a setuid or setgid file that may not be restored");
      },
      content: ignore,
      padding: ignore,
      entryEnd: ignore,
    });
  }

  push(piece: Buffer): void {
    try {
      this.#reader.push(piece);
    } catch (error) {
      if (error instanceof SvcError) throw error;
      throw refused("cannot be read", error);
    }
  }

  finish(): void {
    if (!this.#reader.ended) throw refused("is truncated");
  }
}

function refused(what: string, cause?: unknown): SvcError {
  return new SvcError("archive_damaged", `a volume of the archive ${what}`, { cause });
}
