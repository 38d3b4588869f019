/**
 * Runs apps as units of the host's systemd, which restarts them by their manifest's policy even without the daemon.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { Log } from "../../lib/log.ts";
import { Ticker } from "../../lib/clock.ts";
import { FollowingRuntime } from "../followed-apps.ts";
import { limitsOf } from "../limits.ts";
import type { AppRuntime, FollowLogOptions, LogOptions } from "../contract.ts";
import type {
  RuntimeLimit,
  RuntimeUsage,
  FreezingRuntime,
  UsageRuntime,
  ExternallyStartedRuntime,
} from "../capabilities.ts";
import { isUp } from "../runtime-status.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { LogChunk } from "../../logs/log-chunk.ts";
import { startFailed } from "../start-failed.ts";
import { AppUnits, isAppUnit, isPrivileged, packageUnitPath, unitName } from "./app-unit.ts";
import { ServiceApp } from "./service-app.ts";
import { ServiceLogs } from "./service-logs.ts";
import { Systemd, type UnitProperties } from "./systemd.ts";
import { hasExited, statusProperties, unitStatus, whyEnded } from "./unit-status.ts";
import { keepsExit } from "./unit-text.ts";
import { usageBetween, usageProperties } from "./unit-usage.ts";

export interface ServiceRuntimeOptions {
  userHelpers: UserHelpers;
  storeId: string;
  /** Directory of the units' environment files; absolute. */
  dir: string;
  /** PATH of apps. */
  searchPath: string;
  /** An app that ends within this time after its start has failed to start. */
  settleMs: number;
  bootedAtMs: number;
  /** Whether systemd runs on this host and accepts this daemon's requests. */
  isHere: boolean;
  /** Limits that systemd can enforce on this host. */
  enforces: { memory: boolean; cpus: boolean };
  /** Why the listener at a port is not this app; `undefined` if it is, or if that is unknown. */
  explainPortConflict: (appId: string, port: number) => Promise<string | undefined>;
  log: Pick<Log, "warn">;
}

/** Present where packages of this runtime can be installed. */
export const serviceCapability = "app.service";

/** Poll interval while there are apps of this runtime. */
const pollMs = 2_000;
const statsWindowMs = 500;
const startMs = 11 * 60_000;
const stopSlackMs = 120_000;
/** systemd waits for `ExecStop`, SIGTERM, SIGKILL and `ExecStopPost`, each for the grace period. */
const stopPhases = 4;
const phasesSlackMs = 30_000;
/** Interval of SIGKILLs for a unit that extends its own timeouts, and when to give up. */
const killAgainMs = 250;
const killMs = 60_000;
const pattern = "svc-*.service";

/** Callers run only one operation per app at a time. */
export class ServiceRuntime extends FollowingRuntime<ServiceApp> implements AppRuntime {
  readonly freezing: FreezingRuntime = this;
  readonly usage: UsageRuntime = this;
  readonly external: ExternallyStartedRuntime = this;

  readonly #options: ServiceRuntimeOptions;
  readonly #units: AppUnits;
  readonly #systemd: Systemd;
  readonly #logs: ServiceLogs;
  /** Units with running processes at the last poll. */
  #up: ReadonlySet<string> = new Set();
  #polls: Ticker | undefined;

  constructor(options: ServiceRuntimeOptions) {
    super();
    this.#options = options;
    this.#units = new AppUnits(options);
    this.#systemd = new Systemd(options.userHelpers);
    this.#logs = new ServiceLogs(options);
  }

