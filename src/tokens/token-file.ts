/** The file of the primary token, `api.token` beside the configuration file: owner-only, never half-written (T 13). */
import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { link, mkdir, open, unlink } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { dirname } from "node:path";
import { failedPrecondition } from "../errors.ts";
import type { SvcError } from "../errors.ts";
import { isToken, mintToken } from "./token-digest.ts";

const maxFileBytes = 256;

/**
 * Reads the primary token, or makes it on the daemon's first start. Two daemons that start at once agree on one token.
 * @param selfUid the daemon's own uid: only it (or root) may own the file
 * @throws SvcError `failed_precondition` when the file is a link, loose in its mode, another's or no token
 */
export async function openTokenFile(file: string, selfUid: number): Promise<string> {
  await mkdir(dirname(file), { recursive: true, mode: 0o755 });
  return (await readTokenFile(file, selfUid)) ?? (await createTokenFile(file, selfUid));
}

/** `undefined` when there is no file. */
async function readTokenFile(file: string, selfUid: number): Promise<string | undefined> {
  let handle: FileHandle;
  try {
    // NONBLOCK: a planted FIFO must not hang the start.
    handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return undefined;
    if (code === "ELOOP") throw refused(file, "is a symbolic link");
    throw error;
  }
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) throw refused(file, "is not a regular file");
    if (stats.uid !== selfUid && stats.uid !== 0) throw refused(file, `belongs to uid ${stats.uid}`);
    if ((stats.mode & 0o077) !== 0) {
      throw refused(file, `has mode ${(stats.mode & 0o777).toString(8).padStart(4, "0")}, not 0600`);
    }
    if (stats.size > maxFileBytes) throw refused(file, "is too large");
    const token = (await handle.readFile("utf8")).trim();
    if (!isToken("primary", token)) throw refused(file, "does not hold a primary token");
    return token;
  } finally {
    await handle.close();
  }
}

/** Writes a whole file under a temporary name and links it into place, which never replaces what is there. */
async function createTokenFile(file: string, selfUid: number): Promise<string> {
  const token = mintToken("primary");
  const temporary = `${file}.${randomBytes(6).toString("hex")}.new`;
  const handle = await open(
    temporary,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o600,
  );
  try {
    await handle.writeFile(`${token}\n`);
    await handle.sync();
    await handle.close();
    await link(temporary, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    const existing = await readTokenFile(file, selfUid);
    if (existing === undefined) throw error;
    return existing;
  } finally {
    await handle.close().catch(() => undefined);
    await unlink(temporary);
  }
  await syncDirectory(dirname(file));
  return token;
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function refused(file: string, problem: string): SvcError {
  return failedPrecondition(
    "not_ready",
    `the token file ${file} ${problem}; remove it, and the daemon makes a new one at its next start`,
  );
}
