/**
 * Console sessions: shells, attached terminals and live logs of apps, independent of the transport that carries them.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ConsoleInput, ConsoleOutputSchema } from "../../gen/svc/v1/app_pb.ts";
import type { AppCaller } from "../apps/records/app-registry.ts";
import type { AppPaths } from "../apps/records/app-paths.ts";
import type { AppLogs } from "../apps/lifecycle/app-logs.ts";
import type { AppFinder } from "../apps/records/app-finder.ts";
import type { AppRuntimes } from "../apps/records/app-runtimes.ts";
import { SvcError, invalidField } from "../errors.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import { Tally } from "../lib/tally.ts";
import type { Terminal, TerminalSize } from "../lib/terminal.ts";
import { Ticker } from "../lib/clock.ts";
import { unlessAborted } from "../lib/abort.ts";
import { OutputWindow } from "./output-window.ts";
import { Recording } from "./recording.ts";

export type ConsoleOutputInit = MessageInitShape<typeof ConsoleOutputSchema>;

/** Per app. */
const maxSessionsOfApp = 32;
const logTail = 1_000;
const maxWindow = 1_000;
/**
 * How often a session checks that its app is still installed, so that it ends within a second of the app's removal.
 */
const checkIntervalMs = 500;
/**
 * How long to wait after the exit for the client to close its side: some clients treat an earlier close as an error
 * and lose the exit code.
 */
const clientCloseMs = 1_000;
/** Milliseconds between repeated ends of input. */
const repeatEndMs = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000];

interface Session {
  readonly first: ConsoleInput;
  readonly inputs: AsyncIterator<ConsoleInput>;
  readonly window: OutputWindow;
  readonly caller: AppCaller;
  /** Aborts when the client disconnects or loses access. */
  readonly signal: AbortSignal;
}

export interface ConsolesOptions {
  readonly finder: Pick<AppFinder, "find" | "has">;
  readonly logs: Pick<AppLogs, "follow">;
  readonly runtimes: Pick<AppRuntimes, "openTerminal">;
  readonly userHelpers: UserHelpers;
  readonly paths: Pick<AppPaths, "appDir">;
  /** Concurrent sessions of a user; root's are not counted. */
  readonly maxPerUser: number;
}

export class Consoles {
  readonly #options: ConsolesOptions;
  readonly #ofApps = new Tally<string>();
  readonly #ofUsers = new Tally<number>();

  constructor(options: ConsolesOptions) {
    this.#options = options;
  }

  /**
   * Opens the session that the first message names, and streams its output until it ends.
   * @throws SvcError `not_found`; `too_many` beyond 32 sessions of an app or the user's limit; and as {@link
   *   AppRuntimes.openTerminal}
   */
  async *attach(
    messages: AsyncIterable<ConsoleInput>,
    caller: AppCaller,
    signal: AbortSignal,
  ): AsyncGenerator<ConsoleOutputInit, void> {
    const { finder } = this.#options;
    const inputs = messages[Symbol.asyncIterator]();
    const first = firstOf(await inputs.next());
    const { appId } = first;
    await finder.find(appId, caller);
    using _place = this.#openSlot(appId, caller);
    const removed = new AbortController();
    await using _watch = new Ticker(checkIntervalMs, () => {
      if (!finder.has(appId, caller)) removed.abort(appRemoved(appId));
      return Promise.resolve();
    });
    const either = AbortSignal.any([signal, removed.signal]);
    const session = { first, inputs, window: new OutputWindow(), caller, signal: either };
    if (first.session === "logs") yield* this.#showLog(session);
    else yield* this.#showTerminal(session, first.session);
  }

