/** Apps as units of the host's systemd, which starts them again as their manifest says, with the daemon or without. */
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { Identities } from "../../identity/identities.ts";
import type { Log } from "../../lib/log.ts";
import { Ticker } from "../../lib/ticker.ts";
import { FollowingRuntime } from "../followed-apps.ts";
import { limitsOf } from "../limits.ts";
import {
  isUp,
  type AppRuntime,
  type LogChunk,
  type FollowLogOptions,
  type RunnableApp,
  type RuntimeLimit,
  type RuntimeUsage,
} from "../runtime.ts";
import { startFailed } from "../start-failed.ts";
import { AppUnits, unitName, unitPath } from "./app-unit.ts";
import { ServiceApp } from "./service-app.ts";
import { ServiceLogs } from "./service-logs.ts";
import { Systemd, type UnitProperties } from "./systemd.ts";
import { hasExited, statusProperties, unitStatus, whyEnded } from "./unit-status.ts";
import { keepsExit } from "./unit-text.ts";
import { usageBetween, usageProperties } from "./unit-usage.ts";

export interface ServiceRuntimeOptions {
  identities: Identities;
  storeId: string;
  /** Where the environments of units are kept; absolute. */
  dir: string;
  /** PATH of apps. */
  searchPath: string;
  /** An app that ends this soon after its start has failed to start. */
  settleMs: number;
  bootedAtMs: number;
  /** Whether systemd runs here, and this daemon may speak to it. */
  isHere: boolean;
  /** What systemd holds units to on this host. */
  enforces: { memory: boolean; cpus: boolean };
  /** Why what listens on a port is not this app; `undefined` when it is, or nobody can tell. */
  whyForeign: (appId: string, port: number) => Promise<string | undefined>;
  log: Pick<Log, "warn">;
}

/** There where packages of this runtime can be installed. */
export const serviceCapability = "app.service";

/** How often systemd is asked, while there are apps of this runtime. */
const lookMs = 2_000;
const statsWindowMs = 500;
const startMs = 11 * 60_000;
const stopSlackMs = 120_000;
const pattern = "svc-*.service";

/** Operations on one app come one at a time; the caller sees to that. */
export class ServiceRuntime extends FollowingRuntime<ServiceApp> implements AppRuntime {
  readonly #options: ServiceRuntimeOptions;
  readonly #units: AppUnits;
  readonly #systemd: Systemd;
  readonly #logs: ServiceLogs;
  /** Units of which something runs, as last seen. */
  #up: ReadonlySet<string> = new Set();
  #looks: Ticker | undefined;

  constructor(options: ServiceRuntimeOptions) {
    super();
    this.#options = options;
    this.#units = new AppUnits(options);
    this.#systemd = new Systemd(options.identities);
    this.#logs = new ServiceLogs(options);
  }

  get whyAbsent(): string | undefined {
    if (this.#options.isHere) return undefined;
    return "systemd does not run this host, or svc's daemon is not root: service packages cannot be installed here";
  }

  async prepare(app: RunnableApp): Promise<void> {
    this.#requireSystemd();
    if (app.checkout !== undefined) await this.#units.check(app);
    else if (await this.#units.write(app)) await this.#systemd.reload();
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
    let isWanted = false;
    try {
      await this.prepare(app);
      await this.#launch(app);
      isWanted = true;
    } finally {
      known.settle(app, isWanted);
      await this.#look().catch(() => undefined);
    }
  }

  async #launch(app: RunnableApp): Promise<void> {
    const unit = unitName(app.id);
    const found = await this.#shown(unit);
    const path = found?.["FragmentPath"] ?? unitPath(app.id);
    if (path !== unitPath(app.id))
      throw startFailed(app.id, `systemd has another unit of that name, ${path || "from elsewhere"}`);
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
    await this.#systemd.stop(unit, this.#stopMs(app));
    await this.#systemd.resetFailed(unit);
    // A unit that has done its work is over at once, and says so.
    const { manifest } = app;
    const { bootedAtMs } = this.#options;
    const { exitCode, exitSignal: signal } = unitStatus(shown, {
      ...{ isWanted: true, manifest, bootedAtMs, lastLines: [] },
    });
    throw startFailed(app.id, whyEnded(shown ?? {}), { exitCode, signal, lastLines });
  }

  /** What has ended by itself is active to systemd still: it would not be started, nor go with its file. */
  async #endExited(id: string, shown: UnitProperties | undefined): Promise<void> {
    if (shown?.["FragmentPath"] === unitPath(id) && hasExited(shown))
      await this.#systemd.stop(unitName(id), stopSlackMs);
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
        await this.#systemd.stop(unit, this.#stopMs(app));
        await this.#systemd.resetFailed(unit);
      }
    } finally {
      known.settle(app, false);
      await this.#look().catch(() => undefined);
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

  async adopt(app: RunnableApp): Promise<"running" | "ended" | "lost"> {
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

  /** Follows systemd from then on, so that it is known next time. */
  upNow(): ReadonlySet<string> {
    this.#watch();
    return new Set([...this.apps.keys()].filter((id) => this.#up.has(unitName(id))));
  }

  /** Ids of apps by the control group that holds all processes of their unit. */
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

  logs(app: RunnableApp, { tail, signal }: { tail: number; signal?: AbortSignal }): Promise<LogChunk> {
    return this.#logs.newest(app, tail, signal);
  }

  /** Until the app stops; then what it printed until then. */
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
      whyForeign: (port) => this.#options.whyForeign(app.id, port),
      onChange: () => this.announce(app.id),
    });
    this.follow(app.id, fresh);
    this.#watch();
    return fresh;
  }

  #watch(): void {
    if (!this.#options.isHere) return;
    this.#looks ??= new Ticker(lookMs, async () => {
      if (this.apps.size === 0) return;
      await this.#look().catch((error: unknown) => {
        this.#options.log.warn({ err: error }, "systemd does not say how apps fare");
      });
    });
  }

  async #look(): Promise<void> {
    const units = await this.#show(pattern);
    this.#up = new Set(
      [...units]
        .filter(([, unit]) => unit["ActiveState"] === "active" && !hasExited(unit))
        .map(([name]) => name),
    );
    await Promise.all([...this.apps].map(([id, app]) => app.take(units.get(unitName(id)))));
  }

  /** Units that are loaded: systemd makes up one of every name that it is asked for. */
  async #show(name: string): Promise<Map<string, UnitProperties>> {
    const units = await this.#systemd.show([name], statusProperties);
    return new Map([...units].filter(([, unit]) => unit["LoadState"] !== "not-found"));
  }

  async #shown(unit: string): Promise<UnitProperties | undefined> {
    return (await this.#show(unit)).get(unit);
  }

  #stopMs({ manifest }: RunnableApp): number {
    return manifest.stop.graceMs + stopSlackMs;
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.#looks?.[Symbol.asyncDispose]();
    await super[Symbol.asyncDispose]();
  }
}
