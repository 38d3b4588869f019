/** One app as systemd runs it: what is known of its unit, and who waits for it. */
import { portHealth } from "../port-health.ts";
import { followPort, type PortProbe } from "../port-probe.ts";
import { stoppedStatus, type RunnableApp, type RuntimeStatus } from "../runtime.ts";
import { ToldApp } from "../told-app.ts";
import { unitPath } from "./app-unit.ts";
import type { MainExit } from "./journal.ts";
import type { UnitProperties } from "./systemd.ts";
import { restartsOf, unitStatus } from "./unit-status.ts";

export interface ServiceAppOptions {
  readonly bootedAtMs: number;
  /** What its unit printed last. */
  readonly lastLines: (app: RunnableApp) => Promise<readonly string[]>;
  /** How its main process ended last, before systemd started it again. */
  readonly lastExit: (app: RunnableApp) => Promise<MainExit | undefined>;
  /** Why what listens on a port is not the app. */
  readonly whyForeign: (port: number) => Promise<string | undefined>;
  /** Called when the status is another one. */
  readonly onChange: () => void;
}

/** How its main process ended before one of its restarts by systemd. */
interface LastExit {
  readonly restarts: number;
  /** Absent: the journal has not said it yet. */
  readonly exit?: MainExit;
  /** How often the journal was asked. */
  readonly looks: number;
}

/** Not every host keeps a journal. */
const maxLooks = 5;

export class ServiceApp extends ToldApp {
  readonly #options: ServiceAppOptions;
  #app: RunnableApp;
  #isWanted = false;
  #unit: UnitProperties | undefined;
  #lastLines: readonly string[] = [];
  #lastExit: LastExit | undefined;
  /** Cursor of the end that was read last. */
  #before: string | undefined;
  /** Shown instead of what systemd says, while an operation goes on. */
  #underway: "STARTING" | "STOPPING" | undefined;
  #probe: PortProbe | undefined;
  #isFrozen = false;

  constructor(app: RunnableApp, options: ServiceAppOptions) {
    super(app.id, options.onChange);
    this.#app = app;
    this.#options = options;
  }

  /** The control group of its unit, while that has one. */
  get controlGroup(): string | undefined {
    if (this.#unit?.["FragmentPath"] !== unitPath(this.#app.id)) return undefined;
    return this.#unit["ControlGroup"] || undefined;
  }

  /** As it was started, adopted or stopped last. */
  get app(): RunnableApp {
    return this.#app;
  }

  /** An operation begins. */
  begin(app: RunnableApp, state: "STARTING" | "STOPPING"): void {
    this.#app = app;
    this.#underway = state;
    this.#lastExit = undefined;
    this.#publish();
  }

  /** Runs, or is to run, from now on; or is not to any more. */
  settle(app: RunnableApp, isWanted: boolean): void {
    this.#app = app;
    this.#isWanted = isWanted;
    this.#underway = undefined;
    this.#publish();
  }

  /** It stays as healthy as it was while it is frozen. */
  hold(isFrozen: boolean): void {
    this.#isFrozen = isFrozen;
    this.#probe?.hold(isFrozen);
    this.#publish();
  }

  /** Takes up what systemd says now. */
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
    const looks = known?.looks ?? 0;
    if (known?.exit !== undefined || looks >= maxLooks) return known;
    const exit = await this.#options.lastExit(this.#app).catch(() => undefined);
    // The journal may be behind: then its last word is of the restart before.
    const isNew = exit !== undefined && exit.cursor !== this.#before;
    if (isNew) this.#before = exit.cursor;
    return { restarts, looks: looks + 1, ...(isNew && { exit }) };
  }

  #watchPort(): void {
    this.#probe = followPort(this.#probe, this.#fromUnit(), {
      specOf: () => portHealth(this.#app),
      onChange: () => this.#publish(),
      whyForeign: this.#options.whyForeign,
    });
    this.#probe?.hold(this.#isFrozen);
  }

  #fromUnit(): RuntimeStatus {
    const status = this.#unitStatus();
    return this.#isFrozen && status.state === "RUNNING" ? { ...status, reason: "it is paused" } : status;
  }

  #unitStatus(): RuntimeStatus {
    return unitStatus(this.#unit, {
      isWanted: this.#isWanted,
      manifest: this.#app.manifest,
      bootedAtMs: this.#options.bootedAtMs,
      lastLines: this.#lastLines,
      ...(this.#lastExit?.exit && { lastExit: this.#lastExit.exit }),
    });
  }

  #publish(): void {
    this.tell(this.#currentStatus());
  }

  #currentStatus(): RuntimeStatus {
    if (this.#underway !== undefined) return { ...stoppedStatus, state: this.#underway };
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
