/**
 * Recordings of console sessions as asciicast v2 (docs.asciinema.org/manual/asciicast/v2), files of the app's owner.
 */
import { randomBytes } from "node:crypto";
import { StringDecoder } from "node:string_decoder";
import { SvcError } from "../errors.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import { defaultTerminalSize, type Terminal, type TerminalSize } from "../lib/terminal.ts";
import { unlessAborted } from "../lib/abort.ts";
import { appTree } from "../runtimes/app-tree.ts";

/** Per recording, its last mark included. */
const maxBytes = 8 * 2 ** 20;
const markBytes = 256;
/** Recordings per app; the oldest are deleted. */
const maxRecordings = 40;
const openMs = 10_000;
/** Relative to the app's directory. */
const directory = `${appTree.logs}/console`;

/** Runs as the owner, because only the owner works in the app's directory. */
const writer = `umask 077
mkdir -p console && cd console || exit 1
ls -1 | grep '\\.cast$' | sort -r | tail -n +"$2" | while IFS= read -r old; do rm -f -- "./$old"; done
set -C
: > "$1" || exit 1
echo open
exec cat >> "$1"`;

export interface RecordedSession {
  readonly appId: string;
  /** Owner of the app's directory; the writer runs as this user. */
  readonly uid: number;
  /** The app's directory, absolute. */
  readonly appDir: string;
  readonly session: string;
  readonly size?: TerminalSize;
}

export class Recording implements AsyncDisposable {
  /** Relative to the app's directory. */
  readonly path: string;
  /**
   * Aborts with an SvcError when the writer exits, because of a full disk or because the owner stopped it: the
   * session must not continue unrecorded.
   */
  readonly broken: AbortSignal;
  readonly #file: Terminal;
  readonly #startedMs = performance.now();
  readonly #shown = { o: new StringDecoder("utf8"), e: new StringDecoder("utf8") };
  #leftBytes = maxBytes - markBytes;

  private constructor(path: string, file: Terminal, why: (cause: unknown) => SvcError) {
    this.path = path;
    this.#file = file;
    const broken = new AbortController();
    this.broken = broken.signal;
    const end = (cause: unknown): void => broken.abort(why(cause));
    file.exitCode.then((code) => end(new Error(`the writer exited with code ${code}`)), end);
  }

  /**
   * @throws SvcError `unavailable` when the file cannot be written: a session that must be recorded does not start
   *   without
   */
  static async open(userHelpers: UserHelpers, recorded: RecordedSession): Promise<Recording> {
    const { appId, uid, appDir, session, size = defaultTerminalSize } = recorded;
    const startedAtMs = Date.now();
    const time = new Date(startedAtMs).toISOString().replaceAll(/[-:]|\.\d+/g, "");
    const name = `${time}-${session}-${randomBytes(4).toString("hex")}.cast`;
    const argv = ["/bin/sh", "-c", writer, "sh", name, String(maxRecordings)];
    const why = (cause: unknown): SvcError => {
      const message = `app "${appId}" has its consoles recorded, and nothing can be written to its ${directory}`;
      return new SvcError("unavailable", message, { cause });
    };
    const file = await userHelpers.openTerminal(uid, { argv, cwd: `${appDir}/${appTree.logs}`, env: {} });
    const pieces = file.output[Symbol.asyncIterator]();
    try {
      const first = await unlessAborted(pieces.next(), AbortSignal.timeout(openMs));
      if (first.done === true || !("data" in first.value) || first.value.isError === true)
        throw new Error("the writer did not start");
    } catch (cause) {
      await file[Symbol.asyncDispose]();
      throw why(cause);
    }
    // The writer's exit code arrives only after all its output was read, such as an error about a full disk.
    void readToEnd(pieces).catch(() => undefined);
    const recording = new Recording(`${directory}/${name}`, file, why);
    await recording.#write({
      version: 2,
      width: size.columns,
      height: size.rows,
      timestamp: Math.floor(startedAtMs / 1_000),
      title: `${session} in ${appId}`,
    });
    return recording;
  }

  /** Resolves when the output is written. */
  async show(bytes: Uint8Array, isError: boolean): Promise<void> {
    const text = this.#shown[isError ? "e" : "o"].write(bytes);
    if (text !== "") await this.#event("o", text);
  }

  async resize({ columns, rows }: TerminalSize): Promise<void> {
    await this.#event("r", `${columns}x${rows}`);
  }

  /** Adds a note about the session itself. */
  async mark(text: string): Promise<void> {
    await this.#event("m", text);
  }

  async #event(code: "o" | "r" | "m", data: string): Promise<void> {
    await this.#write(this.#eventNow(code, data));
  }

  #eventNow(code: "o" | "r" | "m", data: string): object {
    const seconds = (performance.now() - this.#startedMs) / 1_000;
    return [Number(seconds.toFixed(6)), code, data];
  }

  async #write(line: object): Promise<void> {
    if (this.#leftBytes < 0) return;
    const bytes = bytesOf(line);
    this.#leftBytes -= bytes.length;
    const end = `the recording ends here: it reached its limit of ${maxBytes} bytes`;
    await this.#file.write(this.#leftBytes < 0 ? bytesOf(this.#eventNow("m", end)) : bytes);
  }

  /** Resolves when everything is written to the file. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.endInput();
    await unlessAborted(this.#file.exitCode, AbortSignal.timeout(openMs)).catch(() => undefined);
    await this.#file[Symbol.asyncDispose]();
  }
}

function bytesOf(line: object): Buffer {
  return Buffer.from(`${JSON.stringify(line)}\n`);
}

async function readToEnd(iterator: AsyncIterator<unknown>): Promise<void> {
  while ((await iterator.next()).done !== true);
}
