/** The life cycle of one app: its runs, the pauses between them, and its end. */
import { setTimeout as sleep } from "node:timers/promises";
import { loadPipeEnds } from "../../sys/pipe-ends.mjs";
import { describeExit, exitCodeOf } from "./app-exit.mjs";
import { startApp } from "./app-process.mjs";
import { AppTerminal } from "./app-terminal.mjs";
import { ControlServer } from "./control-server.mjs";
import { endProcesses } from "./ending.mjs";
import { Freezer } from "./freezing.mjs";
import { HealthCheck } from "./health-check.mjs";
import { initialState } from "./initial-state.mjs";
import { LogWriter } from "./log-writer.mjs";
import { monotonicMs } from "./monotonic.mjs";
import { waitForCgroup } from "./own-cgroup.mjs";
import { OwnListener } from "./own-listener.mjs";
import { RestartPolicy } from "./restart-policy.mjs";
import { StateFile } from "./state-file.mjs";

/** @import { OpenPipe } from "../../sys/pipe-ends.mjs" */
/** @import { AppExit, AppProcess } from "./app-process.mjs" */
/** @import { SupervisorPhase, SupervisorSpec, SupervisorState } from "./supervisor-types.ts" */

const maxExits = 10;
/** The output counts as complete after this long without output since the last process ended. */
const drainMs = 1000;

export class SupervisedRuns {
  #spec;
  #state;
  #log;
  /** @type {AppTerminal | undefined} */
  #terminal;
  #server;
  #policy;
  #run;
  #freezer;
  /** Health check of the current run. @type {HealthCheck | null} */
  #health = null;
  /** @type {StateFile<SupervisorState>} */
  #stateFile = new StateFile(".", "state.json");
  #stop = new AbortController();
  /** @type {number | undefined} */
  #stopGraceMs;
  /** @type {string | undefined} */
  #interruptedBy;

