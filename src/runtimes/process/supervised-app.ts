import { randomUUID } from "node:crypto";
import { isDiskFull, SvcError } from "../../errors.ts";
import { startFailed } from "../start-failed.ts";
import type { Cgroups } from "./cgroup.ts";
import { appNotRunning } from "../status-changes.ts";
import type { ProcessSpec } from "./process-spec.ts";
import type { ProcessStatus } from "./process-status.ts";
import { connectSupervisor, type SupervisorConnection } from "./supervisor-connection.ts";
import type { LimitSpec, SupervisorSpec, SupervisorState } from "./supervisor-types.ts";
import {
  endMarginMs,
  supervisorStartMs,
  SupervisorWatch,
  type ProcessAppRef,
  type SupervisorWatchOptions,
} from "./supervisor-watch.ts";

export interface SupervisionOptions extends SupervisorWatchOptions {
  svcVersion: string;
  /** Path of node; every owner must be able to execute it. */
  nodePath: string;
  /** Path of `supervisor.mjs`; every owner must be able to read it. */
  supervisorPath: string;
  /** An app that exits this soon after its start has failed to start. */
  settleMs: number;
  /** The daemon's own cgroup subtree, where it has one. */
  cgroups?: Cgroups;
}

/** From asking a supervisor until the last process is frozen. */
const freezeMs = 60_000;
const thawMs = 5_000;

/** Where the supervisor keeps the log, in the run directory. */
export const logDirName = "logs";

/** One app and its supervisor, from the daemon's side. Operations on it come one at a time; watching goes on all the time. */
export class SupervisedApp {
  readonly ref: ProcessAppRef;
  readonly #options: SupervisionOptions;
  readonly #watch: SupervisorWatch;
  /** What keeps the app frozen: its supervisor lets it go on when this ends. */
  #hold: { connection: SupervisorConnection; isHeld: boolean } | undefined;

  constructor(ref: ProcessAppRef, options: SupervisionOptions, onChange: (status: ProcessStatus) => void) {
    this.ref = ref;
    this.#options = options;
    this.#watch = new SupervisorWatch(ref, options, onChange);
  }

  get status(): ProcessStatus {
    return this.#watch.status;
  }

  /** The supervisor's own account of the latest run, when one is known. */
  get state(): SupervisorState | undefined {
    return this.#watch.state;
  }

