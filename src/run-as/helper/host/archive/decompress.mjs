/** Decompresses a tar. Node has no xz and bzip2, so these are decompressed by the host's programs, as the same user. */
import { once } from "node:events";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { RequestError } from "../../request-error.mjs";
import { spawnSession } from "../../spawn.mjs";

/** @typedef {"tar" | "tar.gz" | "tar.zst" | keyof typeof programs} TarFormat */

/** The largest preset of xz needs 65 MiB. */
const programs = {
  "tar.xz": { argv: ["xz", "-dc", "-T1", "--memlimit-decompress=256MiB"], packages: "xz-utils or xz" },
  "tar.bz2": { argv: ["bzip2", "-dc"], packages: "bzip2" },
};
const maxMessageLength = 200;

/**
 * @param {import("node:fs/promises").FileHandle} file not read yet
 * @param {TarFormat} format
 * @returns {AsyncIterable<Buffer>}
 */
export function decompressed(file, format) {
  if (format === "tar.xz" || format === "tar.bz2") return decompressedBy(programs[format], file);
  const bytes = file.createReadStream({ autoClose: false, highWaterMark: 256 << 10, start: 0 });
  if (format === "tar") return bytes;
  const options = { chunkSize: 128 << 10 };
  const filter = format === "tar.gz" ? createGunzip(options) : createZstdDecompress(options);
  bytes.on("error", (error) => filter.destroy(error));
  filter.on("close", () => bytes.destroy());
  return bytes.pipe(filter);
}

/**
 * @param {{ argv: string[], packages: string }} program
 * @param {import("node:fs/promises").FileHandle} file
 */
async function* decompressedBy({ argv, packages }, file) {
  const child = await spawnSession({ argv, cwd: "/", env: {} }, [file.fd, "pipe", "pipe"]).catch(
    (/** @type {unknown} */ error) => {
      if (!(error instanceof RequestError) || error.code !== "NO_COMMAND") throw error;
      throw new RequestError("REFUSED", `cannot be decompressed: ${error.message}; install ${packages}`);
    },
  );
  const closed = once(child, "close");
  let message = "";
  child.stderr?.on("data", (piece) => (message = `${message}${String(piece)}`.slice(0, maxMessageLength)));
  try {
    for await (const piece of child.stdout ?? []) yield piece;
    await closed;
    if (child.exitCode !== 0) throw new RequestError("REFUSED", `cannot be decompressed: ${message.trim()}`);
  } finally {
    child.kill("SIGKILL");
  }
}
