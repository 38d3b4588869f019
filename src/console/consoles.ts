/** Sessions at the terminals of apps (S 2.9, 5.4; decisions 28): whatever carries them, it is this. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ConsoleInput, ConsoleOutputSchema } from "../../gen/svc/v1/app_pb.ts";
import type { AppCaller } from "../apps/app-registry.ts";
import type { Apps } from "../apps/apps.ts";
import { SvcError, invalidField } from "../errors.ts";
import { Tally } from "../lib/tally.ts";
import type { Terminal, TerminalSize } from "../lib/terminal.ts";
import { Ticker } from "../lib/ticker.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";
import { OutputWindow } from "./output-window.ts";

export type ConsoleOutputInit = MessageInitShape<typeof ConsoleOutputSchema>;

/** Of one app. */
const maxSessions = 32;
const logTail = 1_000;
const maxWindow = 1_000;
/** Within a second of its app's removal a session has ended. */
const lookIntervalMs = 500;

interface Session {
  readonly first: ConsoleInput;
  readonly inputs: AsyncIterator<ConsoleInput>;
  readonly window: OutputWindow;
  readonly caller: AppCaller;
  /** Aborts when the client goes, or may not be here any more. */
  readonly signal: AbortSignal;
}

export class Consoles {
  readonly #apps: Apps;
  readonly #sessions = new Tally<string>();

  constructor(apps: Apps) {
    this.#apps = apps;
  }

  /**
   * Opens what the first message says, and shows it until its end.
   * @throws SvcError `not_found`, `too_many` beyond 32 sessions of an app, and as {@link Apps.openTerminal}
   */
  async *attach(
    messages: AsyncIterable<ConsoleInput>,
    caller: AppCaller,
    signal: AbortSignal,
  ): AsyncGenerator<ConsoleOutputInit, void> {
    const inputs = messages[Symbol.asyncIterator]();
    const first = firstOf(await inputs.next());
    const { appId } = first;
    await this.#apps.record(appId, caller);
    using _place = this.#takePlace(appId);
    const removed = new AbortController();
    await using _watch = new Ticker(lookIntervalMs, () => {
      if (!this.#apps.has(appId, caller)) removed.abort(appRemoved(appId));
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
    void take(inputs, ({ ack }) => window.acknowledge(Number(ack)));
    for await (const { lines, missedBytes } of this.#apps.followLogs(first.appId, logTail, caller, signal)) {
      if (missedBytes > 0) yield { output: { case: "gap", value: { bytes: BigInt(missedBytes) } } };
      if (lines.length === 0) continue;
      const data = Buffer.from(lines.map(({ text }) => `${text}\r\n`).join(""));
      yield { output: { case: "data", value: data } };
      await unlessAborted(window.sent(data.length), signal);
    }
    yield { output: { case: "exit", value: { code: 0 } } };
  }

  async *#showTerminal(
    { first, inputs, window, caller, signal }: Session,
    kind: "attach" | "shell",
  ): AsyncGenerator<ConsoleOutputInit, void> {
    const { appId, command, service, resize, withoutTerminal } = first;
    if (withoutTerminal && kind !== "shell")
      throw invalidField("without_terminal", "is for shells: what is attached to has a terminal");
    const size = resize !== undefined && isSize(resize) ? resize : undefined;
    const request = { session: kind, command, service, withoutTerminal, ...(size && { size }) };
    await using terminal = await this.#apps.openTerminal(appId, request, caller);
    yield { output: { case: "opened", value: { interactive: true } } };
    void type(inputs, terminal, window);
    const output = terminal.output[Symbol.asyncIterator]();
    for (;;) {
      const next = await unlessAborted(output.next(), signal);
      if (next.done === true) break;
      if ("missedBytes" in next.value) {
        yield { output: { case: "gap", value: { bytes: BigInt(next.value.missedBytes) } } };
        continue;
      }
      const { data, isError = false } = next.value;
      yield { output: { case: isError ? "errorData" : "data", value: data } };
      await unlessAborted(window.sent(data.length), signal);
    }
    const code = await unlessAborted(terminal.exitCode, signal);
    yield { output: { case: "exit", value: { code } } };
  }

  #takePlace(appId: string): Disposable {
    if (this.#sessions.of(appId) >= maxSessions) {
      const message = `app "${appId}" has ${maxSessions} console sessions: end one first`;
      throw new SvcError("too_many", message);
    }
    this.#sessions.change(appId, 1);
    return { [Symbol.dispose]: () => void this.#sessions.change(appId, -1) };
  }
}

/** Hands on what comes to a terminal. */
async function type(
  inputs: AsyncIterator<ConsoleInput>,
  terminal: Terminal,
  window: OutputWindow,
): Promise<void> {
  const isWhole = await take(inputs, async ({ data, resize, ack, endOfInput }) => {
    if (ack > 0) window.acknowledge(Number(ack));
    if (resize !== undefined && isSize(resize)) terminal.resize(resize);
    if (data.length > 0) await window.openFor(terminal.write(data));
    if (endOfInput) await terminal.endInput();
  });
  if (isWhole) await terminal.endInput().catch(() => undefined);
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