  /** See {@link ProcessRuntime.start}. */
  async start(spec: ProcessSpec): Promise<void> {
    this.#watch.beginOperation();
    if (await this.#watch.attach()) {
      if (this.status.nextRestartAtMs === undefined) return;
      // It waits for its next restart, which would be as it was started before.
      await this.#watch.askToStop(spec.stop.graceMs);
    }
    const { identities, cgroups, log, nodePath, supervisorPath, settleMs, svcVersion } = this.#options;
    const { id, runDir, uid } = this.ref;
    const owner = await identities.as(uid);
    // What it says of the last run is not written down: it goes with the rest of that.
    const ended = await this.#endLeftovers(spec.stop.graceMs);
    if (ended !== undefined) this.#watch.accept(ended);

    const cgroup = cgroups ? await cgroups.create(id, owner.user, spec.limits) : null;
    const runId = randomUUID();
    const whole: SupervisorSpec = {
      ...spec,
      version: 1,
      svcVersion,
      appId: id,
      runId,
      logDir: logDirName,
      cgroup,
      settleMs,
    };
    await Promise.all([
      owner.writeFile(runDir, "spec.json", JSON.stringify(whole)),
      // What the last run left would pass for this one's, should the supervisor die before it writes its own.
      owner.removeTree(runDir, "state.json"),
    ]);
    const { pid } = await owner.spawnDetached([nodePath, supervisorPath], {
      cwd: runDir,
      log: { root: runDir, path: "supervisor.err" },
    });
    if (cgroup !== null) await cgroups?.enter(cgroup, pid, uid);
    log.info({ app: id, pid }, "supervisor started");

    await this.#watch.meet(owner, runId, pid);
    await this.#watch.changes.until(() => {
      const { state, isConnected } = this.#watch;
      if (state?.runId !== runId) return false;
      const isOver = state.final || !isConnected;
      if (isOver && !state.settled) throw failureOf(id, state);
      return state.settled;
    }, settleMs + supervisorStartMs);
  }

  /** See {@link ProcessRuntime.stop}. */
  async stop(graceMs: number): Promise<void> {
    this.#watch.beginOperation();
    await this.#watch.askToStop(graceMs);
    const ended = await this.#endLeftovers(graceMs);
    if (ended !== undefined) {
      await this.#keepEnd(ended);
      this.#watch.accept(ended);
    }
    await this.#options.cgroups?.remove(this.ref.id);
    const { leftover } = this.status;
    if (leftover > 0) {
      throw new SvcError(
        "unavailable",
        `${leftover} processes of app "${this.ref.id}" do not end, not even by SIGKILL; they wait for the kernel`,
      );
    }
  }

  /** On a full disk it is lost: that the app is not meant to run is written elsewhere, and who starts it looks for leftovers. */
  async #keepEnd(ended: SupervisorState): Promise<void> {
    const { identities, log } = this.#options;
    const { id, runDir, uid } = this.ref;
    const owner = await identities.as(uid);
    try {
      await owner.writeFile(runDir, "state.json", JSON.stringify(ended));
    } catch (err) {
      if (!isDiskFull(err)) throw err;
      log.warn({ app: id, err }, "how an app ended is not kept: the disk is full");
    }
  }

  /** See {@link ProcessRuntime.freeze}. */
  async freeze(): Promise<void> {
    const { id } = this.ref;
    const { log } = this.#options;
    const connection = await connectSupervisor(this.ref, this.#options);
    if (connection === undefined) throw appNotRunning(id);
    const hold = { connection, isHeld: true };
    void connection
      .watch(() => undefined)
      .catch((error: unknown) => log.warn({ app: id, err: error }, "talk with a supervisor failed"))
      .finally(() => (hold.isHeld = false));
    try {
      await connection.request({ cmd: "freeze" }, freezeMs);
    } catch (error) {
      connection.close();
      throw error;
    }
    this.#hold = hold;
  }

  /** See {@link ProcessRuntime.thaw}. */
  async thaw(): Promise<boolean> {
    const wasHeld = this.#hold?.isHeld === true;
    this.#hold?.connection.close();
    this.#hold = undefined;
    const { changes } = this.#watch;
    await changes.until(() => !this.#watch.isConnected || this.#watch.state?.frozen !== true, thawMs);
    return wasHeld;
  }

  /** See {@link ProcessRuntime.adopt}. */
  async adopt(limits: LimitSpec): Promise<ProcessStatus> {
    await this.#watch.findOut();
    const { identities, cgroups, log } = this.#options;
    const { id, uid } = this.ref;
    if (cgroups !== undefined && this.state?.final === false) {
      const { user } = await identities.as(uid);
      await cgroups.renew(id, user, limits).catch((err: unknown) => {
        log.warn({ app: id, err }, "the limits of an app that went on could not be set anew");
      });
    }
    return this.status;
  }

  /** Resolves once the app runs and its health check, if it has one, has passed. */
  async waitHealthy(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const { id } = this.ref;
    const restartsBefore = this.status.restarts;
    await this.#watch.changes.until(
      () => {
        const { state, health, healthReason, restarts, reason, nextRestartAtMs } = this.status;
        const ended = (state !== "RUNNING" && state !== "STARTING") || nextRestartAtMs !== undefined;
        if (this.state && (ended || restarts > restartsBefore || health === "unhealthy")) {
          const why = health === "unhealthy" ? `its health check fails: ${healthReason ?? ""}` : reason;
          throw failureOf(id, { ...this.state, reason: why });
        }
        return state === "RUNNING" && (health === "none" || health === "healthy");
      },
      timeoutMs,
      signal,
    );
  }

  detach(): void {
    this.#hold?.connection.close();
    this.#watch.detach();
  }

  /**
   * Ends what an earlier run left behind without a supervisor, with the owner's identity.
   * @returns what is to be said of that run; undefined where there was none
   */
  async #endLeftovers(graceMs: number): Promise<SupervisorState | undefined> {
    const { identities, bootId, nodePath, supervisorPath, log } = this.#options;
    const { id, runDir, uid } = this.ref;
    const owner = await identities.as(uid);
    const state = await this.#watch.readState(owner);
    if (state === undefined && (await owner.stat(runDir, "spec.json")) === undefined) return undefined;
    let leftover = 0;
    if (state === undefined || (state.bootId === bootId && (!state.final || state.leftover > 0))) {
      const { stdout, stderr } = await owner.runCommand([nodePath, supervisorPath, "sweep"], {
        cwd: runDir,
        timeoutMs: graceMs + endMarginMs,
      });
      leftover = Number(/"leftover":(\d+)/.exec(stdout)?.[1] ?? Number.NaN);
      if (Number.isNaN(leftover)) {
        log.warn({ app: id, stderr }, "sweep failed");
        throw new SvcError("internal", `what app "${id}" left running could not be ended`);
      }
    }
    if (state === undefined) return undefined;
    const { reason: _, ...rest } = state;
    return { ...rest, phase: "STOPPED", app: null, health: null, leftover, final: true };
  }
}

function failureOf(id: string, { exits, reason }: SupervisorState): SvcError<"start_failed"> {
  const { code, signal, lastLines } = exits.at(-1) ?? {};
  return startFailed(id, reason ?? "it ended at once", {
    exitCode: code ?? undefined,
    signal: signal ?? undefined,
    lastLines,
  });
}
