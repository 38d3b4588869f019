import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { Identities, Identity } from "../../identity/identity.ts";
import { readProcessIdentity } from "../../lib/process-identity.ts";
import type { RunnableApp } from "../runtime.ts";
import { StatusChanges } from "../status-changes.ts";
import type { Cgroups } from "./cgroup.ts";
import { neverStarted, statusOf, type ProcessStatus } from "./process-status.ts";
import type { ProcessSpec } from "./process-spec.ts";
import { connectSupervisor, type PeerUid, type SupervisorConnection } from "./supervisor-connection.ts";
import { parseState } from "./supervisor-messages.ts";
import type { SupervisorSpec, SupervisorState } from "./supervisor-types.ts";

/** Where an app runs, and as whom: supervisor and app have the identity of `uid`, which owns `runDir` alone (0700). */
export type ProcessAppRef = Pick<RunnableApp, "id" | "uid" | "runDir">;

export interface SupervisionOptions {
  identities: Identities;
  peerUid: PeerUid;
  /** `/proc/sys/kernel/random/boot_id`. */
  bootId: string;
  svcVersion: string;
  /** Path of node; every owner must be able to execute it. */
  nodePath: string;
  /** Path of `supervisor.mjs`; every owner must be able to read it. */
  supervisorPath: string;
  /** An app that exits this soon after its start has failed to start. */
  settleMs: number;
  /** The daemon's own cgroup subtree, where it has one. */
  cgroups?: Cgroups;
  log: (message: string, details: Record<string, unknown>) => void;
}

/** Where the supervisor keeps the log, in the run directory. */
export const LOG_DIR = "logs";

const SUPERVISOR_START_MS = 15_000;
/** On top of the grace period: SIGKILL, the last output, the last state. */
const END_MARGIN_MS = 20_000;
/** How long a supervisor that was just being started by an earlier daemon may take to show up. */
const LATE_START_MS = 1500;
/** From a connection to the state that is then due. */
const FIRST_STATE_MS = 5000;
const RECONNECT_ATTEMPTS = 5;
/** Before the first attempt; doubles with each. */
const RECONNECT_MS = 50;
const MAX_STATE_BYTES = 1024 * 1024;

/** One app and its supervisor, from the daemon's side. Operations on it come one at a time; watching goes on all the time. */
export class SupervisedApp {
  readonly ref: ProcessAppRef;
  readonly #options: SupervisionOptions;
  readonly #onChange: (status: ProcessStatus) => void;
  readonly #changes: StatusChanges;
  #status: ProcessStatus = neverStarted;
  #state: SupervisorState | undefined;
  #connection: SupervisorConnection | undefined;
  #detached = false;
  /** Counts the operations: what was looked into before one began is stale. */
  #operations = 0;

  constructor(ref: ProcessAppRef, options: SupervisionOptions, onChange: (status: ProcessStatus) => void) {
    this.ref = ref;
    this.#options = options;
    this.#changes = new StatusChanges(ref.id);
    this.#onChange = onChange;
  }

  get status(): ProcessStatus {
    return this.#status;
  }

  /** The supervisor's own account of the latest run, when one is known. */
  get state(): SupervisorState | undefined {
    return this.#state;
  }

