import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { SvcError } from "../../errors.ts";
import { requireNoUserMount } from "../../sys/user-mounts.ts";
import type { FairQueue } from "../../lib/fair-queue.ts";
import { boundedLines } from "../../lib/lines.ts";
import type { TerminalSize } from "../../lib/terminal.ts";
import type { RunnableApp } from "../runnable-app.ts";
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

/** Protocol version of this daemon. */
const protocolVersion = 1;
/** `O_PATH` of open(2): a handle of the directory without the right to read it. */
const O_PATH = 0o10000000;
const answerTimeoutMs = 5000;
/** Maximum input per message: a supervisor accepts lines of 64 KiB. */
const maxTypedBytes = 32 * 1024;

/** Uid of the process at the other end of a unix socket (SO_PEERCRED). @throws if the kernel does not report it */
export type PeerUid = (socket: Socket) => number;

export interface ConnectOptions {
  peerUid: PeerUid;
  /** Shares the time for parsing messages fairly between owners. */
  fairQueue?: FairQueue;
}

/**
 * Connects to the supervisor of an app.
 *
 * The socket's path may be too long for a socket address, and the owner controls a part of it: the socket is opened
 * through a handle of the run directory, and the peer's uid is read from the kernel before any byte is sent.
 * @returns undefined when no supervisor listens
 * @throws SvcError `unavailable` when another program listens, or nothing responds in time
 */
export async function connectSupervisor(
  { runDir, uid: ownerUid }: Pick<RunnableApp, "runDir" | "uid">,
  { peerUid, fairQueue }: ConnectOptions,
): Promise<SupervisorConnection | undefined> {
  const signal = AbortSignal.timeout(answerTimeoutMs);
  const socket = await openSocket(runDir, signal);
  if (socket === undefined) return undefined;
  const messages = readMessages(socket, () => fairQueue?.wait(`uid ${ownerUid}`));
  const giveUp = () => socket.destroy();
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    const uid = peerUid(socket);
    if (uid !== ownerUid) {
      throw unavailable(`the supervisor's socket in ${runDir} is of uid ${uid}, not of ${ownerUid}`);
    }
    const first = await messages.next();
    if (first.done === true) return undefined;
    if (first.value.type !== "hello")
      throw unavailable(`the program that listens in ${runDir} is not a supervisor`);
    const { min, max } = first.value.protocol;
    if (min > protocolVersion || max < protocolVersion) {
      throw unavailable(
        `the supervisor in ${runDir} supports protocol ${min} to ${max}, but this svc needs ${protocolVersion}`,
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

/** A connection to one supervisor. It is read by either {@link watch} or {@link follow}, never by both. */
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
   * Subscribes, and reports each state, the current one first.
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
      for (const { reject } of this.#replies.values())
        reject(unavailable("the supervisor closed the connection"));
      this.#replies.clear();
    }
  }

  /**
   * Sends a command while {@link watch} or a terminal of {@link attach} is read.
   * @throws SvcError `unavailable` if it is rejected or times out
   */
  async request(command: SupervisorCommand, timeoutMs = answerTimeoutMs): Promise<void> {
    const reply = Promise.withResolvers<undefined>();
    const id = this.#send(command);
    this.#replies.set(id, reply);
    const timer = setTimeout(() => {
      reply.reject(unavailable(`the supervisor did not respond within ${timeoutMs} ms`));
    }, timeoutMs);
    try {
      await reply.promise;
    } finally {
      clearTimeout(timer);
      this.#replies.delete(id);
    }
  }

  /** Follows the log from a position, or from the last `tail` records, at the reader's speed. */
  async *follow(start: { from: number } | { tail: number }): AsyncGenerator<LogEvent | LogGapEvent, void> {
    this.#send({ cmd: "follow", ...start });
    for await (const message of this.#messages) {
      if (message.type === "log" || message.type === "gap") yield message;
      else if (message.type === "reply" && !message.ok)
        throw unavailable(`the supervisor sends no log: ${message.error}`);
    }
  }

  /**
   * Opens the app's terminal: its output, the last screen first, until the app ends.
   * @throws SvcError `failed_precondition` if the app has no terminal, or its supervisor's version does not support
   *   terminals; `unavailable`
   */
  async attach(size: TerminalSize | undefined): Promise<AsyncIterable<TerminalEvent>> {
    const id = this.#send({ cmd: "attach", ...(size && { size }) });
    const timer = setTimeout(() => this.close(), answerTimeoutMs);
    try {
      const { value: answer } = await this.#messages.next();
      if (answer?.type !== "reply" || answer.id !== id)
        throw unavailable("the supervisor did not open the terminal");
      if (!answer.ok) throw new SvcError("not_possible", `cannot attach to the app: ${answer.error}`);
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

  /**
   * Sends input to the terminal that {@link attach} opened; resolves when the app has read it, or the terminal is
   * closed.
   */
  async type(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#isOver; at += maxTypedBytes) {
      const data = Buffer.from(bytes.subarray(at, at + maxTypedBytes)).toString("base64");
      const taken = Promise.withResolvers<undefined>();
      const id = this.#send({ cmd: "input", data });
      this.#replies.set(id, taken);
      await taken.promise.finally(() => this.#replies.delete(id));
    }
  }

  /** Sets the window size of {@link attach}. @throws SvcError `unavailable` if the supervisor does not reply in time */
  async resize(size: TerminalSize): Promise<void> {
    await this.request({ cmd: "resize", size });
  }

  /** Closes the connection; the app keeps running. */
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
    else reply?.reject(unavailable(`the supervisor rejected the request: ${message.error}`));
  }
}

async function openSocket(runDir: string, signal: AbortSignal): Promise<Socket | undefined> {
  await requireNoUserMount(runDir);
  let directory;
  try {
    directory = await open(runDir, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw unavailable(`cannot enter ${runDir}`, error);
  }
  let socketFile;
  try {
    // connect(2) would follow the owner's symlinks on the event loop, and a hanging file system would block it.
    socketFile = await open(`/proc/self/fd/${directory.fd}/supervisor.sock`, O_PATH | constants.O_NOFOLLOW);
    const path = `/proc/self/fd/${socketFile.fd}`;
    return await new Promise<Socket | undefined>((resolve, reject) => {
      const socket = connect(path);
      const expire = () => socket.destroy(unavailable(`no response in ${runDir} in time`));
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
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  } finally {
    await socketFile?.close();
    await directory.close();
  }
}

/** Yields one message per line; ends when the socket closes. */
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
    // A broken connection counts as closed; errors of the parser have no code.
    if ((error as NodeJS.ErrnoException).code === undefined) throw error;
  }
}

function unavailable(message: string, cause?: unknown): SvcError<"unavailable"> {
  return new SvcError("unavailable", message, cause === undefined ? {} : { cause });
}
