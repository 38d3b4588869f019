/** The observed state of one app under systemd. */
import { portHealth } from "../port-health.ts";
import { followPort, type PortProbe } from "../port-probe.ts";
import { stoppedStatus, type RuntimeStatus } from "../runtime-status.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { ObservedApp } from "../containers/observed-app.ts";
import type { MainExit } from "./journal.ts";
import type { UnitProperties } from "./systemd.ts";
import { restartsOf, unitStatus } from "./unit-status.ts";

export interface ServiceAppOptions {
  readonly bootedAtMs: number;
  /** The last log lines of the app's unit. */
  readonly lastLines: (app: RunnableApp) => Promise<readonly string[]>;
  /** How its main process ended before systemd last restarted it. */
  readonly lastExit: (app: RunnableApp) => Promise<MainExit | undefined>;
  /** Why the listener at a port is not the app. */
  readonly explainPortConflict: (port: number) => Promise<string | undefined>;
  /** Called when the status changes. */
  readonly onChange: () => void;
}

/** How the main process ended before one of its restarts by systemd. */
interface LastExit {
  readonly restarts: number;
  /** Absent until the journal has the record. */
  readonly exit?: MainExit;
  /** Number of times the journal was read. */
  readonly reads: number;
}

/** Limited, because not every host has a journal. */
const maxReads = 5;

export class ServiceApp extends ObservedApp {
  readonly #options: ServiceAppOptions;
  #app: RunnableApp;
  #shouldRun = false;
  #unit: UnitProperties | undefined;
  #lastLines: readonly string[] = [];
  #lastExit: LastExit | undefined;
  /** Cursor of the exit that was read last. */
  #lastExitCursor: string | undefined;
  /** Shown instead of systemd's state during an operation. */
  #transition: "STARTING" | "STOPPING" | undefined;
  #probe: PortProbe | undefined;
  #isFrozen = false;

  constructor(app: RunnableApp, options: ServiceAppOptions) {
    super(app.id, options.onChange);
    this.#app = app;
    this.#options = options;
  }

  /** The unit's control group, while it has one. */
  get controlGroup(): string | undefined {
    return this.#unit?.["ControlGroup"] || undefined;
  }

  /** The app as last started, reattached or stopped. */
  get app(): RunnableApp {
    return this.#app;
  }

  /** Marks the start of an operation. */
  begin(app: RunnableApp, state: "STARTING" | "STOPPING"): void {
    this.#app = app;
    this.#transition = state;
    this.#lastExit = undefined;
    this.#publish();
  }

  /** Marks the end of an operation with the desired state. */
  settle(app: RunnableApp, shouldRun: boolean): void {
    this.#app = app;
    this.#shouldRun = shouldRun;
    this.#transition = undefined;
    this.#publish();
  }

  /** Keeps the health unchanged while the app is frozen. */
  hold(isFrozen: boolean): void {
    this.#isFrozen = isFrozen;
    this.#probe?.hold(isFrozen);
    this.#publish();
  }

  /** Applies systemd's current state. */
  async take(unit: UnitProperties | undefined): Promise<void> {
    const hasFailed = unit?.["ActiveState"] === "failed";
    if (hasFailed && this.#unit?.["ActiveState"] !== "failed") {
      this.#lastLines = await this.#options.lastLines(this.#app);
    }
    this.#lastExit = await this.#readLastExit(restartsOf(unit));
    this.#unit = unit;
    this.#watchPort();
    this.#publish();
  }

  async #readLastExit(restarts: number): Promise<LastExit | undefined> {
    if (restarts === 0) return undefined;
    const known = this.#lastExit?.restarts === restarts ? this.#lastExit : undefined;
    const reads = known?.reads ?? 0;
    if (known?.exit !== undefined || reads >= maxReads) return known;
    const exit = await this.#options.lastExit(this.#app).catch(() => undefined);
    // The journal may be late and still return the exit before the previous restart.
    const isNew = exit !== undefined && exit.cursor !== this.#lastExitCursor;
    if (isNew) this.#lastExitCursor = exit.cursor;
    return { restarts, reads: reads + 1, ...(isNew && { exit }) };
  }

  #watchPort(): void {
    this.#probe = followPort(this.#probe, this.#fromUnit(), {
      specOf: () => portHealth(this.#app),
      onChange: () => this.#publish(),
      explainPortConflict: this.#options.explainPortConflict,
    });
    this.#probe?.hold(this.#isFrozen);
  }

  #fromUnit(): RuntimeStatus {
    const status = this.#unitStatus();
    return this.#isFrozen && status.state === "RUNNING" ? { ...status, reason: "the app is paused" } : status;
  }

  #unitStatus(): RuntimeStatus {
    return unitStatus(this.#unit, {
      shouldRun: this.#shouldRun,
      manifest: this.#app.manifest,
      bootedAtMs: this.#options.bootedAtMs,
      lastLines: this.#lastLines,
      ...(this.#lastExit?.exit && { lastExit: this.#lastExit.exit }),
    });
  }

  #publish(): void {
    this.setStatus(this.#currentStatus());
  }

  #currentStatus(): RuntimeStatus {
    if (this.#transition !== undefined) return { ...stoppedStatus, state: this.#transition };
    const status = this.#fromUnit();
    if (status.state !== "RUNNING" || this.#probe === undefined) return status;
    const { health, reason } = this.#probe;
    return { ...status, health, ...(reason !== undefined && { healthReason: reason }) };
  }

  detach(): void {
    this.#probe?.[Symbol.dispose]();
    this.#probe = undefined;
  }
}
