import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { SvcError } from "../../errors.ts";
import type { FairTurns } from "../../lib/fair-turns.ts";
import { boundedLines } from "../../lib/lines.ts";
import type { TerminalSize } from "../../lib/terminal.ts";
import type { RunnableApp } from "../runtime.ts";
import { maxMessageLength, parseMessage } from "./supervisor-messages.ts";
import type {
  HelloMessage,
  LogEvent,
  LogGapEvent,
  SupervisorCommand,
  SupervisorMessage,
  SupervisorState,
  TerminalEvent,
} from "./supervisor-types.ts";

/** The version of the protocol that this daemon speaks. */
const protocolVersion = 1;
/** `O_PATH` of open(2): a handle on the directory's place, with no right to read it. */
const O_PATH = 0o10000000;
const answerTimeoutMs = 5000;
/** Of what is typed, in one message: a supervisor takes lines of 64 KiB. */
const maxTypedBytes = 32 * 1024;

/** Uid of the process at the other end of a unix socket (SO_PEERCRED). @throws when the kernel does not say */
export type PeerUid = (socket: Socket) => number;

export interface ConnectOptions {
  peerUid: PeerUid;
  /** In which its messages are read, among its owner's other work. */
  turns?: FairTurns;
}

/**
 * Connects to the supervisor of an app.
 *
 * The path of the socket may be longer than a socket address can be, and a part of it belongs to the owner: it is
 * reached through a handle of the run directory, and who listens there is asked of the kernel before a byte is sent:
 * whoever else than the owner answers is not talked to.
 * @returns undefined when no supervisor listens
 * @throws SvcError `unavailable` when something else answers, or nothing in time
 */
export async function connectSupervisor(
  { runDir, uid: ownerUid }: Pick<RunnableApp, "runDir" | "uid">,
  { peerUid, turns }: ConnectOptions,
): Promise<SupervisorConnection | undefined> {
  const signal = AbortSignal.timeout(answerTimeoutMs);
  const socket = await openSocket(runDir, signal);
  if (socket === undefined) return undefined;
  const messages = readMessages(socket, () => turns?.wait(`uid ${ownerUid}`));
  const giveUp = () => socket.destroy();
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    const uid = peerUid(socket);
    if (uid !== ownerUid) {
      throw unavailable(`the supervisor's socket in ${runDir} is of uid ${uid}, not of ${ownerUid}`);
    }
    const first = await messages.next();
    if (first.done === true) return undefined;
    if (first.value.type !== "hello") throw unavailable(`what listens in ${runDir} is no supervisor`);
    const { min, max } = first.value.protocol;
    if (min > protocolVersion || max < protocolVersion) {
      throw unavailable(
        `the supervisor in ${runDir} speaks protocol ${min} to ${max}, this svc speaks ${protocolVersion}`,
      );
    }
    return new SupervisorConnection(socket, messages, first.value);
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    signal.removeEventListener("abort", giveUp);
  }
}

/** A conversation with one supervisor. Either {@link watch} or {@link follow} reads it, never both. */
export class SupervisorConnection {
  readonly hello: HelloMessage;
  readonly #socket: Socket;
  readonly #messages: AsyncGenerator<SupervisorMessage, void>;
  readonly #replies = new Map<number, PromiseWithResolvers<undefined>>();
  #lastId = 0;
  #isOver = false;

  constructor(socket: Socket, messages: AsyncGenerator<SupervisorMessage, void>, hello: HelloMessage) {
    this.#socket = socket;
    this.#messages = messages;
    this.hello = hello;
  }

