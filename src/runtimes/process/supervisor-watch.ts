/** What the supervisor of an app says, and where none answers, what it left behind. */
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { Identity } from "../../identity/identity.ts";
import type { Identities } from "../../identity/identities.ts";
import { readProcessIdentity } from "../../lib/process-identity.ts";
import type { RunnableApp } from "../runtime.ts";
import { StatusChanges } from "../status-changes.ts";
import { neverStarted, statusOf, type ProcessStatus } from "./process-status.ts";
import type { Log } from "../../lib/log.ts";
import {
  connectSupervisor,
  type ConnectOptions,
  type SupervisorConnection,
} from "./supervisor-connection.ts";
import { parseState } from "./supervisor-messages.ts";
import type { SupervisorState } from "./supervisor-types.ts";

/** Where an app runs, and as whom: supervisor and app have the identity of `uid`, which owns `runDir` alone (0700). */
export type ProcessAppRef = Pick<RunnableApp, "id" | "uid" | "runDir">;

export interface SupervisorWatchOptions extends ConnectOptions {
  identities: Identities;
  /** `/proc/sys/kernel/random/boot_id`. */
  bootId: string;
  log: Pick<Log, "info" | "warn">;
}

/** How long a supervisor that was just started may take to answer. */
export const supervisorStartMs = 15_000;
/** On top of the grace period: SIGKILL, the last output, the last state. */
export const endMarginMs = 20_000;
/** How long a supervisor that was just being started by an earlier daemon may take to show up. */
const lateStartMs = 1500;
/** From a connection to the state that is then due. */
const firstStateMs = 5000;
const reconnectAttempts = 5;
/** Before the first attempt; doubles with each. */
const reconnectMs = 50;
/** Between looks at an app of which it cannot be told how it fares. */
const lookAgainMs = 3000;
const maxStateBytes = 1024 * 1024;

export class SupervisorWatch {
  readonly changes: StatusChanges;
  readonly #ref: ProcessAppRef;
  readonly #options: SupervisorWatchOptions;
  readonly #onChange: (status: ProcessStatus) => void;
  #status: ProcessStatus = neverStarted;
  #state: SupervisorState | undefined;
  #connection: SupervisorConnection | undefined;
  #detached = false;
  #lookAgain: NodeJS.Timeout | undefined;
  /** Counts the operations: what was looked into before one began is stale. */
  #operations = 0;

  constructor(
    ref: ProcessAppRef,
    options: SupervisorWatchOptions,
    onChange: (status: ProcessStatus) => void,
  ) {
    this.#ref = ref;
    this.#options = options;
    this.#onChange = onChange;
    this.changes = new StatusChanges(ref.id);
  }

  get status(): ProcessStatus {
    return this.#status;
  }

  /** The supervisor's own account of the latest run, when one is known. */
  get state(): SupervisorState | undefined {
    return this.#state;
  }

  get isConnected(): boolean {
    return this.#connection !== undefined;
  }

  /** From now on an operation decides what is so, and not what is just being found out. */
  beginOperation(): void {
    this.#operations++;
  }

