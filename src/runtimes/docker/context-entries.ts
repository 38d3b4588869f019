/** Lists the entries of a build context, as its owner. */
import { Writable } from "node:stream";
import { SvcError } from "../../errors.ts";
import { slicePauses } from "../../lib/slice-pauses.ts";
import type { EntryChoice } from "../../packages/build-context/chosen-entries.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { failedWithoutOutput } from "./build-output.ts";
import type { SyncEntry } from "./buildkit/sync-packets.ts";

const maxEntries = 100_000;
const maxNameBytes = 32 * 1024 * 1024;
/** Bytes of each entry besides its name. */
const maxStatBytes = 64;

const types: Readonly<Record<string, SyncEntry["type"]>> = { f: "file", d: "directory", l: "symlink" };
const fields = String.raw`%P\0%y\0%m\0%s\0%T@\0%l\0`;
const fieldCount = 6;

/** Resolves to the numbers of the chosen entries. */
export type ChooseEntries = (choice: EntryChoice) => Promise<Uint32Array>;

/**
 * The files, directories and symlinks, each directory before its contents; other kinds are left out.
 * @throws SvcError `too_many`, `build_failed`
 */
export async function listEntries(
  userHelper: Pick<UserHelper, "runCommand">,
  cwd: string,
  limits: { timeoutMs: number; signal?: AbortSignal },
): Promise<SyncEntry[]> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  let ends = 0;
  const list = new Writable({
    write(chunk: Buffer, _encoding, done) {
      sizeBytes += chunk.length;
      for (const byte of chunk) if (byte === 0) ends += 1;
      if (ends > maxEntries * fieldCount) done(tooLarge(`${maxEntries} files`));
      else if (sizeBytes > maxNameBytes + maxEntries * maxStatBytes) done(tooManyNames());
      else {
        chunks.push(chunk);
        done();
      }
    },
  });
  const argv = ["find", ".", "-mindepth", "1", "-printf", fields];
  const { exitCode, stderr } = await userHelper.runCommand(argv, { ...limits, cwd, stdout: list });
  if (exitCode !== 0) throw unreadableContext(stderr.trim().slice(-500));
  const entries = await readEntries(Buffer.concat(chunks).toString("latin1"));
  if (entries.reduce((sum, { path }) => sum + path.length + 1, 0) > maxNameBytes) throw tooManyNames();
  return entries;
}

/** In slices: parsing 100,000 entries at once would block the event loop. */
async function readEntries(text: string): Promise<SyncEntry[]> {
  const entries: SyncEntry[] = [];
  let at = 0;
  const next = (): string => {
    const start = at;
    at = text.indexOf("\0", start) + 1;
    return text.slice(start, at - 1);
  };
  const pause = slicePauses();
  while (at < text.length) {
    await pause();
    const [path, letter, mode, size, modified, target] = [next(), next(), next(), next(), next(), next()];
    const type = types[letter];
    if (type === undefined) continue;
    const [seconds = "0", fraction = ""] = modified.split(".");
    const modifiedNs = BigInt(seconds) * 1_000_000_000n + BigInt(fraction.padEnd(9, "0").slice(0, 9));
    const sizeBytes = type === "file" ? Number(size) : 0;
    entries.push({ path, type, mode: Number.parseInt(mode, 8), sizeBytes, modifiedNs, target });
  }
  return entries;
}

/** The entries that an ignore file does not exclude. @param ignoreText one character per byte */
export async function chosenEntries(
  entries: readonly SyncEntry[],
  choose: ChooseEntries,
  choice: Omit<EntryChoice, "paths">,
): Promise<SyncEntry[]> {
  const paths = entries.map(({ path, type }) => (type === "directory" ? `${path}/\0` : `${path}\0`)).join("");
  const numbers = await choose({ ...choice, paths });
  return [...numbers].flatMap((number) => entries[number] ?? []);
}

export function tooLarge(bound: string): SvcError {
  return new SvcError(
    "too_many",
    `the build context has more than ${bound}; exclude what the build does not need in .dockerignore`,
  );
}

export function unreadableContext(why: string): SvcError {
  return failedWithoutOutput(`the build context cannot be read: ${why}`);
}

function tooManyNames(): SvcError {
  return tooLarge(`${maxNameBytes} bytes of file names`);
}
