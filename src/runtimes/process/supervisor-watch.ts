/** Watches an app's supervisor; without one, reads the state that it left behind. */
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { readProcessIdentity } from "../../sys/process-identity.ts";
import type { RunnableApp } from "../runnable-app.ts";
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

/** An app and its identity: supervisor and app run as `uid`, the only user with access to `runDir` (0700). */
export type ProcessAppRef = Pick<RunnableApp, "id" | "uid" | "runDir">;

export interface SupervisorWatchOptions extends ConnectOptions {
  userHelpers: UserHelpers;
  /** `/proc/sys/kernel/random/boot_id`. */
  bootId: string;
  log: Pick<Log, "info" | "warn">;
}

/** How long a newly started supervisor may take to respond. */
export const supervisorStartMs = 15_000;
/** Added to the grace period for SIGKILL, the last output and the last state. */
export const endMarginMs = 20_000;
/** How long a supervisor that an earlier daemon was just starting may take to appear. */
const lateStartMs = 1500;
/** From connecting to the first state. */
const firstStateMs = 5000;
const reconnectAttempts = 5;
/** Delay before the first attempt; doubles each time. */
const reconnectMs = 50;
/** Interval of checks while an app's status is unknown. */
const recheckMs = 3000;
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
  #recheck: NodeJS.Timeout | undefined;
  /** Counts operations: findings from before an operation are stale. */
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

  /** The supervisor's state of the latest run, if known. */
  get state(): SupervisorState | undefined {
    return this.#state;
  }

  get isConnected(): boolean {
    return this.#connection !== undefined;
  }

  /** Makes pending findings stale, so that the operation decides the status. */
  beginOperation(): void {
    this.#operations++;
  }

  /** Stops watching the app, which keeps running. */
  detach(): void {
    this.#detached = true;
    clearTimeout(this.#recheck);
    this.#connection?.close();
  }

  /** Connects to the supervisor unless connected. @returns whether there is a supervisor */
  async attach(): Promise<boolean> {
    if (this.#connection && this.#state?.final !== true) return true;
    const connection = await connectSupervisor(this.#ref, this.#options);
    if (connection === undefined) return false;
    const first = Promise.withResolvers<boolean>();
    let isMet = false;
    // The owner may run another program there, such as one that sends only `hello`.
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
        this.#options.log.warn({ app: this.#ref.id, err: error }, "the connection to a supervisor failed"),
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

  /** A supervisor that cannot be reached does not prevent a stop: it is ended with the other processes. */
  async #attachIfItAnswers(): Promise<boolean> {
    try {
      return await this.attach();
    } catch (error) {
      this.#options.log.warn({ app: this.#ref.id, err: error }, "failed to connect to a supervisor");
      return false;
    }
  }

  /**
   * Connects to a newly started supervisor, or reads its last state if it has already exited.
   * @throws SvcError `start_failed` when there is neither
   */
  async attachNew(owner: UserHelper, runId: string, pid: number): Promise<void> {
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

  /** Makes the supervisor, if any, end the app and itself; one that hangs is ended later with the other processes. */
  async requestStop(graceMs: number): Promise<void> {
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

  /** Determines the status of an app that an earlier daemon started. */
  async findOut(): Promise<void> {
    const { runDir, uid } = this.#ref;
    if (await this.attach()) return;
    const owner = await this.#options.userHelpers.as(uid);
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

  /** Takes the status from `state.json` if no supervisor responds. */
  async #judge(state: SupervisorState | undefined): Promise<void> {
    this.#state = state;
    if (state === undefined) {
      this.#become(neverStarted);
    } else if (state.final) {
      this.#become(statusOf(state));
    } else if (state.bootId !== this.#options.bootId) {
      const reason = "the host was rebooted";
      const ended = { ...state, app: null, health: null, phase: "STOPPED", reason } as const;
      this.#become({ ...statusOf(ended), isLost: true });
    } else {
      const { pid, startTicks } = state.supervisor;
      const alive = (await readProcessIdentity(pid))?.startTicks === startTicks;
      if (alive) {
        this.#becomeUnknown("the app's supervisor does not respond");
        return;
      }
      const reason = "the app's supervisor was killed";
      const { nextRestartAtMs: _, endedReason: __, ...ended } = statusOf({ ...state, health: null, reason });
      this.#become({ ...ended, state: "CRASHED", isLost: true });
    }
  }

  /** The state that the latest supervisor wrote; `undefined` if there is no readable one. */
  async readState(owner: UserHelper): Promise<SupervisorState | undefined> {
    const { id, runDir } = this.#ref;
    let json: string;
    try {
      json = (await owner.readFile(runDir, "state.json", { maxBytes: maxStateBytes })).toString();
    } catch (error) {
      if (error instanceof SvcError && error.code === "not_found") return undefined;
      // A symlink, a directory or a huge file: the owner put it there, and must not prevent root from removing the
      // app.
      if (!(error instanceof SvcError) || error.code === "unavailable") throw error;
      this.#options.log.warn({ app: id, err: error }, "ignoring an unreadable state.json");
      return undefined;
    }
    const state = parseState(json);
    if (state === undefined) this.#options.log.warn({ app: id }, "ignoring a damaged state.json");
    return state;
  }

  /** Applies a supervisor's state. */
  accept(state: SupervisorState): void {
    this.#state = state;
    this.#become(statusOf(state));
  }

  #become(status: ProcessStatus): void {
    this.#status = status;
    this.changes.announce();
    this.#onChange(status);
  }

  /** Checks again until the status is known. */
  #becomeUnknown(reason: string): void {
    this.#become({ ...(this.#state ? statusOf(this.#state) : this.#status), state: "UNKNOWN", reason });
    const operations = this.#operations;
    clearTimeout(this.#recheck);
    this.#recheck = setTimeout(() => {
      if (this.#detached || this.#operations !== operations) return;
      this.findOut().catch((error: unknown) => {
        this.#options.log.warn({ app: this.#ref.id, err: error }, "failed to determine the status of an app");
        this.#becomeUnknown("the app's status could not be determined");
      });
    }, recheckMs).unref();
  }

  async #disconnected(connection: SupervisorConnection): Promise<void> {
    const { id, uid } = this.#ref;
    const operations = this.#operations;
    const isStale = (): boolean => this.#detached || this.#operations !== operations;
    try {
      if (isStale() || this.#state?.final === true) return;
      this.#connection = undefined;
      const owner = await this.#options.userHelpers.as(uid);
      const { pid, startTicks } = connection.hello;
      for (let attempt = 0; attempt < reconnectAttempts; attempt++) {
        const state = await this.readState(owner);
        const alive = (await readProcessIdentity(pid))?.startTicks === startTicks;
        if (isStale()) return;
        if (state?.final === true || !alive) {
          await this.#judge(state);
          return;
        }
        // Wait first: a supervisor that closes each connection must not keep the daemon busy.
        await sleep(reconnectMs * 2 ** attempt);
        if (isStale() || (await this.attach())) return;
      }
      if (isStale()) return;
      this.#becomeUnknown("the app's supervisor does not respond");
    } catch (error) {
      if (isStale()) return;
      this.#options.log.warn({ app: id, err: error }, "failed to determine the status of an app");
      this.#becomeUnknown("the app's status could not be determined");
    } finally {
      if (this.#connection === connection) this.#connection = undefined;
      this.changes.announce();
    }
  }
}
