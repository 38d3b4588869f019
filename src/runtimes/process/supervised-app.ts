import { randomUUID } from "node:crypto";
import { isDiskFull, SvcError } from "../../errors.ts";
import { noInspector } from "../../run-as/launch.ts";
import { startFailed } from "../start-failed.ts";
import type { Cgroups, LimitSpec } from "../../sys/cgroup.ts";
import { appNotRunning } from "../status-changes.ts";
import type { ProcessSpec } from "./process-spec.ts";
import type { ProcessStatus } from "./process-status.ts";
import { killRun } from "./kill-run.ts";
import { connectSupervisor, type SupervisorConnection } from "./supervisor-connection.ts";
import type { SupervisorSpec, SupervisorState } from "./supervisor-types.ts";
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
  /** An app that exits within this time after its start has failed to start. */
  settleMs: number;
  /** The daemon's cgroup subtree, if it has one. */
  cgroups?: Cgroups;
}

/** From the request until the last process is frozen. */
const freezeMs = 60_000;
const thawMs = 5_000;

/** Attempts to end processes as their owner, who may kill the helper that ends them. */
const endAttempts = 3;

/** The supervisor's log directory, relative to the run directory. */
export const logDirName = "logs";

/** The daemon's side of one app and its supervisor. Operations run one at a time; watching continues all the time. */
export class SupervisedApp {
  readonly ref: ProcessAppRef;
  readonly #options: SupervisionOptions;
  readonly #watch: SupervisorWatch;
  #isDetached = false;
  /** The connection that keeps the app frozen: the supervisor resumes the app when the connection closes. */
  #hold: { connection: SupervisorConnection; isHeld: boolean } | undefined;

  constructor(ref: ProcessAppRef, options: SupervisionOptions, onChange: (status: ProcessStatus) => void) {
    this.ref = ref;
    this.#options = options;
    this.#watch = new SupervisorWatch(ref, options, onChange);
  }

  get status(): ProcessStatus {
    return this.#watch.status;
  }

  /** The supervisor's state of the latest run, if known. */
  get state(): SupervisorState | undefined {
    return this.#watch.state;
  }

