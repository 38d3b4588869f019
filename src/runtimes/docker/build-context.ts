/** The build context, read by its owner: the engine receives an archive and never reads the directory. */
import { isUtf8 } from "node:buffer";
import { randomUUID } from "node:crypto";
import { posix } from "node:path";
import { PassThrough, Readable, Writable } from "node:stream";
import { setImmediate as breathe } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { limitBytes } from "../../lib/byte-streams.ts";
import { readIgnorePatterns, type PatternMatches } from "./ignore-patterns.ts";

export interface BuildContextOptions {
  userHelper: UserHelper;
  /** The app's directory, absolute. */
  root: string;
  /** The context, relative to `root`. */
  path: string;
  /** Path relative to the context. */
  dockerfile: string;
  /** Checks the Dockerfile's text; resolves to the text that is built instead. */
  check: (text: string) => Promise<string>;
  timeoutMs: number;
  /** Maximum size of the archive. Default: 4 GiB. */
  maxBytes?: number;
  signal?: AbortSignal | undefined;
}

const maxEntries = 100_000;
const maxListBytes = 32 * 1024 * 1024;
const maxIgnoreBytes = 256 * 1024;
const maxDockerfileBytes = 256 * 1024;
const checkedPrefix = ".dockerfile-";
/** Names to match before yielding to the event loop. */
const namesPerTurn = 500;

export interface BuildContext {
  readonly archive: Readable;
  /** Name of the checked Dockerfile in the archive. */
  readonly dockerfile: string;
}

/**
 * Creates an archive of the context without the files that `.dockerignore` excludes. Symlinks are archived as
 * symlinks. The archive contains the checked Dockerfile under a name that its owner cannot guess, so that exactly the
 * checked text is built. No image contains that file.
 * @throws SvcError `failed_precondition` if the context, or a parent of it, is a symlink; `resource_exhausted` if it
 *   is too large; `build_failed` if the owner cannot read all of it: the stream is destroyed with that error
 */
export async function openBuildContext(options: BuildContextOptions): Promise<BuildContext> {
  const { userHelper, root, path, dockerfile, timeoutMs, maxBytes = 4 * 2 ** 30, signal } = options;
  const limits = { timeoutMs, ...(signal && { signal }) };
  const entry = await userHelper.stat(root, path, limits);
  if (entry?.type !== "directory") throw contextFailed(`the build context "${path}" is not a directory`);
  if ((await userHelper.stat(root, posix.join(path, dockerfile), limits))?.type !== "file") {
    throw contextFailed(`the build context "${path}" has no file "${dockerfile}"`);
  }
  const text = await userHelper.readFile(root, posix.join(path, dockerfile), {
    ...limits,
    maxBytes: maxDockerfileBytes,
  });
  // A text that cannot be checked is rejected, not converted.
  if (!isUtf8(text)) throw contextFailed(`the file "${dockerfile}" is not UTF-8`);
  const bytes = Buffer.from(await options.check(text.toString()));
  const checkedName = `${checkedPrefix}${randomUUID()}`;
  const cwd = posix.join(root, path);
  const names = await listNames(userHelper, cwd, limits);
  const ignoreText = await readIgnoreFile(userHelper, root, posix.join(path, ".dockerignore"), limits);
  // Files that the engine itself reads are always sent. It removes what this file excludes after reading it.
  const ignoreFile = names.includes(".dockerignore") ? `${ignoreText}\n` : ".dockerignore\n";
  const chosen = await chooseNames(names, ignoreText, new Set([posix.normalize(dockerfile)]));
  const archive = new PassThrough();
  archive.write(tarEntry(checkedName, bytes));
  archive.write(tarEntry(".dockerignore", Buffer.from(`${ignoreFile}${checkedPrefix}*\n`, "latin1")));
  const argv = ["tar", "--create", "--file=-", "--format=pax", "--numeric-owner", "--owner=0", "--group=0"];
  const work = userHelper.runCommand(
    [...argv, "--no-recursion", "--null", "--verbatim-files-from", "--files-from=-"],
    // Names are bytes in any encoding.
    { ...limits, cwd, stdin: Readable.from(nameList(chosen)), stdout: archive },
  );
  work.then(
    ({ exitCode, stderr }) => {
      if (exitCode === 0) archive.end();
      else archive.destroy(contextFailed(`the build context cannot be read: ${stderr.trim().slice(-500)}`));
    },
    (error: unknown) => archive.destroy(error instanceof Error ? error : new Error(String(error))),
  );
  const bounded = limitBytes(archive, maxBytes, () => tooLarge(`${maxBytes} bytes`));
  return { archive: bounded, dockerfile: checkedName };
}

