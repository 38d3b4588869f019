/** Sessions at the terminals of apps (S 2.9, 5.4; decisions 28): whatever carries them, it is this. */
import { setTimeout as sleep } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ConsoleInput, ConsoleOutputSchema } from "../../gen/svc/v1/app_pb.ts";
import type { AppCaller } from "../apps/app-registry.ts";
import type { AppPaths } from "../apps/app-paths.ts";
import type { Apps } from "../apps/apps.ts";
import { SvcError, invalidField } from "../errors.ts";
import type { Identities } from "../identity/identities.ts";
import { Tally } from "../lib/tally.ts";
import type { Terminal, TerminalSize } from "../lib/terminal.ts";
import { Ticker } from "../lib/ticker.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";
import { OutputWindow } from "./output-window.ts";
import { Recording } from "./recording.ts";

export type ConsoleOutputInit = MessageInitShape<typeof ConsoleOutputSchema>;

/** Of one app. */
const maxSessionsOfApp = 32;
const logTail = 1_000;
const maxWindow = 1_000;
/** Within a second of its app's removal a session has ended. */
const lookIntervalMs = 500;
/** Behind the exit, for the client's own end: some take what is closed before that for broken, and lose the exit. */
const farewellMs = 1_000;
/** Milliseconds from one end of what is typed to the next. */
const endAgainMs = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000];

interface Session {
  readonly first: ConsoleInput;
  readonly inputs: AsyncIterator<ConsoleInput>;
  readonly window: OutputWindow;
  readonly caller: AppCaller;
  /** Aborts when the client goes, or may not be here any more. */
  readonly signal: AbortSignal;
}

export interface ConsolesOptions {
  readonly apps: Apps;
  readonly identities: Identities;
  readonly paths: Pick<AppPaths, "appDir">;
  /** Sessions of a user at a time; root's are not counted. */
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
   * Opens what the first message says, and shows it until its end.
   * @throws SvcError `not_found`, `too_many` beyond 32 sessions of an app, or those that a user may have, and as {@link Apps.openTerminal}
   */
  async *attach(
    messages: AsyncIterable<ConsoleInput>,
    caller: AppCaller,
    signal: AbortSignal,
  ): AsyncGenerator<ConsoleOutputInit, void> {
    const { apps } = this.#options;
    const inputs = messages[Symbol.asyncIterator]();
    const first = firstOf(await inputs.next());
    const { appId } = first;
    await apps.record(appId, caller);
    using _place = this.#takePlace(appId, caller);
    const removed = new AbortController();
    await using _watch = new Ticker(lookIntervalMs, () => {
      if (!apps.has(appId, caller)) removed.abort(appRemoved(appId));
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
    for await (const { lines, missedBytes } of this.#options.apps.followLogs(
      first.appId,
      { tail: logTail },
      caller,
      signal,
    )) {
      if (missedBytes > 0) yield { output: { case: "gap", value: { bytes: BigInt(missedBytes) } } };
      if (lines.length === 0) continue;
      const data = Buffer.from(lines.map(({ text }) => `${text}\r\n`).join(""));
      yield { output: { case: "data", value: data } };
      await unlessAborted(window.sent(data.length), signal);
    }
    yield { output: { case: "exit", value: { code: 0 } } };
    await farewell(taking, signal);
  }

  async *#showTerminal(
    { first, inputs, window, caller, signal: left }: Session,
    kind: "attach" | "shell",
  ): AsyncGenerator<ConsoleOutputInit, void> {
    const { appId, command, service, resize, withoutTerminal } = first;
    if (withoutTerminal && kind !== "shell")
      throw invalidField("without_terminal", "is for shells: what is attached to has a terminal");
    const size = resize !== undefined && isSize(resize) ? resize : undefined;
    const request = { session: kind, command, service, withoutTerminal, ...(size && { size }) };
    await using terminal = await this.#options.apps.openTerminal(appId, request, caller);
    await using recording = await this.#record(first, size, caller);
    const signal = recording === undefined ? left : AbortSignal.any([left, recording.broken]);
    // Its owner may have stopped what writes it.
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
        await written(recording?.mark(`${next.value.missedBytes} bytes were left out`));
        yield { output: { case: "gap", value: { bytes: BigInt(next.value.missedBytes) } } };
        continue;
      }
      const { data, isError = false } = next.value;
      await written(recording?.show(data, isError));
      yield { output: { case: isError ? "errorData" : "data", value: data } };
      await unlessAborted(window.sent(data.length), signal);
    }
    const code = await unlessAborted(terminal.exitCode, signal);
    await written(recording?.mark(`exit code ${code}`));
    yield { output: { case: "exit", value: { code } } };
    await farewell(typing, signal);
  }

  async #record(
    { appId, session }: ConsoleInput,
    size: TerminalSize | undefined,
    caller: AppCaller,
  ): Promise<Recording | undefined> {
    const { apps, identities, paths } = this.#options;
    const { runUid, manifest } = await apps.record(appId, caller);
    if (manifest.console?.record !== true) return undefined;
    const appDir = paths.appDir(appId);
    return Recording.open(identities, { appId, uid: runUid, appDir, session, ...(size && { size }) });
  }

  #takePlace(appId: string, { uid, root }: AppCaller): Disposable {
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

/** Waits for the client to end its own side, or a moment. */
async function farewell(ending: Promise<unknown>, signal: AbortSignal): Promise<void> {
  const moment = AbortSignal.any([signal, AbortSignal.timeout(farewellMs)]);
  await unlessAborted(ending, moment).catch(() => undefined);
}

/** Hands on what comes to a terminal. */
async function type(
  inputs: AsyncIterator<ConsoleInput>,
  terminal: Terminal,
  window: OutputWindow,
  recording: Recording | undefined,
  over: AbortSignal,
): Promise<void> {
  const isWhole = await take(inputs, async ({ data, resize, ack, endOfInput }) => {
    if (ack > 0) window.acknowledge(Number(ack));
    if (resize !== undefined && isSize(resize)) {
      terminal.resize(resize);
      await recording?.resize(resize);
    }
    if (data.length > 0) await window.openFor(terminal.write(data));
    if (endOfInput) void endInput(terminal, over);
  });
  if (isWhole) void endInput(terminal, over);
}

/**
 * A terminal knows no end of what is typed: ^D ends one read of it. Who reads later has lost it, or who changes the terminal's
 * mode before, as interpreters do when they start; and behind an unfinished line it only ends the line.
 */
async function endInput(terminal: Terminal, over: AbortSignal): Promise<void> {
  try {
    await terminal.endInput();
    for (const ms of endAgainMs) {
      await sleep(ms, undefined, { signal: over });
      await terminal.endInput();
    }
  } catch {
    // The program has ended.
  }
}

/** Takes each message that comes. @returns whether the client has said that no more come, instead of going away */
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
    // That the client is gone is heard where its output goes.
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
    throw invalidField("session", "the first message must say what to open");
  }
  return { ...first, session };
}

function isSize({ columns, rows }: TerminalSize): boolean {
  return [columns, rows].every((count) => count >= 1 && count <= maxWindow);
}

function appRemoved(id: string): SvcError {
  return new SvcError("app_not_running", `app "${id}" was removed`);
}
