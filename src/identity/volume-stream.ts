/** Volumes of the container engine on their way to and from a helper; `helper/archive/volume-tar.mjs` is the other end. */
import { PassThrough } from "node:stream";
import { SvcError } from "../errors.ts";
import { writeTo } from "../lib/write-to.ts";
import { TarReader } from "./helper/archive/tar-reader.mjs";
import type { TakeVolume, VolumeSource } from "./identity-work.ts";

const lengthBytes = 4;
const prefixBytes = 8;
const setIdBits = 0o6000;
const noTree = 0xffff_ffff;

/** Each piece with its length in front; an empty one ends a volume. */
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
 * What a helper sends of the volumes of an archive. The engine is going to lay it out as root, and the helper is its user's
 * process: nothing gets past that root would have to answer for.
 */
export class VolumeReceiver {
  readonly #trees: readonly string[];
  readonly #uid: number;
  readonly #take: TakeVolume;
  /** Of a piece: its length and the number of its tree, as far as they have come. */
  #prefix: Buffer = Buffer.alloc(0);
  #left = 0;
  #tree = noTree;
  #volume: Volume | undefined;

  /** @param uid whom the files belonged to */
  constructor(trees: readonly string[], uid: number, take: TakeVolume) {
    this.#trees = trees;
    this.#uid = uid;
    this.#take = take;
  }

  /** Resolves when there is room for more. @throws SvcError `archive_damaged`, what taking it throws */
  async push(chunk: Uint8Array): Promise<void> {
    let bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length);
    while (bytes.length > 0) {
      if (this.#left > 0) {
        const piece = bytes.subarray(0, this.#left);
        bytes = bytes.subarray(piece.length);
        this.#left -= piece.length;
        await this.#pass(this.#tree, piece);
        continue;
      }
      const part = bytes.subarray(0, prefixBytes - this.#prefix.length);
      bytes = bytes.subarray(part.length);
      this.#prefix = Buffer.concat([this.#prefix, part]);
      if (this.#prefix.length < prefixBytes) return;
      this.#left = this.#prefix.readUInt32LE(0);
      this.#tree = this.#prefix.readUInt32LE(4);
      this.#prefix = Buffer.alloc(0);
      if (this.#left === 0 && this.#tree !== noTree) await this.#end();
    }
  }

  /** What was being taken is given up. */
  async abort(reason: unknown): Promise<void> {
    const volume = this.#volume;
    this.#volume = undefined;
    volume?.bytes.destroy(reason instanceof Error ? reason : new Error("given up"));
    await volume?.taken.catch(() => undefined);
  }

  async #pass(tree: number, piece: Buffer): Promise<void> {
    if (this.#volume?.tree !== tree) {
      const name = this.#trees[tree];
      if (this.#volume !== undefined || name === undefined) throw refused("is not the next one");
      this.#volume = this.#begin(tree, name);
    }
    const { bytes, check, taken } = this.#volume;
    check.push(piece);
    const endedEarly = taken.then(() => {
      throw refused("was not taken to its end");
    });
    await Promise.race([writeTo(bytes)(piece), endedEarly]);
  }

  #begin(tree: number, name: string): Volume {
    const bytes = new PassThrough({ highWaterMark: 1 << 20 });
    // Told by `taken`.
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

/** The tar of a volume as our own helper writes it, without what would get its user more than they have. */
class TarCheck {
  readonly #reader: TarReader;

  constructor(uid: number) {
    const ignore = (): void => undefined;
    this.#reader = new TarReader({
      entry: ({ path, type, mode, uid: owner }, headers) => {
        const isInside = path === "volume" || (path.startsWith("volume/") && !path.split("/").includes(".."));
        if (!isInside) throw refused("has a name that leads out of it");
        if (headers.includes("SCHILY.")) throw refused("has attributes that it cannot have");
        if (uid === 0) return;
        if (type === "device") throw refused("has a device");
        if (type === "file" && (mode & setIdBits) !== 0 && owner !== uid)
          throw refused("has a file that would run as somebody else");
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
    if (!this.#reader.ended) throw refused("is cut short");
  }
}

function refused(what: string, cause?: unknown): SvcError {
  return new SvcError("archive_damaged", `a volume of the archive ${what}`, { cause });
}