/** A file entry of a tar archive (POSIX ustar), without the end of the archive. */
function tarEntry(name: string, content: Buffer): Buffer {
  const octal = (value: number, length: number): string => `${value.toString(8).padStart(length - 1, "0")}\0`;
  const header = Buffer.alloc(512);
  header.write(name, 0);
  header.write(octal(0o644, 8) + octal(0, 8) + octal(0, 8) + octal(content.length, 12) + octal(0, 12), 100);
  // The checksum is computed with spaces in its field.
  header.write("        0", 148);
  header.write("ustar\x0000", 257);
  header.write(
    `${octal(
      header.reduce((sum, byte) => sum + byte, 0),
      7,
    )} `,
    148,
  );
  return Buffer.concat([header, content, Buffer.alloc((512 - (content.length % 512)) % 512)]);
}

async function listNames(
  userHelper: UserHelper,
  cwd: string,
  limits: { timeoutMs: number; signal?: AbortSignal },
): Promise<string[]> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  const list = new Writable({
    write(chunk: Buffer, _encoding, done) {
      sizeBytes += chunk.length;
      if (sizeBytes > maxListBytes) done(tooLarge(`${maxListBytes} bytes of file names`));
      else {
        chunks.push(chunk);
        done();
      }
    },
  });
  const argv = ["find", ".", "-mindepth", "1", "-printf", String.raw`%P\0`];
  const { exitCode, stderr } = await userHelper.runCommand(argv, { ...limits, cwd, stdout: list });
  if (exitCode !== 0) {
    throw contextFailed(`the build context cannot be read: ${stderr.trim().slice(-500)}`);
  }
  const names = Buffer.concat(chunks).toString("latin1").split("\0").slice(0, -1);
  if (names.length > maxEntries) throw tooLarge(`${maxEntries} files`);
  return names;
}

async function readIgnoreFile(
  userHelper: UserHelper,
  root: string,
  path: string,
  limits: { timeoutMs: number; signal?: AbortSignal },
): Promise<string> {
  if ((await userHelper.stat(root, path, limits))?.type !== "file") return "";
  const bytes = await userHelper.readFile(root, path, { ...limits, maxBytes: maxIgnoreBytes });
  return bytes.toString("latin1");
}

async function chooseNames(
  names: readonly string[],
  ignoreText: string,
  always: ReadonlySet<string>,
): Promise<string[]> {
  const patterns = readIgnorePatterns(ignoreText);
  const directories = new Map<string, PatternMatches>();
  const chosen: string[] = [];
  for (const [index, name] of names.entries()) {
    if (index % namesPerTurn === 0) await breathe();
    // Directories come before their contents.
    const result = patterns.match(name, directories.get(posix.dirname(name)));
    directories.set(name, result);
    const isSent = name === ".dockerignore";
    if (!isSent && (!result.isIgnored || always.has(name))) chosen.push(name);
  }
  return chosen;
}

function* nameList(names: readonly string[]): Generator<Buffer> {
  for (let at = 0; at < names.length; at += namesPerTurn) {
    const text = names
      .slice(at, at + namesPerTurn)
      .map((name) => `./${name}\0`)
      .join("");
    yield Buffer.from(text, "latin1");
  }
}

function tooLarge(bound: string): SvcError {
  return new SvcError(
    "too_many",
    `the build context has more than ${bound}; exclude what the build does not need in .dockerignore`,
  );
}

function contextFailed(message: string): SvcError {
  return new SvcError("build_failed", message, { payload: { signal: "", lastLines: [] } });
}