  /** See {@link ProcessRuntime.start}. */
  async start(spec: ProcessSpec): Promise<void> {
    this.#operations++;
    if (await this.#attach()) return;
    const { identities, cgroups, log, nodePath, supervisorPath, settleMs, svcVersion } = this.#options;
    const { id, runDir, uid } = this.ref;
    const owner = await identities.as(uid);
    await this.#endLeftovers(spec.stop.graceMs);

    const cgroup = cgroups ? await cgroups.create(id, owner.user, spec.limits) : null;
    const runId = randomUUID();
    const whole: SupervisorSpec = {
      ...spec,
      version: 1,
      svcVersion,
      appId: id,
      runId,
      logDir: LOG_DIR,
      cgroup,
      settleMs,
    };
    await owner.writeFile(runDir, "spec.json", JSON.stringify(whole));
    // What the last run left would pass for this one's, should the supervisor die before it writes its own.
    await owner.removeTree(runDir, "state.json");
    const { pid } = await owner.spawnDetached([nodePath, supervisorPath], {
      cwd: runDir,
      log: { root: runDir, path: "supervisor.err" },
    });
    if (cgroup !== null) await cgroups?.enter(cgroup, pid, uid);
    log("supervisor started", { app: id, pid });

    await this.#meetSupervisor(owner, runId, pid);
    await this.#changes.until(() => {
      const state = this.#state;
      if (state?.runId !== runId) return false;
      const isOver = state.final || this.#connection === undefined;
      if (isOver && !state.settled) throw startFailed(id, state);
      return state.settled;
    }, settleMs + SUPERVISOR_START_MS);
  }

  /** See {@link ProcessRuntime.stop}. */
  async stop(graceMs: number): Promise<void> {
    this.#operations++;
    if (await this.#attachIfItAnswers()) {
      await this.#askToStop(graceMs);
    }
    await this.#endLeftovers(graceMs);
    await this.#options.cgroups?.remove(this.ref.id);
    if (this.#status.leftover > 0) {
      throw new SvcError(
        "unavailable",
        "unavailable",
        `${this.#status.leftover} processes of app "${this.ref.id}" do not end, not even by SIGKILL; they wait for the kernel`,
      );
    }
  }

  /** See {@link ProcessRuntime.adopt}. */
  async adopt(): Promise<ProcessStatus> {
    if (await this.#attach()) return this.#status;
    const owner = await this.#options.identities.as(this.ref.uid);
    let state = await this.#readState(owner);
    if (state === undefined && (await owner.stat(this.ref.runDir, "spec.json")) !== undefined) {
      const deadline = Date.now() + LATE_START_MS;
      while (state === undefined && Date.now() < deadline) {
        await sleep(50);
        if (await this.#attach()) return this.#status;
        state = await this.#readState(owner);
      }
    }
    await this.#judge(state);
    return this.#status;
  }

  /** Resolves once the app runs and its health check, if it has one, has passed. */
  async waitHealthy(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const { id } = this.ref;
    const restartsBefore = this.#status.restarts;
    await this.#changes.until(
      () => {
        const { state, health, restarts, reason } = this.#status;
        const ended = state !== "RUNNING" && state !== "STARTING";
        if (this.#state && (ended || restarts > restartsBefore || health === "unhealthy")) {
          const why = health === "unhealthy" ? "its health check fails" : reason;
          throw startFailed(id, { ...this.#state, reason: why });
        }
        return state === "RUNNING" && (health === "none" || health === "healthy");
      },
      timeoutMs,
      signal,
    );
  }

  /** Lets go of the app, which goes on. */
  detach(): void {
    this.#detached = true;
    this.#connection?.close();
  }

  /** Whether a supervisor is there; connects to it when that is not so yet. */
  async #attach(): Promise<boolean> {
    if (this.#connection && this.#state?.final !== true) return true;
    const { id, runDir, uid } = this.ref;
    const connection = await connectSupervisor({ runDir, ownerUid: uid, peerUid: this.#options.peerUid });
    if (connection === undefined) return false;
    const first = Promise.withResolvers<boolean>();
    let isMet = false;
    // Its owner may have put anything in its place, such as what says hello and no more.
    const giveUp = setTimeout(() => connection.close(), FIRST_STATE_MS);
    this.#connection = connection;
    void connection
      .watch((state) => {
        clearTimeout(giveUp);
        isMet = true;
        this.#accept(state);
        first.resolve(!state.final);
      })
      .catch((error: unknown) => this.#options.log("talk with a supervisor failed", { app: id, error }))
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
      return await this.#attach();
    } catch (error) {
      this.#options.log("a supervisor cannot be talked to", { app: this.ref.id, error });
      return false;
    }
  }

  /** Has the supervisor end the app and itself; one that hangs is let go of, and ended with the rest. */
  async #askToStop(graceMs: number): Promise<void> {
    const connection = this.#connection;
    try {
      await connection?.request({ cmd: "stop", graceMs });
      await this.#changes.until(() => this.#connection !== connection, graceMs + END_MARGIN_MS);
    } catch (error) {
      this.#options.log("a supervisor did not stop its app", { app: this.ref.id, error });
      this.#connection = undefined;
      connection?.close();
    }
  }

  async #disconnected(connection: SupervisorConnection): Promise<void> {
    const { id, uid } = this.ref;
    const operations = this.#operations;
    const isStale = (): boolean => this.#detached || this.#operations !== operations;
    try {
      if (isStale() || this.#state?.final === true) return;
      this.#connection = undefined;
      const owner = await this.#options.identities.as(uid);
      const { pid, startTicks } = connection.hello;
      for (let attempt = 0; attempt < RECONNECT_ATTEMPTS; attempt++) {
        const state = await this.#readState(owner);
        const alive = (await readProcessIdentity(pid))?.startTicks === startTicks;
        if (isStale()) return;
        if (state?.final === true || !alive) {
          await this.#judge(state);
          return;
        }
        // First of all: one that hangs up each time must not keep the daemon busy.
        await sleep(RECONNECT_MS * 2 ** attempt);
        if (isStale() || (await this.#attach())) return;
      }
      if (isStale()) return;
      this.#become({ ...this.#status, state: "UNKNOWN", reason: "its supervisor does not answer" });
    } catch (error) {
      if (isStale()) return;
      this.#options.log("cannot tell what became of an app", { app: id, error });
      this.#become({ ...this.#status, state: "UNKNOWN", reason: "what became of it cannot be told" });
    } finally {
      if (this.#connection === connection) this.#connection = undefined;
      this.#changes.announce();
    }
  }

  /** Takes the status from `state.json` where no supervisor answers. */
  async #judge(state: SupervisorState | undefined): Promise<void> {
    this.#state = state;
    if (state === undefined) {
      this.#become(neverStarted);
    } else if (state.final) {
      this.#become(statusOf(state));
    } else if (state.bootId !== this.#options.bootId) {
      this.#become({
        ...statusOf({
          ...state,
          app: null,
          health: null,
          phase: "STOPPED",
          reason: "the machine was rebooted",
        }),
        lostInReboot: true,
      });
    } else {
      const { pid, startTicks } = state.supervisor;
      const alive = (await readProcessIdentity(pid))?.startTicks === startTicks;
      const reason = alive ? "its supervisor does not answer" : "its supervisor was killed";
      this.#become({ ...statusOf({ ...state, health: null, reason }), state: alive ? "UNKNOWN" : "CRASHED" });
    }
  }

  /** Ends what an earlier run left behind without a supervisor, with the owner's identity. */
  async #endLeftovers(graceMs: number): Promise<void> {
    const { identities, bootId, nodePath, supervisorPath, log } = this.#options;
    const { id, runDir, uid } = this.ref;
    const owner = await identities.as(uid);
    const state = await this.#readState(owner);
    if (state === undefined && (await owner.stat(runDir, "spec.json")) === undefined) return;
    let leftover = 0;
    if (state === undefined || (state.bootId === bootId && (!state.final || state.leftover > 0))) {
      const { stdout, stderr } = await owner.runCommand([nodePath, supervisorPath, "sweep"], {
        cwd: runDir,
        timeoutMs: graceMs + END_MARGIN_MS,
      });
      leftover = Number(/"leftover":(\d+)/.exec(stdout)?.[1] ?? Number.NaN);
      if (Number.isNaN(leftover)) {
        log("sweep failed", { app: id, stderr });
        throw new SvcError("internal", "internal", `what app "${id}" left running could not be ended`);
      }
    }
    if (state === undefined) return;
    const { reason: _, ...rest } = state;
    const ended: SupervisorState = {
      ...rest,
      phase: "STOPPED",
      app: null,
      health: null,
      leftover,
      final: true,
    };
    await owner.writeFile(runDir, "state.json", JSON.stringify(ended));
    this.#accept(ended);
  }

  async #readState(owner: Identity): Promise<SupervisorState | undefined> {
    const { id, runDir } = this.ref;
    let json: string;
    try {
      json = (await owner.readFile(runDir, "state.json", { maxBytes: MAX_STATE_BYTES })).toString();
    } catch (error) {
      if (error instanceof SvcError && error.code === "not_found") return undefined;
      // A link, a directory, more than a state can be: the owner put it there, and must not keep root from removing the app.
      if (!(error instanceof SvcError) || error.code === "unavailable") throw error;
      this.#options.log("state.json cannot be read and is passed over", { app: id, error });
      return undefined;
    }
    const state = parseState(json);
    if (state === undefined) this.#options.log("damaged state.json is passed over", { app: id });
    return state;
  }

  /**
   * Connects to a supervisor that is just being started, or takes its last word when it is gone again already.
   * @throws SvcError `start_failed` when there is neither
   */
  async #meetSupervisor(owner: Identity, runId: string, pid: number): Promise<void> {
    const { id, runDir } = this.ref;
    const deadline = Date.now() + SUPERVISOR_START_MS;
    for (let delayMs = 5; ; delayMs = Math.min(50, delayMs * 2)) {
      if ((await this.#attach()) || this.#state?.runId === runId) return;
      if (Date.now() > deadline || (await readProcessIdentity(pid)) === undefined) break;
      await sleep(delayMs);
    }
    const state = await this.#readState(owner);
    if (state?.runId === runId && state.final) {
      this.#accept(state);
      return;
    }
    const { data } = await owner.readTail(runDir, ["supervisor.err"], { maxLines: 20 });
    const lastLines = data.toString().split("\n").filter(Boolean);
    const message = `the supervisor of app "${id}" did not start`;
    throw new SvcError("failed_precondition", "start_failed", message, {
      payload: { signal: "", lastLines },
    });
  }

  #accept(state: SupervisorState): void {
    this.#state = state;
    this.#become(statusOf(state));
  }

  #become(status: ProcessStatus): void {
    this.#status = status;
    this.#changes.announce();
    this.#onChange(status);
  }
}

function startFailed(id: string, { exits, reason }: SupervisorState): SvcError<"start_failed"> {
  const exit = exits.at(-1);
  return new SvcError(
    "failed_precondition",
    "start_failed",
    `app "${id}" did not start: ${reason ?? "it ended at once"}; see its logs`,
    {
      payload: {
        ...(typeof exit?.code === "number" && { exitCode: exit.code }),
        signal: exit?.signal ?? "",
        lastLines: exit?.lastLines ?? [],
      },
    },
  );
}