  /** @param {SupervisorSpec} spec */
  constructor(spec) {
    this.#spec = spec;
    this.#state = initialState(spec);
    this.#policy = new RestartPolicy(spec.restart);
    this.#run = {
      runId: spec.runId,
      startTicks: this.#state.supervisor.startTicks,
      uid: process.getuid?.() ?? 0,
      sessions: new Set(),
      exclude: process.pid,
    };
    this.#freezer = new Freezer(this.#run, spec.cgroup && `${spec.cgroup}/app`);
    this.#log = new LogWriter({
      directory: spec.logDir,
      maxBytes: spec.logMaxBytes,
      maxFiles: spec.logMaxFiles,
      onAdvance: () => this.#server.publishLog(),
    });
    const { appId, runId, svcVersion } = spec;
    const { bootId, supervisor } = this.#state;
    this.#server = new ControlServer(
      { svcVersion, appId, runId, bootId, ...supervisor },
      {
        state: () => this.#state,
        stop: (graceMs) => this.stop(graceMs),
        freeze: () => this.#freeze(),
        thaw: () => this.#thaw(),
        log: this.#log,
        terminal: () => this.#terminal,
      },
    );
  }

  /** @param {number} [graceMs] overrides the specification */
  stop(graceMs) {
    this.#stopGraceMs = graceMs;
    this.#thaw();
    this.#stop.abort();
  }

  /**
   * Ends the app and then the supervisor, for example when the host shuts down. The app is still meant to run.
   * @param {string} signal
   */
  interrupt(signal) {
    if (this.#stop.signal.aborted) return;
    this.#interruptedBy = signal;
    this.stop();
  }

  /** @param {string} text */
  note(text) {
    return this.#log.note(text);
  }

  /** Supervises the app until it stops or crashes for good. */
  async supervise() {
    await this.#server.listen();
    await this.#log.open();
    try {
      if (this.#spec.terminal === true) this.#terminal = new AppTerminal(this.#log);
      const output = this.#terminal ?? loadPipeEnds();
      if (this.#spec.cgroup !== null) await waitForCgroup(this.#spec.cgroup);
      await this.#runUntilDone(output);
    } catch (error) {
      this.#state.startFailed = !this.#state.settled;
      this.#become("CRASHED", `the app could not be supervised: ${String(error)}`);
    }
    await this.#finish();
  }

  /** @param {AppTerminal | OpenPipe} output */
  async #runUntilDone(output) {
    for (;;) {
      const exit = await this.#runOnce(output);
      if (this.#stop.signal.aborted) {
        this.#becomeStopped();
        return;
      }
      if (!this.#state.settled) {
        this.#state.startFailed = true;
        const { error = `${describeExit(exit)} right after its start` } = exit;
        this.#become("CRASHED", error);
        return;
      }
      const next = this.#policy.next(exit);
      if ("giveUp" in next) {
        this.#become(next.failed ? "CRASHED" : "STOPPED", `${describeExit(exit)}; ${next.giveUp}`);
        return;
      }
      const restarts = this.#state.restarts === 1 ? "1 restart" : `${this.#state.restarts} restarts`;
      this.#become("STARTING", `BACKOFF after ${restarts}: ${describeExit(exit)}`);
      this.#state.nextRestartAt = new Date(Date.now() + next.delayMs).toISOString();
      await this.#saveAndPublish();
      await this.#log.note(`${describeExit(exit)}; svc starts it again in ${next.delayMs} ms`);
      try {
        await sleep(next.delayMs, undefined, { signal: this.#stop.signal });
        await this.#freezer.thawed;
        this.#stop.signal.throwIfAborted();
      } catch {
        this.#becomeStopped();
        return;
      } finally {
        delete this.#state.nextRestartAt;
      }
      this.#state.restarts++;
    }
  }

  #becomeStopped() {
    if (this.#interruptedBy === undefined) {
      this.#become("STOPPED");
      return;
    }
    this.#state.interrupted = true;
    this.#become("STOPPED", `the app's supervisor received ${this.#interruptedBy}, not from svc`);
  }

  /**
   * Runs the app once, until all its processes have ended and all output is in the log.
   * @param {AppTerminal | OpenPipe} output
   */
  async #runOnce(output) {
    this.#log.forgetLines();
    const startedMs = monotonicMs();
    const app = startApp(this.#spec, this.#log, output);
    this.#run.sessions = new Set(app.pid === undefined ? [] : [app.pid]);
    const startedAt = new Date().toISOString();
    this.#state.app = app.pid === undefined ? null : { pid: app.pid, startTicks: app.startTicks, startedAt };
    this.#state.health = this.#spec.health && "starting";
    this.#become("STARTING");
    const health = this.#spec.health && this.#watchHealth(this.#spec.health);
    this.#health = health;
    const settle = setTimeout(() => this.#becomeRunning(), this.#spec.settleMs);
    // At once, even while the start's state is still being written to a slow disk.
    void app.exited.then(() => clearTimeout(settle));
    await this.#saveAndPublish();

    await Promise.race([app.exited, aborted(this.#stop.signal)]);
    clearTimeout(settle);
    health?.stop();
    if (this.#stop.signal.aborted) {
      this.#become("STOPPING");
      void this.#saveAndPublish();
    }
    const exit = await this.#endRun(app);
    this.#terminal?.ended(exitCodeOf(exit));
    this.#state.app = null;
    this.#state.health = null;
    delete this.#state.healthReason;
    const lastLines = this.#log.lastLines;
    const at = new Date().toISOString();
    const record = { ...exit, at, ranMs: Math.round(monotonicMs() - startedMs), lastLines };
    this.#state.exits = [...this.#state.exits, record].slice(-maxExits);
    return record;
  }

  /**
   * Ends the remaining processes: all of the app's if it is to stop, or what its main process left behind.
   * @param {AppProcess} app
   * @returns {Promise<AppExit>}
   */
  async #endRun(app) {
    const { signal, graceMs } = this.#spec.stop;
    const cgroup = this.#spec.cgroup && `${this.#spec.cgroup}/app`;
    this.#state.leftover = await endProcesses(this.#run, {
      signal,
      graceMs: this.#stopGraceMs ?? graceMs,
      cgroup,
    });
    // With no process left, the exit event is due at once; do not wait for a process that cannot be killed.
    const exit = await Promise.race([app.exited, sleep(drainMs, undefined, { ref: false })]);
    await app.drain(drainMs);
    return exit ?? { code: null, signal: null, error: "the main process cannot be killed" };
  }

  /** @param {NonNullable<SupervisorSpec["health"]>} health */
  #watchHealth(health) {
    const listener = new OwnListener(this.#run);
    return new HealthCheck(
      this.#spec,
      health,
      (state, reason) => {
        this.#state.health = state;
        if (reason === undefined) delete this.#state.healthReason;
        else this.#state.healthReason = reason;
        void this.#saveAndPublish();
      },
      {
        explainPortConflict: (port) => listener.explainPortConflict(port),
        openPorts: () => listener.openPorts(),
        otherAddress: (port) => listener.otherAddress(port),
      },
    );
  }

  #becomeRunning() {
    this.#state.settled = true;
    this.#become("RUNNING");
    void this.#saveAndPublish();
  }

  /**
   * @param {SupervisorPhase} phase
   * @param {string} [reason]
   */
  #become(phase, reason) {
    this.#state.phase = phase;
    if (reason === undefined) delete this.#state.reason;
    else this.#state.reason = reason;
  }

  /** Writes the state, then publishes it. A full disk delays neither the app nor the notification. */
  async #saveAndPublish() {
    await this.#stateFile.save(this.#state).catch(() => undefined);
    this.#server.publishState();
  }

  /** A frozen app answers no probe, which says nothing about its health. */
  async #freeze() {
    this.#health?.hold();
    try {
      await this.#freezer.freeze();
    } catch (error) {
      this.#health?.release();
      throw error;
    }
    this.#state.frozen = true;
    await this.#saveAndPublish();
  }

  #thaw() {
    this.#freezer.thaw();
    this.#health?.release();
    if (this.#state.frozen === undefined) return;
    delete this.#state.frozen;
    void this.#saveAndPublish();
  }

  async #finish() {
    if (this.#state.reason !== undefined) await this.#log.note(this.#state.reason);
    await this.#log.close();
    this.#state.final = true;
    await this.#saveAndPublish();
    await this.#server.close();
  }
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function aborted(signal) {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
