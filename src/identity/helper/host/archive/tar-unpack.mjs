/** Takes a tar apart as it comes out of its compression. */
import { createGunzip, createZstdDecompress } from "node:zlib";
import { TarReader } from "../../archive/tar-reader.mjs";
import { RequestError } from "../../request-error.mjs";

/** @typedef {import("./unpack-sink.mjs").UnpackSink} UnpackSink */
/** @typedef {import("../../archive/tar-reader.mjs").TarEntry} TarEntry */

/**
 * @param {import("node:fs/promises").FileHandle} file
 * @param {"tar" | "tar.gz" | "tar.zst"} format
 * @param {UnpackSink} sink
 * @param {import("./budget.mjs").Budget} budget
 * @param {() => Promise<void>} step Called all the time: lets others have their turn, and throws when it is to end.
 */
export async function unpackTar(file, format, sink, budget, step) {
  const layout = new TarLayout(sink);
  for await (const piece of decompressed(file, format)) {
    budget.passBytes(piece.length);
    layout.push(piece);
    await step();
  }
  layout.finish();
}

/**
 * @param {import("node:fs/promises").FileHandle} file
 * @param {"tar" | "tar.gz" | "tar.zst"} format
 * @returns {AsyncIterable<Buffer>}
 */
function decompressed(file, format) {
  const bytes = file.createReadStream({ autoClose: false, highWaterMark: 256 << 10, start: 0 });
  if (format === "tar") return bytes;
  const options = { chunkSize: 128 << 10 };
  const filter = format === "tar.gz" ? createGunzip(options) : createZstdDecompress(options);
  bytes.on("error", (error) => filter.destroy(error));
  filter.on("close", () => bytes.destroy());
  return bytes.pipe(filter);
}

/** Entries of a tar in the hands of a sink. */
class TarLayout {
  #sink;
  #reader = new TarReader(
    {
      entry: (entry) => this.#begin(entry),
      content: (piece) => this.#sink.write(piece),
      padding: () => undefined,
      entryEnd: () => this.#sink.end(),
    },
    { foreign: true },
  );

  /** @param {UnpackSink} sink */
  constructor(sink) {
    this.#sink = sink;
  }

  /** @param {Buffer} piece */
  push(piece) {
    this.#reader.push(piece);
  }

  finish() {
    // Some tars lack the blocks of zeros at their end.
    if (!this.#reader.ended && !this.#reader.between) throw new RequestError("REFUSED", "is cut short");
    if (this.#reader.entries === 0) throw new RequestError("REFUSED", "has nothing in it");
  }

  /** @param {TarEntry} entry */
  #begin(entry) {
    if (entry.sparse) throw new RequestError("REFUSED", "has a file with holes in a form of GNU's tar alone");
    this.#sink.begin({ ...entry, mtimeSecs: Number(entry.mtime) });
  }
}