  /**
   * Subscribes, and reports each state from now on, the present one first.
   * @returns when the supervisor has closed the connection
   */
  async watch(onState: (state: SupervisorState) => void): Promise<void> {
    this.#send({ cmd: "subscribe" });
    try {
      for await (const message of this.#messages) {
        if (message.type === "state") onState(message.state);
        else if (message.type === "reply") this.#settle(message);
      }
    } finally {
      for (const { reject } of this.#replies.values()) reject(unavailable("the supervisor went away"));
      this.#replies.clear();
    }
  }

  /** Asks for something while {@link watch} runs. @throws SvcError `unavailable` when it is refused or not answered in time */
  async request(command: SupervisorCommand, timeoutMs = answerTimeoutMs): Promise<void> {
    const reply = Promise.withResolvers<undefined>();
    const id = this.#send(command);
    this.#replies.set(id, reply);
    const timer = setTimeout(() => {
      reply.reject(unavailable(`the supervisor did not answer within ${timeoutMs} ms`));
    }, timeoutMs);
    try {
      await reply.promise;
    } finally {
      clearTimeout(timer);
      this.#replies.delete(id);
    }
  }

  /** The log from a position on, or from the last `tail` records on, as it grows, at the speed of who iterates. */
  async *follow(start: { from: number } | { tail: number }): AsyncGenerator<LogEvent | LogGapEvent, void> {
    this.#send({ cmd: "follow", ...start });
    for await (const message of this.#messages) {
      if (message.type === "log" || message.type === "gap") yield message;
      else if (message.type === "reply" && !message.ok) throw unavailable(`no log: ${message.error}`);
    }
  }

  /**
   * Opens the app's terminal: what it shows, from its last screen on, until the app ends.
   * @throws SvcError `failed_precondition` when the app has none, or its supervisor is of a version that knows of none;
   *   `unavailable`
   */
  async attach(size: TerminalSize | undefined): Promise<AsyncIterable<TerminalEvent>> {
    const id = this.#send({ cmd: "attach", ...(size && { size }) });
    const timer = setTimeout(() => this.close(), answerTimeoutMs);
    try {
      const { value: answer } = await this.#messages.next();
      if (answer?.type !== "reply" || answer.id !== id)
        throw unavailable("the supervisor did not open the terminal");
      if (!answer.ok) throw new SvcError("not_possible", `it cannot be attached to: ${answer.error}`);
      return this.#readTerminal();
    } finally {
      clearTimeout(timer);
    }
  }

  async *#readTerminal(): AsyncGenerator<TerminalEvent, void> {
    try {
      for await (const message of this.#messages) {
        if (message.type === "reply") this.#settle(message);
        else if (message.type === "output" || message.type === "missed" || message.type === "ended")
          yield message;
      }
    } finally {
      this.#isOver = true;
      for (const { resolve } of this.#replies.values()) resolve(undefined);
    }
  }

  /** Types bytes at the terminal that {@link attach} shows; resolves when the app has taken them, or there is none any more. */
  async type(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#isOver; at += maxTypedBytes) {
      const data = Buffer.from(bytes.subarray(at, at + maxTypedBytes)).toString("base64");
      const taken = Promise.withResolvers<undefined>();
      const id = this.#send({ cmd: "input", data });
      this.#replies.set(id, taken);
      await taken.promise.finally(() => this.#replies.delete(id));
    }
  }

  /** Says how large the window of {@link attach} is. */
  resize(size: TerminalSize): void {
    this.#send({ cmd: "resize", size });
  }

  /** Ends the conversation; the app goes on. */
  close(): void {
    this.#socket.destroy();
  }

  #send(command: SupervisorCommand): number {
    const id = ++this.#lastId;
    this.#socket.write(`${JSON.stringify({ ...command, id, protocol: protocolVersion })}\n`);
    return id;
  }

  #settle(message: Extract<SupervisorMessage, { type: "reply" }>): void {
    const reply = this.#replies.get(message.id);
    if (message.ok) reply?.resolve(undefined);
    else reply?.reject(unavailable(`the supervisor refused: ${message.error}`));
  }
}

async function openSocket(runDir: string, signal: AbortSignal): Promise<Socket | undefined> {
  let directory;
  try {
    directory = await open(runDir, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw unavailable(`cannot enter ${runDir}`, error);
  }
  try {
    return await new Promise<Socket | undefined>((resolve, reject) => {
      const socket = connect(`/proc/self/fd/${directory.fd}/supervisor.sock`);
      const expire = () => socket.destroy(unavailable(`nothing answered in ${runDir} in time`));
      signal.addEventListener("abort", expire, { once: true });
      socket.once("connect", () => {
        signal.removeEventListener("abort", expire);
        resolve(socket);
      });
      socket.on("error", (error: NodeJS.ErrnoException) => {
        signal.removeEventListener("abort", expire);
        if (error.code === "ENOENT" || error.code === "ECONNREFUSED") resolve(undefined);
        else reject(error);
      });
    });
  } finally {
    await directory.close();
  }
}

/** The messages on a socket, one line each; ends when the socket does. */
async function* readMessages(
  socket: Socket,
  turn: () => Promise<void> | undefined,
): AsyncGenerator<SupervisorMessage, void> {
  const pieces = socket.setEncoding("utf8") as AsyncIterable<string>;
  try {
    for await (const line of boundedLines(pieces, { maxLength: maxMessageLength, turn })) {
      const message = parseMessage(line);
      if (message !== undefined) yield message;
    }
  } catch (error) {
    // A connection that broke has ended; faults of the reader itself are not of this kind.
    if ((error as NodeJS.ErrnoException).code === undefined) throw error;
  }
}

function unavailable(message: string, cause?: unknown): SvcError<"unavailable"> {
  return new SvcError("unavailable", message, cause === undefined ? {} : { cause });
}
