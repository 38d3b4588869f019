/** On which engine an app runs, and in how many tasks. */
import { SvcError } from "../errors.ts";
import { isUp, type Placement } from "../runtimes/runtime.ts";
import { patchApp, type AppRecord } from "./app-record.ts";
import type { AppsContext } from "./apps-context.ts";
import type { WorkOptions } from "./progress.ts";

/** @throws SvcError `not_possible` for a package that no swarm can run */
export function requireSwarmPackage({ id, runtime: { kind } }: AppRecord["manifest"]): void {
  if (kind === "docker" || kind === "compose") return;
  const message = `package "${id}" runs on the ${kind} runtime; on a swarm svc puts packages of the docker and compose runtimes`;
  throw new SvcError("not_possible", message);
}

export class Placer {
  readonly #options: AppsContext;

  constructor(options: AppsContext) {
    this.#options = options;
  }

  /**
   * Puts a stopped app where its next start is to be.
   * @param placement null for this machine
   * @throws SvcError `app_running`, `app_busy`, `not_possible`; it stays where it was then
   */
  async place(found: AppRecord, placement: Placement | null, work: WorkOptions): Promise<void> {
    const { operations, registry, runtimeOf, runnable } = this.#options;
    if (placement !== null) requireSwarmPackage(found.manifest);
    await operations.during({ appId: found.id, kind: "settings", phase: "place" }, async (operation) => {
      const app = registry.held(operation);
      const before = runtimeOf(app);
      if (isUp(before.status(app.id)?.state)) {
        throw new SvcError("app_running", `app "${app.id}" is running; stop it before placing it elsewhere`);
      }
      const moved = { ...app, placement };
      await runtimeOf(moved).prepare(runnable(moved), work);
      if (runtimeOf(moved) !== before) {
        await before.remove(runnable(app), "volumes");
        // An image that was built for it went with that.
        await runtimeOf(moved).prepare(runnable(moved), work);
      }
      return patchApp(app.id, { placement });
    });
  }

  /** @throws SvcError `not_possible` for an app on this machine, `app_busy`, `unavailable` */
  async scale(found: AppRecord, replicas: number): Promise<void> {
    const { operations, registry, runtimeOf, runnable } = this.#options;
    await operations.during({ appId: found.id, kind: "settings", phase: "scale" }, async () => {
      const app = registry.get(found.id);
      if (app?.placement == null) {
        const message = `app "${found.id}" runs on this machine, once; put it on a swarm first: svc app place ${found.id} --on swarm`;
        throw new SvcError("not_possible", message);
      }
      const scaled = { ...app, placement: { ...app.placement, replicas } };
      await runtimeOf(app).scale?.(runnable(scaled));
      return patchApp(app.id, { placement: scaled.placement });
    });
  }
}