  /** See {@link ProcessRuntime.start}. */
  async start(spec: ProcessSpec): Promise<void> {
    this.#watch.beginOperation();
    if (await this.#watch.attach()) {
      if (this.status.nextRestartAtMs === undefined) return;
      // The app waits for its next restart, which would use the old specification.
      await this.#watch.requestStop(spec.stop.graceMs);
    }
    const { userHelpers, cgroups, log, nodePath, supervisorPath, settleMs, svcVersion } = this.#options;
    const { id, runDir, uid } = this.ref;
    const owner = await userHelpers.as(uid);
    // The state of the last run is not written, because it is deleted with the other leftovers.
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
      // Otherwise, if the supervisor died early, the last run's state would be taken for this one's.
      owner.removeTree(runDir, "state.json"),
    ]);
    const { pid } = await owner.spawnDetached([nodePath, supervisorPath], {
      cwd: runDir,
      env: { NODE_OPTIONS: noInspector },
      log: { root: runDir, path: "supervisor.err" },
    });
    if (cgroup !== null) await cgroups?.enter(cgroup, pid, uid);
    log.info({ app: id, pid }, "supervisor started");

    await this.#watch.attachNew(owner, runId, pid);
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
    await this.#watch.requestStop(graceMs);
    const ended = await this.#endForSure(graceMs);
    if (ended !== undefined) this.#watch.accept(ended);
    await this.#options.cgroups?.remove(this.ref.id);
    const { leftover } = this.status;
    if (leftover > 0) {
      throw new SvcError(
        "unavailable",
        `${leftover} processes of app "${this.ref.id}" do not end, not even by SIGKILL; they wait for the kernel`,
      );
    }
  }

  /** A full disk loses this state: the desired state is stored elsewhere, and the next start ends any leftovers. */
  async #storeEnd(ended: SupervisorState): Promise<void> {
    const { userHelpers, log } = this.#options;
    const { id, runDir, uid } = this.ref;
    const owner = await userHelpers.as(uid);
    try {
      await owner.writeFile(runDir, "state.json", JSON.stringify(ended));
    } catch (err) {
      if (!isDiskFull(err)) throw err;
      log.warn({ app: id, err }, "failed to store the last state of an app: the disk is full");
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
      .catch((error: unknown) => log.warn({ app: id, err: error }, "the connection to a supervisor failed"))
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

  /** See {@link ProcessRuntime.reattach}. */
  async reattach(limits: LimitSpec): Promise<ProcessStatus> {
    await this.#watch.findOut();
    const { userHelpers, cgroups, log } = this.#options;
    const { id, uid } = this.ref;
    if (cgroups !== undefined && this.state?.final === false) {
      const { user } = await userHelpers.as(uid);
      await cgroups.renew(id, user, limits).catch((err: unknown) => {
        log.warn({ app: id, err }, "failed to update the limits of a running app");
      });
    }
    return this.status;
  }

  /** Resolves once the app runs and its health check, if any, has passed. */
  async waitHealthy(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const { id } = this.ref;
    const restartsBefore = this.status.restarts;
    await this.#watch.changes.until(
      () => {
        const { state, health, healthReason, restarts, reason, nextRestartAtMs } = this.status;
        const ended = (state !== "RUNNING" && state !== "STARTING") || nextRestartAtMs !== undefined;
        if (this.state && (ended || restarts > restartsBefore || health === "unhealthy")) {
          const why = health === "unhealthy" ? `the health check fails: ${healthReason ?? ""}` : reason;
          throw failureOf(id, { ...this.state, reason: why });
        }
        return state === "RUNNING" && (health === "none" || health === "healthy");
      },
      timeoutMs,
      signal,
    );
  }

  detach(): void {
    this.#isDetached = true;
    this.#hold?.connection.close();
    this.#watch.detach();
  }

  /**
   * Like {@link #endLeftovers}, but falls back to root, because the owner may kill each helper that ends the
   * processes.
   */
  async #endForSure(graceMs: number): Promise<SupervisorState | undefined> {
    const { userHelpers, cgroups, log } = this.#options;
    const { id, uid } = this.ref;
    for (let attempt = 1; ; attempt++) {
      try {
        const ended = await this.#endLeftovers(graceMs);
        if (ended !== undefined) await this.#storeEnd(ended);
        return ended;
      } catch (err) {
        // A daemon that stops ends its helpers itself.
        if (userHelpers.selfUid !== 0 || uid === 0 || this.#isDetached) throw err;
        log.warn({ app: id, attempt, err }, "failed to end processes of an app as its owner");
        const isTooLate = err instanceof SvcError && err.code === "deadline_exceeded";
        if (isTooLate || attempt === endAttempts) break;
      }
    }
    const { state } = this;
    const run = state && {
      ...{ appId: id, ownerUid: uid, runId: state.runId },
      ...(state.app && { pid: state.app.pid }),
    };
    const leftover = await killRun(uid, {
      ...{ cgroup: cgroups?.pathOf(id), run, supervisor: state?.supervisor },
    });
    return state && endedState(state, leftover);
  }

  /**
   * Ends the leftovers of an earlier run without a supervisor, as the owner.
   * @returns the final state of that run; undefined if there was no run
   */
  async #endLeftovers(graceMs: number): Promise<SupervisorState | undefined> {
    const { userHelpers, bootId, nodePath, supervisorPath, log } = this.#options;
    const { id, runDir, uid } = this.ref;
    const owner = await userHelpers.as(uid);
    const state = await this.#watch.readState(owner);
    if (state === undefined && (await owner.stat(runDir, "spec.json")) === undefined) return undefined;
    let leftover = 0;
    if (state === undefined || (state.bootId === bootId && (!state.final || state.leftover > 0))) {
      const { stdout, stderr } = await owner.runCommand([nodePath, supervisorPath, "sweep"], {
        cwd: runDir,
        env: { NODE_OPTIONS: noInspector },
        timeoutMs: graceMs + endMarginMs,
      });
      leftover = Number(/"leftover":(\d+)/.exec(stdout)?.[1] ?? Number.NaN);
      if (Number.isNaN(leftover)) {
        log.warn({ app: id, stderr }, "failed to end the leftover processes of an app");
        throw new SvcError("internal", `failed to end the leftover processes of app "${id}"`);
      }
    }
    return state && endedState(state, leftover);
  }
}

function endedState({ reason: _, ...rest }: SupervisorState, leftover: number): SupervisorState {
  return { ...rest, phase: "STOPPED", app: null, health: null, leftover, final: true };
}

function failureOf(id: string, { exits, reason }: SupervisorState): SvcError<"start_failed"> {
  const { code, signal, lastLines } = exits.at(-1) ?? {};
  return startFailed(id, reason ?? "the program stopped at once", {
    exitCode: code ?? undefined,
    signal: signal ?? undefined,
    lastLines,
  });
}
