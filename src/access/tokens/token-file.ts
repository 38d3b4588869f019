/** The file of the primary token, `api.token` beside the configuration file. Only its owner can read it; it is never half-written. */
import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { link, lstat, open, readdir, rename, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { SvcError } from "../../errors.ts";
import { makeDirectory } from "../../lib/make-directory.ts";
import { isToken, mintToken } from "./token-digest.ts";

const maxFileBytes = 256;
/** A temporary file of this age is a leftover of a process that ended. */
const leftoverAgeMs = 60_000;

/**
 * Reads the primary token, or creates it on the daemon's first start. Two daemons that start at once agree on one token.
 * @param selfUid the daemon's own uid: only it (or root) may own the file
 * @throws SvcError `failed_precondition` if the file is a link, has too wide a mode, belongs to another user, or is not a token
 */
export async function openTokenFile(file: string, selfUid: number): Promise<string> {
  await makeDirectory(dirname(file), 0o755);
  return (await readTokenFile(file, selfUid)) ?? (await createTokenFile(file, selfUid));
}

/** `undefined` if there is no file. */
async function readTokenFile(file: string, selfUid: number): Promise<string | undefined> {
  // NONBLOCK: a planted FIFO must not hang the start.
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  await using handle = await open(file, flags).catch((error: unknown) => {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return undefined;
    if (code === "ELOOP") throw refused(file, "is a symbolic link");
    throw error;
  });
  if (handle === undefined) return undefined;
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
}

/** A new token in a temporary file that is complete and on disk, ready to replace the token file. */
export interface StagedToken {
  readonly token: string;
  /** Replaces the token file. A planted link is replaced, not followed. */
  replace(): Promise<void>;
  /** Removes the temporary file. */
  discard(): Promise<void>;
}

/** @throws SvcError `resource_exhausted` on a full disk, `failed_precondition` when the directory cannot be written */
export async function stageTokenFile(file: string): Promise<StagedToken> {
  try {
    const { token, temporary } = await writeTemporary(file);
    return {
      token,
      replace: () => rename(temporary, file),
      discard: () => unlink(temporary).catch(() => undefined),
    };
  } catch (error) {
    throw writeFailure(error);
  }
}

/** Writes the last {@link StagedToken.replace} to disk. */
export async function syncTokenFile(file: string): Promise<void> {
  await syncDirectory(dirname(file));
}

/** Removes temporary files of killed processes: tokens that never became valid. */
export async function removeStagedTokens(file: string, nowMs: number): Promise<void> {
  const prefix = `${basename(file)}.`;
  for (const name of await readdir(dirname(file))) {
    if (!name.startsWith(prefix) || !/^[0-9a-f]{12}\.new$/.test(name.slice(prefix.length))) continue;
    const path = join(dirname(file), name);
    const stats = await lstat(path).catch(() => undefined);
    if (stats !== undefined && nowMs - stats.mtimeMs > leftoverAgeMs)
      await unlink(path).catch(() => undefined);
  }
}

/** Links a complete file into place without replacing an existing file. */
async function createTokenFile(file: string, selfUid: number): Promise<string> {
  const { token, temporary } = await writeTemporary(file);
  try {
    await link(temporary, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    const existing = await readTokenFile(file, selfUid);
    if (existing === undefined) throw error;
    return existing;
  } finally {
    await unlink(temporary);
  }
  await syncDirectory(dirname(file));
  return token;
}

/** Creates a file that only its owner can read, whatever the umask, and never through a link. */
async function writeTemporary(file: string): Promise<{ token: string; temporary: string }> {
  const token = mintToken("primary");
  const temporary = `${file}.${randomBytes(6).toString("hex")}.new`;
  await using handle = await open(
    temporary,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o600,
  );
  try {
    await handle.writeFile(`${token}\n`);
    await handle.sync();
  } catch (error) {
    await unlink(temporary);
    throw error;
  }
  return { token, temporary };
}

async function syncDirectory(directory: string): Promise<void> {
  await using handle = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  await handle.sync();
}

function writeFailure(error: unknown): SvcError {
  const { code = "" } = error as NodeJS.ErrnoException;
  if (code === "ENOSPC" || code === "EDQUOT") {
    return new SvcError("disk_full", "the disk is full: free some space and try again", {
      cause: error,
    });
  }
  return new SvcError(
    "not_possible",
    `the token file cannot be replaced (${code}): make its directory writable for the daemon`,
    { cause: error },
  );
}

function refused(file: string, problem: string): SvcError {
  return new SvcError(
    "not_possible",
    `the token file ${file} ${problem}; remove it, and the daemon makes a new one at its next start`,
  );
}
