/** Writes a zip while its files are read (yazl). */
import { readlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { PassThrough, Readable } from "node:stream";
import { finished } from "node:stream/promises";
import { at } from "../../directory.mjs";
import { RequestError } from "../../request-error.mjs";

/** yazl scans all entries for each entry. */
const maxEntries = 10_000;

const nothing = Buffer.alloc(0);
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @typedef {import("./pack.mjs").PackSource} PackSource */

/**
 * @param {PackSource} source
 * @param {string[]} paths
 * @throws RequestError `LIMIT` as an error of the stream
 */
export function zipBytes(source, paths) {
  /** @type {typeof import("yazl")} */
  const yazl = createRequire(import.meta.url)("yazl");
  const zip = new yazl.ZipFile();
  const output = new PassThrough();
  zip.outputStream.pipe(output);
  zip.on("error", (error) => output.destroy(error));
  const gone = new AbortController();
  output.once("close", () => gone.abort());
  addAll(zip, source, paths, gone.signal).then(
    () => zip.end(),
    (/** @type {unknown} */ error) =>
      output.destroy(error instanceof Error ? error : new Error(String(error))),
  );
  return output;
}

/**
 * @param {import("yazl").ZipFile} zip
 * @param {PackSource} source
 * @param {string[]} paths
 * @param {AbortSignal} gone
 */
async function addAll(zip, source, paths, gone) {
  let entries = 0;
  for (const path of paths) {
    for await (const entry of source.entries(path)) {
      if (++entries > maxEntries) throw tooManyEntries();
      const { stats } = entry;
      const name = zipName(source, entry.path);
      const mtime = new Date(Number(stats.mtimeNs / 1_000_000n));
      const options = { mtime, mode: Number(stats.mode) };
      if (stats.isDirectory()) zip.addEmptyDirectory(name, options);
      else if (stats.isSymbolicLink()) {
        zip.addBuffer(readlinkSync(at(entry.parent, entry.name), "buffer"), name, options);
      } else if (stats.size === 0n) {
        // Compressing an empty file takes ten times as long as storing it. It is opened nevertheless, to report missing
        // permission.
        for await (const _piece of source.bytesOf(entry));
        zip.addBuffer(nothing, name, { ...options, compress: false });
      } else {
        const bytes = Readable.from(source.bytesOf(entry), { objectMode: false });
        zip.addReadStream(bytes, name, { ...options, size: Number(stats.size) });
        // One at a time, because each keeps its file open.
        await finished(bytes, { signal: gone }).finally(() => bytes.destroy());
      }
    }
  }
}

function tooManyEntries() {
  const message = `would have more than ${maxEntries} entries, which are too many for a zip: a tar.gz or a tar.zst holds them`;
  return new RequestError("LIMIT", message);
}

/**
 * @param {PackSource} source
 * @param {string[]} path
 * @returns {string}
 */
function zipName(source, path) {
  try {
    const name = utf8.decode(Buffer.from(path.join("/"), "latin1"));
    if (!name.includes("\\")) return name;
  } catch {
    // Rejected below.
  }
  throw source.blame(path, new RequestError("WRONG_TYPE", "has a name that a zip cannot hold: a tar can"));
}