  /** Lets go of the app, which goes on. */
  detach(): void {
    this.#detached = true;
    clearTimeout(this.#lookAgain);
    this.#connection?.close();
  }

  /** Whether a supervisor is there; connects to it when that is not so yet. */
  async attach(): Promise<boolean> {
    if (this.#connection && this.#state?.final !== true) return true;
    const connection = await connectSupervisor(this.#ref, this.#options);
    if (connection === undefined) return false;
    const first = Promise.withResolvers<boolean>();
    let isMet = false;
    // Its owner may have put anything in its place, such as what says hello and no more.
    const giveUp = setTimeout(() => connection.close(), firstStateMs);
    this.#connection = connection;
    void connection
      .watch((state) => {
        clearTimeout(giveUp);
        isMet = true;
        this.accept(state);
        first.resolve(!state.final);
      })
      .catch((error: unknown) =>
        this.#options.log.warn({ app: this.#ref.id, err: error }, "talk with a supervisor failed"),
      )
      .finally(() => {
        clearTimeout(giveUp);
        if (this.#connection === connection) {
          if (isMet) void this.#disconnected(connection);
          else this.#connection = undefined;
        }
        first.resolve(false);
      });
    return first.promise;
  }

  /** What cannot be talked to is no reason not to stop: it is ended with the rest. */
  async #attachIfItAnswers(): Promise<boolean> {
    try {
      return await this.attach();
    } catch (error) {
      this.#options.log.warn({ app: this.#ref.id, err: error }, "a supervisor cannot be talked to");
      return false;
    }
  }

  /**
   * Connects to a supervisor that is just being started, or takes its last word when it is gone again already.
   * @throws SvcError `start_failed` when there is neither
   */
  async meet(owner: Identity, runId: string, pid: number): Promise<void> {
    const { id, runDir } = this.#ref;
    const deadline = Date.now() + supervisorStartMs;
    for (let delayMs = 5; ; delayMs = Math.min(50, delayMs * 2)) {
      if ((await this.attach()) || this.#state?.runId === runId) return;
      if (Date.now() > deadline || (await readProcessIdentity(pid)) === undefined) break;
      await sleep(delayMs);
    }
    const state = await this.readState(owner);
    if (state?.runId === runId && state.final) {
      this.accept(state);
      return;
    }
    const { data } = await owner.readTail(runDir, ["supervisor.err"], { maxLines: 20 });
    const lastLines = data.toString().split("\n").filter(Boolean);
    const message = `the supervisor of app "${id}" did not start`;
    throw new SvcError("start_failed", message, {
      payload: { signal: "", lastLines },
    });
  }

  /** Has the supervisor, if there is one, end the app and itself; one that hangs is let go of, and ended with the rest. */
  async askToStop(graceMs: number): Promise<void> {
    if (!(await this.#attachIfItAnswers())) return;
    const connection = this.#connection;
    try {
      await connection?.request({ cmd: "stop", graceMs });
      await this.changes.until(() => this.#connection !== connection, graceMs + endMarginMs);
    } catch (error) {
      this.#options.log.warn({ app: this.#ref.id, err: error }, "a supervisor did not stop its app");
      this.#connection = undefined;
      connection?.close();
    }
  }

  /** Finds out how the app fares that an earlier daemon started. */
  async findOut(): Promise<void> {
    const { runDir, uid } = this.#ref;
    if (await this.attach()) return;
    const owner = await this.#options.identities.as(uid);
    let state = await this.readState(owner);
    if (state === undefined && (await owner.stat(runDir, "spec.json")) !== undefined) {
      const deadline = Date.now() + lateStartMs;
      while (state === undefined && Date.now() < deadline) {
        await sleep(50);
        if (await this.attach()) return;
        state = await this.readState(owner);
      }
    }
    await this.#judge(state);
  }

  /** Takes the status from `state.json` where no supervisor answers. */
  async #judge(state: SupervisorState | undefined): Promise<void> {
    this.#state = state;
    if (state === undefined) {
      this.#become(neverStarted);
    } else if (state.final) {
      this.#become(statusOf(state));
    } else if (state.bootId !== this.#options.bootId) {
      const reason = "the machine was rebooted";
      const ended = { ...state, app: null, health: null, phase: "STOPPED", reason } as const;
      this.#become({ ...statusOf(ended), isLost: true });
    } else {
      const { pid, startTicks } = state.supervisor;
      const alive = (await readProcessIdentity(pid))?.startTicks === startTicks;
      if (alive) {
        this.#becomeUnknown("its supervisor does not answer");
        return;
      }
      const reason = "its supervisor was killed";
      const { nextRestartAtMs: _, endedReason: __, ...ended } = statusOf({ ...state, health: null, reason });
      this.#become({ ...ended, state: "CRASHED", isLost: true });
    }
  }

  /** What the latest supervisor wrote last; `undefined` when there is nothing that can be read. */
  async readState(owner: Identity): Promise<SupervisorState | undefined> {
    const { id, runDir } = this.#ref;
    let json: string;
    try {
      json = (await owner.readFile(runDir, "state.json", { maxBytes: maxStateBytes })).toString();
    } catch (error) {
      if (error instanceof SvcError && error.code === "not_found") return undefined;
      // A link, a directory, more than a state can be: the owner put it there, and must not keep root from removing the app.
      if (!(error instanceof SvcError) || error.code === "unavailable") throw error;
      this.#options.log.warn({ app: id, err: error }, "state.json cannot be read and is passed over");
      return undefined;
    }
    const state = parseState(json);
    if (state === undefined) this.#options.log.warn({ app: id }, "damaged state.json is passed over");
    return state;
  }

  /** Takes over how the app fares. */
  accept(state: SupervisorState): void {
    this.#state = state;
    this.#become(statusOf(state));
  }

  #become(status: ProcessStatus): void {
    this.#status = status;
    this.changes.announce();
    this.#onChange(status);
  }

  /** Looks again until it is known. */
  #becomeUnknown(reason: string): void {
    this.#become({ ...(this.#state ? statusOf(this.#state) : this.#status), state: "UNKNOWN", reason });
    const operations = this.#operations;
    clearTimeout(this.#lookAgain);
    this.#lookAgain = setTimeout(() => {
      if (this.#detached || this.#operations !== operations) return;
      this.findOut().catch((error: unknown) => {
        this.#options.log.warn({ app: this.#ref.id, err: error }, "cannot tell what became of an app");
        this.#becomeUnknown("what became of it cannot be told");
      });
    }, lookAgainMs).unref();
  }

  async #disconnected(connection: SupervisorConnection): Promise<void> {
    const { id, uid } = this.#ref;
    const operations = this.#operations;
    const isStale = (): boolean => this.#detached || this.#operations !== operations;
    try {
      if (isStale() || this.#state?.final === true) return;
      this.#connection = undefined;
      const owner = await this.#options.identities.as(uid);
      const { pid, startTicks } = connection.hello;
      for (let attempt = 0; attempt < reconnectAttempts; attempt++) {
        const state = await this.readState(owner);
        const alive = (await readProcessIdentity(pid))?.startTicks === startTicks;
        if (isStale()) return;
        if (state?.final === true || !alive) {
          await this.#judge(state);
          return;
        }
        // First of all: one that hangs up each time must not keep the daemon busy.
        await sleep(reconnectMs * 2 ** attempt);
        if (isStale() || (await this.attach())) return;
      }
      if (isStale()) return;
      this.#becomeUnknown("its supervisor does not answer");
    } catch (error) {
      if (isStale()) return;
      this.#options.log.warn({ app: id, err: error }, "cannot tell what became of an app");
      this.#becomeUnknown("what became of it cannot be told");
    } finally {
      if (this.#connection === connection) this.#connection = undefined;
      this.changes.announce();
    }
  }
}
