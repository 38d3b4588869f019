/** The build context, read by its owner: the engine receives an archive and never reads the directory. */
import { randomUUID } from "node:crypto";
import { posix } from "node:path";
import { PassThrough, type Readable } from "node:stream";
import type { RequestOptions } from "../../run-as/user-helper-types.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { limitBytes } from "../../lib/byte-streams.ts";
import { failedWithoutOutput } from "./build-output.ts";
import { chosenEntries, listEntries, tooLarge, type ChooseEntries } from "./context-entries.ts";
import { archiveFiles } from "./file-archive.ts";

export interface BuildContextOptions {
  userHelper: UserHelper;
  /** The app's directory, absolute. */
  root: string;
  /** The context, relative to `root`. */
  path: string;
  /** The text of the Dockerfile to build. */
  dockerfileText: string;
  chooseEntries: ChooseEntries;
  timeoutMs: number;
  /** Maximum size of the archive. Default: 4 GiB. */
  maxBytes?: number;
  signal?: AbortSignal | undefined;
}

const maxIgnoreBytes = 256 * 1024;
const checkedPrefix = ".dockerfile-";
/** Names in one piece of the list. */
const namesPerPiece = 500;

/** Maximum size of a build context. */
export const maxContextBytes = 4 * 2 ** 30;

export interface BuildContext {
  readonly archive: Readable;
  /** Name of the checked Dockerfile in the archive. */
  readonly dockerfile: string;
}

/** @throws SvcError `build_failed` unless the context is a directory */
export async function requireContext(
  userHelper: Pick<UserHelper, "stat">,
  root: string,
  path: string,
  limits: RequestOptions,
): Promise<void> {
  const entry = await userHelper.stat(root, path, limits);
  if (entry?.type !== "directory")
    throw failedWithoutOutput(`the build context "${path}" is not a directory`);
}

/**
 * Creates an archive of the context without the files that `.dockerignore` excludes. Symlinks are archived as
 * symlinks. The archive contains the checked Dockerfile under a name that its owner cannot guess, so that exactly the
 * checked text is built. No image contains that file.
 * @throws SvcError `failed_precondition` if the context, or a parent of it, is a symlink; `resource_exhausted` if it
 *   is too large; `build_failed` if the owner cannot read all of it: the stream is destroyed with that error
 */
export async function openBuildContext(options: BuildContextOptions): Promise<BuildContext> {
  const { userHelper, root, path, dockerfileText, chooseEntries } = options;
  const { timeoutMs, maxBytes = maxContextBytes, signal } = options;
  const limits = { timeoutMs, ...(signal && { signal }) };
  await requireContext(userHelper, root, path, limits);
  const bytes = Buffer.from(dockerfileText);
  const checkedName = `${checkedPrefix}${randomUUID()}`;
  const cwd = posix.join(root, path);
  const entries = await listEntries(userHelper, cwd, limits);
  const ignoreText = await readIgnoreFile(userHelper, root, posix.join(path, ".dockerignore"), limits);
  // A file that the engine itself reads is always sent. It removes what this file excludes after reading it.
  const ignoreFile = entries.some((entry) => entry.path === ".dockerignore")
    ? `${ignoreText}\n`
    : ".dockerignore\n";
  const chosen = await chosenEntries(entries, chooseEntries, { ignoreText, withDirectories: false });
  const names = chosen.map((entry) => entry.path).filter((name) => name !== ".dockerignore");
  const archive = new PassThrough();
  archive.write(tarEntry(checkedName, bytes));
  archive.write(tarEntry(".dockerignore", Buffer.from(`${ignoreFile}${checkedPrefix}*\n`, "latin1")));
  archiveFiles(archive, {
    ...{ userHelper, cwd, ...limits },
    names: nameList(names),
    tarOptions: ["--format=pax", "--numeric-owner", "--owner=0", "--group=0"],
  });
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

/** Names are bytes in any encoding. */
function* nameList(names: readonly string[]): Generator<Buffer> {
  for (let at = 0; at < names.length; at += namesPerPiece) {
    const text = names
      .slice(at, at + namesPerPiece)
      .map((name) => `./${name}\0`)
      .join("");
    yield Buffer.from(text, "latin1");
  }
}
