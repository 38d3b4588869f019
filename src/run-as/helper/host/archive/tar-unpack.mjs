/** Unpacks a tar while it is decompressed. */
import { SparsePieces } from "../../archive/sparse-pieces.mjs";
import { TarReader } from "../../archive/tar-reader.mjs";
import { RequestError } from "../../request-error.mjs";
import { decompressed } from "./decompress.mjs";
import { decodedName } from "./name-encoding.mjs";

/** @typedef {import("./unpack-sink.mjs").UnpackSink} UnpackSink */

/**
 * @param {import("node:fs/promises").FileHandle} file
 * @param {import("./decompress.mjs").TarFormat} format
 * @param {string} nameEncoding of names that are not UTF-8; empty: they keep their bytes
 * @param {UnpackSink} sink
 * @param {import("./budget.mjs").Budget} budget
 * @param {() => Promise<void>} step called repeatedly: lets other requests run, and throws on cancellation
 */
export async function unpackTar(file, format, nameEncoding, sink, budget, step) {
  /** @type {SparsePieces | undefined} */
  let sparse;
  const write = (/** @type {Iterable<Buffer | number>} */ pieces) => {
    for (const piece of pieces) {
      if (typeof piece === "number") sink.skip(piece);
      else sink.write(piece);
    }
  };
  const reader = new TarReader(
    {
      entry: (entry) => {
        const path = decodedName(entry.path, nameEncoding);
        const target = decodedName(entry.target, nameEncoding);
        sink.begin({ ...entry, path, target });
        sparse = entry.sparse ? new SparsePieces(entry) : undefined;
      },
      content: (piece) => write(sparse?.push(piece) ?? [piece]),
      padding: () => undefined,
      entryEnd: () => {
        write(sparse?.end() ?? []);
        sink.end();
      },
    },
    { external: true },
  );
  for await (const piece of decompressed(file, format)) {
    budget.passBytes(piece.length);
    reader.push(piece);
    await step();
  }
  // Some tars lack the final blocks of zeros.
  if (!reader.ended && !reader.between) throw new RequestError("REFUSED", "is truncated");
  if (reader.entries === 0) throw new RequestError("REFUSED", "is empty");
}
