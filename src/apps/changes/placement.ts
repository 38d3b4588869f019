/** Sets the engine that runs an app, and the number of tasks. */
import { SvcError } from "../../errors.ts";
import { isUp } from "../../runtimes/runtime-status.ts";
import type { Placement } from "../../runtimes/runnable-app.ts";
import { patchApp, type AppRecord } from "../records/app-record.ts";
import type { AppFinder } from "../records/app-finder.ts";
import type { AppCaller } from "../records/app-registry.ts";
import type { InstallLimiter } from "./install-limiter.ts";
import type { AppsContext } from "../apps-context.ts";
import type { WorkOptions } from "../../work/progress.ts";

/** @throws SvcError `not_possible` for a package that cannot run on a swarm */
export function requireSwarmPackage({ id, runtime: { kind } }: AppRecord["manifest"]): void {
  if (kind === "docker" || kind === "compose") return;
  const message = `package "${id}" runs on the ${kind} runtime; on a swarm svc puts packages of the docker and compose runtimes`;
  throw new SvcError("not_possible", message);
}

export interface PlacerOptions extends AppsContext {
  finder: Pick<AppFinder, "find">;
  installLimiter: InstallLimiter;
}

export class Placer {
  readonly #options: PlacerOptions;

  constructor(options: PlacerOptions) {
    this.#options = options;
  }

  /**
   * Sets where the next start of a stopped app runs.
   * @param placement null: this host
   * @throws SvcError `app_running`, `app_busy`, `not_possible`; the placement is unchanged then
   */
  async place(
    { id }: AppRecord,
    placement: Placement | null,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<void> {
    const { finder, installLimiter, operations, registry, runtimeOf, runnable } = this.#options;
    // The app's image may have to be pulled.
    using _slot = await installLimiter.take(caller, work);
    const found = await finder.find(id, caller);
    if (placement !== null) {
      requireSwarmPackage(found.manifest);
      if (found.adopted !== null) throw new SvcError("not_possible", keepsData(found.id));
    }
    await operations.during({ appId: found.id, kind: "settings", phase: "place" }, async (operation) => {
      const app = registry.lockedApp(operation);
      const before = runtimeOf(app);
      if (isUp(before.status(app.id)?.state)) {
        throw new SvcError("app_running", `app "${app.id}" is running; stop it before placing it elsewhere`);
      }
      const moved = { ...app, placement };
      await runtimeOf(moved).prepare(runnable(moved), work);
      if (runtimeOf(moved) !== before) {
        await before.remove(runnable(app), "volumes");
        // The image that was built for it was removed with the previous placement.
        await runtimeOf(moved).prepare(runnable(moved), work);
      }
      return patchApp(app.id, { placement });
    });
  }

  /** @throws SvcError `not_possible` for an app on this host, `app_busy`, `unavailable` */
  async scale(found: AppRecord, replicas: number): Promise<void> {
    const { operations, registry, runtimeOf, runnable } = this.#options;
    await operations.during({ appId: found.id, kind: "settings", phase: "scale" }, async () => {
      const app = registry.get(found.id);
      if (app?.placement == null) {
        const message = `app "${found.id}" runs on this machine, once; put it on a swarm first: svc app place ${found.id} --on swarm`;
        throw new SvcError("not_possible", message);
      }
      const scaled = { ...app, placement: { ...app.placement, replicas } };
      await runtimeOf(app).scaling?.scale(runnable(scaled));
      return patchApp(app.id, { placement: scaled.placement });
    });
  }
}

function keepsData(id: string): string {
  return `app "${id}" uses the data of an adopted stack in place, which a swarm does not support`;
}