  get whyAbsent(): string | undefined {
    if (this.#options.isHere) return undefined;
    return "service packages cannot be installed here: the host does not use systemd, or svc's daemon does not run as root";
  }

  async prepare(app: RunnableApp): Promise<void> {
    this.#requireSystemd();
    if (app.checkout !== undefined) {
      await this.#units.check(app);
      return;
    }
    await this.#requireOwnName(app.id);
    if (await this.#units.write(app)) await this.#systemd.reload();
  }

  /**
   * An app's unit would replace one of a package of the host, which has a lower priority, with its running processes.
   * A package that is newer than the app gets its unit back, unless the app runs.
   * @throws SvcError `already_exists`
   */
  async #requireOwnName(id: string): Promise<void> {
    const name = unitName(id);
    const found = (await this.#loaded(name)).get(name);
    const isOther = found !== undefined && !isAppUnit(found);
    const path = isOther ? (found["FragmentPath"] ?? "") : await packageUnitPath(id);
    if (path === undefined) return;
    const isEnded = ["inactive", "failed"].includes(found?.["ActiveState"] ?? "inactive");
    if (!isOther && isEnded && (await this.#units.remove(id))) await this.#systemd.reload();
    const message = `systemd already has another unit ${name}: ${path || "unknown path"}; choose another ID for the app`;
    throw new SvcError("already_exists", message);
  }

  async settle(): Promise<void> {}

  async check(app: RunnableApp): Promise<void> {
    this.#requireSystemd();
    await this.#units.check(app);
  }

  async start(app: RunnableApp): Promise<void> {
    this.#requireSystemd();
    const known = this.#appOf(app);
    known.begin(app, "STARTING");
    let shouldRun = false;
    try {
      await this.prepare(app);
      await this.#launch(app);
      shouldRun = true;
    } finally {
      known.settle(app, shouldRun);
      await this.#poll().catch(() => undefined);
    }
  }

  async #launch(app: RunnableApp): Promise<void> {
    const unit = unitName(app.id);
    const found = await this.#shown(unit);
    await this.#endExited(app.id, found);
    await this.#systemd.resetFailed(unit);
    const refusal = await this.#systemd.start(unit, startMs).then(
      () => undefined,
      (error: unknown) => error,
    );
    if (refusal === undefined) await sleep(this.#options.settleMs);
    const shown = await this.#shown(unit);
    const isFine =
      refusal === undefined &&
      shown?.["ActiveState"] === "active" &&
      !(keepsExit(app.manifest) && hasExited(shown)) &&
      shown["NRestarts"] === "0";
    if (isFine) return;
    const lastLines = await this.#logs.lastLines(app);
    await this.#end(app);
    await this.#systemd.resetFailed(unit);
    // A unit that has done its work ends at once, with exit code 0.
    const { manifest } = app;
    const { bootedAtMs } = this.#options;
    const { exitCode, exitSignal: signal } = unitStatus(shown, {
      ...{ shouldRun: true, manifest, bootedAtMs, lastLines: [] },
    });
    throw startFailed(app.id, whyEnded(shown ?? {}), { exitCode, signal, lastLines });
  }

  /**
   * A unit that exited by itself is still active for systemd: it could not be started, and would outlive its file.
   */
  async #endExited(id: string, shown: UnitProperties | undefined): Promise<void> {
    if (shown !== undefined && hasExited(shown)) await this.#systemd.stop(unitName(id), stopSlackMs);
  }

  async stop(app: RunnableApp): Promise<void> {
    const known = this.#appOf(app);
    if (!this.#options.isHere) {
      known.settle(app, false);
      return;
    }
    const unit = unitName(app.id);
    known.begin(app, "STOPPING");
    try {
      const state = (await this.#shown(unit))?.["ActiveState"];
      if (state !== undefined && state !== "inactive") {
        await this.#end(app);
        await this.#systemd.resetFailed(unit);
      }
    } finally {
      known.settle(app, false);
      await this.#poll().catch(() => undefined);
    }
  }

  /** Stops a unit, and kills one that keeps extending its own timeouts (`EXTEND_TIMEOUT_USEC` of sd_notify(3)). */
  async #end(app: RunnableApp): Promise<void> {
    const unit = unitName(app.id);
    const { graceMs } = app.manifest.stop;
    // A privileged unit may have a longer timeout of its own.
    if (isPrivileged(app)) return this.#systemd.stop(unit, graceMs + stopSlackMs);
    try {
      await this.#systemd.stop(unit, stopPhases * graceMs + phasesSlackMs);
    } catch (err) {
      this.#options.log.warn({ app: app.id, err }, "an app did not stop in time; killing its processes");
      const ended = new AbortController();
      const stopped = this.#systemd.stop(unit, killMs).finally(() => ended.abort());
      stopped.catch(() => undefined);
      // Repeat for further commands, such as those of `ExecStopPost`.
      while (!ended.signal.aborted) {
        await this.#systemd.kill(unit);
        await sleep(killAgainMs);
      }
      await stopped;
    }
  }

  freezable({ id }: RunnableApp): Promise<string[]> {
    return Promise.resolve(isUp(this.status(id)?.state) ? [unitName(id)] : []);
  }

  async freeze(app: RunnableApp, units: readonly string[]): Promise<void> {
    for (const unit of units) await this.#systemd.freeze(unit);
    this.#appOf(app).hold(true);
  }

  async thaw(app: RunnableApp, units: readonly string[]): Promise<boolean> {
    let stoodStill = true;
    for (const unit of units) {
      const shown = (await this.#systemd.show([unit], ["FreezerState"])).get(unit);
      if (shown?.["FreezerState"] === "frozen") await this.#systemd.thaw(unit);
      else stoodStill = false;
    }
    this.#appOf(app).hold(false);
    return stoodStill;
  }

  async reattach(app: RunnableApp): Promise<"running" | "ended" | "lost"> {
    const known = this.#appOf(app);
    if (!this.#options.isHere) {
      known.settle(app, true);
      return "lost";
    }
    await known.take(await this.#shown(unitName(app.id)));
    known.settle(app, true);
    const { state, isLost } = known.status;
    if (isLost === true) return "lost";
    return isUp(state) || state === "STOPPING" ? "running" : "ended";
  }

  /** Starts polling systemd, so that the next call has a result. */
  upNow(): ReadonlySet<string> {
    this.#watch();
    return new Set([...this.apps.keys()].filter((id) => this.#up.has(unitName(id))));
  }

  /** App IDs by the control group of their unit. */
  controlGroups(): Map<string, string> {
    return new Map(
      [...this.apps].flatMap(([id, { controlGroup }]) =>
        controlGroup === undefined ? [] : [[controlGroup, id] as const],
      ),
    );
  }

  async remove({ id }: RunnableApp): Promise<number> {
    this.unfollow(id);
    if (this.#options.isHere) await this.#endExited(id, await this.#shown(unitName(id)));
    if ((await this.#units.remove(id)) && this.#options.isHere) {
      await this.#systemd.reload();
      await this.#systemd.resetFailed(unitName(id));
    }
    return 0;
  }

  logs(app: RunnableApp, { tail, signal }: LogOptions): Promise<LogChunk> {
    return this.#logs.newest(app, tail, signal);
  }

  /** Follows until the app stops, including its last output. */
  async *followLogs(
    app: RunnableApp,
    { tail, after, signal }: FollowLogOptions,
  ): AsyncGenerator<LogChunk, void> {
    if (!isUp(this.status(app.id)?.state)) {
      yield await this.logs(app, { tail, signal });
      return;
    }
    const stopped = new AbortController();
    using _subscription = this.onChange((id) => {
      if (id === app.id && !isUp(this.status(id)?.state)) stopped.abort();
    });
    try {
      const start = after === undefined ? { tail } : { fromMs: after.timeMs };
      yield* this.#logs.follow(app, start, { signal, stopped: stopped.signal });
    } finally {
      stopped.abort();
    }
  }

  async stats(
    apps: readonly RunnableApp[],
    signal?: AbortSignal,
  ): Promise<ReadonlyMap<string, RuntimeUsage>> {
    const running = apps.filter(({ id }) => this.status(id)?.state === "RUNNING");
    if (running.length === 0) return new Map();
    const names = running.map(({ id }) => unitName(id));
    const read = async (): Promise<[number, Map<string, UnitProperties>]> => [
      performance.now(),
      await this.#systemd.show(names, usageProperties),
    ];
    const [beganMs, before] = await read();
    await sleep(statsWindowMs, undefined, signal && { signal });
    const [endedMs, after] = await read();
    return new Map(
      running.map(({ id }) => {
        const [first, last] = [before.get(unitName(id)) ?? {}, after.get(unitName(id)) ?? {}];
        return [id, usageBetween(first, last, endedMs - beganMs)];
      }),
    );
  }

  limits(app: RunnableApp): RuntimeLimit[] {
    return limitsOf(app, this.#options.enforces);
  }

  #requireSystemd(): void {
    const { whyAbsent } = this;
    if (whyAbsent !== undefined) throw new SvcError("not_possible", whyAbsent);
  }

  #appOf(app: RunnableApp): ServiceApp {
    const known = this.apps.get(app.id);
    if (known !== undefined) return known;
    const fresh = new ServiceApp(app, {
      bootedAtMs: this.#options.bootedAtMs,
      lastLines: (of) => this.#logs.lastLines(of),
      lastExit: (of) => this.#logs.lastExit(of),
      explainPortConflict: (port) => this.#options.explainPortConflict(app.id, port),
      onChange: () => this.notifyChanged(app.id),
    });
    this.follow(app.id, fresh);
    this.#watch();
    return fresh;
  }

  #watch(): void {
    if (!this.#options.isHere) return;
    this.#polls ??= new Ticker(pollMs, async () => {
      if (this.apps.size === 0) return;
      await this.#poll().catch((error: unknown) => {
        this.#options.log.warn({ err: error }, "failed to read the status of apps from systemd");
      });
    });
  }

  async #poll(): Promise<void> {
    const units = await this.#show(pattern);
    this.#up = new Set(
      [...units]
        .filter(([, unit]) => unit["ActiveState"] === "active" && !hasExited(unit))
        .map(([name]) => name),
    );
    await Promise.all([...this.apps].map(([id, app]) => app.take(units.get(unitName(id)))));
  }

  /** Only loaded units: systemd invents a unit for every unknown name. */
  async #loaded(name: string): Promise<Map<string, UnitProperties>> {
    const units = await this.#systemd.show([name], statusProperties);
    return new Map([...units].filter(([, unit]) => unit["LoadState"] !== "not-found"));
  }

  /** Only units of apps: root may have others with such names, which no app may stop. */
  async #show(name: string): Promise<Map<string, UnitProperties>> {
    return new Map([...(await this.#loaded(name))].filter(([, unit]) => isAppUnit(unit)));
  }

  async #shown(unit: string): Promise<UnitProperties | undefined> {
    return (await this.#show(unit)).get(unit);
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.#polls?.[Symbol.asyncDispose]();
    await super[Symbol.asyncDispose]();
  }
}