  async *#showLog({
    first,
    inputs,
    window,
    caller,
    signal,
  }: Session): AsyncGenerator<ConsoleOutputInit, void> {
    yield { output: { case: "opened", value: { interactive: false } } };
    const taking = take(inputs, ({ ack }) => window.acknowledge(Number(ack)));
    const { finder, logs } = this.#options;
    const app = await finder.find(first.appId, caller);
    for await (const { lines, missedBytes } of logs.follow(app, { tail: logTail }, signal)) {
      if (missedBytes > 0) yield { output: { case: "gap", value: { bytes: BigInt(missedBytes) } } };
      if (lines.length === 0) continue;
      const data = Buffer.from(lines.map(({ text }) => `${text}\r\n`).join(""));
      yield { output: { case: "data", value: data } };
      await unlessAborted(window.countSent(data.length), signal);
    }
    yield { output: { case: "exit", value: { code: 0 } } };
    await waitForClose(taking, signal);
  }

  async *#showTerminal(
    { first, inputs, window, caller, signal: disconnected }: Session,
    kind: "attach" | "shell",
  ): AsyncGenerator<ConsoleOutputInit, void> {
    const { appId, command, service, resize, withoutTerminal } = first;
    if (withoutTerminal && kind !== "shell")
      throw invalidField("without_terminal", "is valid only for shells: an attached app has a terminal");
    const size = resize !== undefined && isSize(resize) ? resize : undefined;
    const request = { session: kind, command, service, withoutTerminal, ...(size && { size }) };
    const { finder, runtimes } = this.#options;
    await using terminal = await runtimes.openTerminal(await finder.find(appId, caller), request);
    await using recording = await this.#record(first, size, caller);
    const signal = recording === undefined ? disconnected : AbortSignal.any([disconnected, recording.broken]);
    // The app's owner may have stopped the process that writes the recording.
    const written = (work: Promise<void> = Promise.resolve()): Promise<void> => unlessAborted(work, signal);
    yield { output: { case: "opened", value: { interactive: true, recording: recording?.path ?? "" } } };
    const over = new AbortController();
    using _over = { [Symbol.dispose]: () => over.abort() };
    const typing = type(inputs, terminal, window, recording, over.signal);
    const output = terminal.output[Symbol.asyncIterator]();
    for (;;) {
      const next = await unlessAborted(output.next(), signal);
      if (next.done === true) break;
      if ("missedBytes" in next.value) {
        await written(recording?.mark(`${next.value.missedBytes} bytes were dropped`));
        yield { output: { case: "gap", value: { bytes: BigInt(next.value.missedBytes) } } };
        continue;
      }
      const { data, isError = false } = next.value;
      await written(recording?.show(data, isError));
      yield { output: { case: isError ? "errorData" : "data", value: data } };
      await unlessAborted(window.countSent(data.length), signal);
    }
    const code = await unlessAborted(terminal.exitCode, signal);
    await written(recording?.mark(`exit code ${code}`));
    yield { output: { case: "exit", value: { code } } };
    await waitForClose(typing, signal);
  }

  async #record(
    { appId, session }: ConsoleInput,
    size: TerminalSize | undefined,
    caller: AppCaller,
  ): Promise<Recording | undefined> {
    const { finder, userHelpers, paths } = this.#options;
    const { runUid, manifest } = await finder.find(appId, caller);
    if (manifest.console?.record !== true) return undefined;
    const appDir = paths.appDir(appId);
    return Recording.open(userHelpers, { appId, uid: runUid, appDir, session, ...(size && { size }) });
  }

  #openSlot(appId: string, { uid, root }: AppCaller): Disposable {
    if (this.#ofApps.of(appId) >= maxSessionsOfApp) {
      throw tooMany(`app "${appId}" has ${maxSessionsOfApp} console sessions`);
    }
    const { maxPerUser } = this.#options;
    if (!root && this.#ofUsers.of(uid) >= maxPerUser) {
      throw tooMany(`uid ${uid} has ${maxPerUser} console sessions (\`[limits] max_consoles_per_user\`)`);
    }
    const count = (by: 1 | -1): void => {
      this.#ofApps.change(appId, by);
      this.#ofUsers.change(uid, by);
    };
    count(1);
    return { [Symbol.dispose]: () => count(-1) };
  }
}

function tooMany(what: string): SvcError {
  return new SvcError("too_many", `${what}: end one first`);
}

/** Waits for the client to close its side, at most {@link clientCloseMs}. */
async function waitForClose(ending: Promise<unknown>, signal: AbortSignal): Promise<void> {
  const moment = AbortSignal.any([signal, AbortSignal.timeout(clientCloseMs)]);
  await unlessAborted(ending, moment).catch(() => undefined);
}

/** Forwards the client's input to the terminal. */
async function type(
  inputs: AsyncIterator<ConsoleInput>,
  terminal: Terminal,
  window: OutputWindow,
  recording: Recording | undefined,
  over: AbortSignal,
): Promise<void> {
  let isEnding = false;
  // One at a time: each waits for as long as the program reads nothing.
  const end = (): void => {
    if (isEnding) return;
    isEnding = true;
    void endInput(terminal, over).then(() => (isEnding = false));
  };
  const isComplete = await take(inputs, async ({ data, resize, ack, endOfInput }) => {
    if (ack > 0) window.acknowledge(Number(ack));
    if (resize !== undefined && isSize(resize)) {
      terminal.resize(resize);
      await recording?.resize(resize);
    }
    if (data.length > 0) await window.openFor(terminal.write(data));
    if (endOfInput) end();
  });
  if (isComplete) end();
}

/**
 * A terminal has no end of input: ^D ends one read of it. A program that reads later misses it, and so does one that
 * changes the terminal's mode first, as interpreters do at their start. After an unfinished line, ^D only ends the
 * line. So it is repeated.
 */
async function endInput(terminal: Terminal, over: AbortSignal): Promise<void> {
  try {
    await terminal.endInput();
    for (const ms of repeatEndMs) {
      await sleep(ms, undefined, { signal: over });
      await terminal.endInput();
    }
  } catch {
    // The program has ended.
  }
}

/** Handles each message of the client. @returns whether the client ended its input, instead of disconnecting */
async function take(
  inputs: AsyncIterator<ConsoleInput>,
  each: (input: ConsoleInput) => Promise<void> | void,
): Promise<boolean> {
  try {
    for (;;) {
      const next = await inputs.next();
      if (next.done === true) return true;
      await each(next.value);
    }
  } catch {
    // The output side reports that the client disconnected.
    return false;
  }
}

function firstOf(
  next: IteratorResult<ConsoleInput>,
): ConsoleInput & { session: "logs" | "attach" | "shell" } {
  const first = next.done === true ? undefined : next.value;
  if (first === undefined || first.appId === "")
    throw invalidField("app_id", "the first message must name an app");
  const { session } = first;
  if (session !== "logs" && session !== "attach" && session !== "shell") {
    throw invalidField("session", "the first message must name the session to open");
  }
  return { ...first, session };
}

function isSize({ columns, rows }: TerminalSize): boolean {
  return [columns, rows].every((count) => count >= 1 && count <= maxWindow);
}

function appRemoved(id: string): SvcError {
  return new SvcError("app_not_running", `app "${id}" was removed`);
}
