/** From a spec to an installed app that is stopped, or to nothing at all (decisions 11, 16-19). */
import { SvcError } from "../errors.ts";
import type { JsonObject } from "../lib/json.ts";
import type { Manifest } from "../packages/manifest.ts";
import { KeyedQueue } from "../lib/keyed-queue.ts";
import type { Placement, RunnableApp } from "../runtimes/runtime.ts";
import { StoreConflict } from "../store/store.ts";
import {
  acknowledgementOf,
  nothingAccepted,
  requireAcknowledgement,
  type Consent,
} from "./acknowledgement.ts";
import { deleteApp, insertApp, newApp, patchApp, type NewApp } from "./app-record.ts";
import type { AppCaller } from "./app-registry.ts";
import { firstFreeId } from "./app-ids.ts";
import type { AppSettings } from "./app-settings.ts";
import type { ChosenPorts, FreePorts } from "./free-ports.ts";
import { requireOpenPorts } from "./privileged-ports.ts";
import type { Operation } from "./operations.ts";
import type { WorkOptions } from "./progress.ts";
import { requireSwarmPackage } from "./placement.ts";
import { layOutRelease } from "./release.ts";
import type { AppsContext } from "./apps-context.ts";

/** What to install; see `InstallAppRequest`. Texts are empty where they are not given. */
export interface InstallRequest extends Consent {
  spec: string;
  source: string;
  name: string;
  branch: string;
  tag: string;
  settings: JsonObject;
  /** Take a free port where the default one of a setting is taken; a further install of a package does so in any case. */
  portAuto: boolean;
  /** On this machine where it is null. */
  placement: Placement | null;
}

export interface InstallerOptions extends AppsContext {
  settings: AppSettings;
  freePorts: FreePorts;
  /** Does not bind root. */
  maxAppsPerUser: number;
  /** Why packages of a runtime cannot be installed here; undefined where they can. */
  whyAbsent: (runtime: string) => string | undefined;
}

/** Whose a new app is, and what it is called. */
export interface CreationPlan {
  caller: AppCaller;
  ownerUid: number;
  kind: "install" | "clone";
  /** What its id begins with. */
  baseId: string;
  describe: (id: string) => NewApp;
}

export class Installer {
  readonly #options: InstallerOptions;
  /** By owner. */
  readonly #reservations = new KeyedQueue();

  constructor(options: InstallerOptions) {
    this.#options = options;
  }

  /**
   * Installs a package; resolves with the new app's id.
   * @throws SvcError `license_required`, `ambiguous`, `package_invalid`, `git_failed`, `source_failed`, `build_failed`,
   *   `invalid_request` for settings that the package refuses; nothing of it stays then.
   */
  async install(request: InstallRequest, caller: AppCaller, work: WorkOptions): Promise<string> {
    const { packages, settings, identities, runUidOf } = this.#options;
    const runUid = await runUidOf(caller.ownerUid);
    await using resolved = await packages.resolve(request, caller.ownerUid, work);
    const { manifest } = resolved;
    const { ownerUid } = caller;
    requireAcknowledgement(resolved, { ...request, ownerUid, accepted: nothingAccepted, again: "install" });
    this.requireRuntime(manifest);
    if (request.placement !== null) requireSwarmPackage(manifest);
    await settings.validate(manifest, request.settings, caller.ownerUid);
    using chosen = await this.#choosePorts(manifest, request);
    const values = chosen?.settings ?? request.settings;
    await requireOpenPorts({ manifest, values, ownerUid, runUid, selfUid: identities.selfUid });
    for (const message of chosen?.notes ?? []) work.onProgress?.({ step: "ports", message });
    if (runUid === 0) work.onProgress?.({ step: "warning", message: rootWarning(manifest.name) });
    const nowMs = this.#options.now();
    const describe = (id: string): NewApp =>
      newApp(
        {
          id,
          ownerUid: caller.ownerUid,
          runUid,
          name: request.name === "" ? manifest.name : request.name,
          runtime: manifest.runtime.kind,
          packageId: manifest.id,
          origin: resolved.origin,
          version: resolved.version,
          manifest,
          settings: values,
          accepted: acknowledgementOf(resolved),
          placement: request.placement,
        },
        nowMs,
      );
    const id = await this.create(
      { caller, ownerUid: caller.ownerUid, kind: "install", baseId: manifest.id, describe },
      (app) => layOutRelease(this.#options, app, resolved, work),
      work,
    );
    resolved.keep();
    return id;
  }

  async #choosePorts(
    manifest: Manifest,
    { settings, portAuto }: InstallRequest,
  ): Promise<ChosenPorts | undefined> {
    const { registry, freePorts } = this.#options;
    const isFurther = registry.all().some(({ packageId }) => packageId === manifest.id);
    if (!portAuto && !isFurther) return undefined;
    return freePorts.choose(manifest, settings, new Set(Object.keys(settings)));
  }

  /** @throws SvcError `unavailable` when this host does not have what runs a package */
  requireRuntime({ runtime }: Manifest): void {
    const why = this.#options.whyAbsent(runtime.kind);
    if (why !== undefined) throw new SvcError("not_possible", why);
  }

  /**
   * Takes a free id, fills the new app's directory by `fill`, and shows the app as STOPPED; or leaves nothing.
   * Resolves with the id.
   */
  async create(
    plan: CreationPlan,
    fill: (app: RunnableApp) => Promise<void>,
    work: WorkOptions,
  ): Promise<string> {
    const { operations, identities, paths, runnable, runtimeOf } = this.#options;
    // One at a time of each owner: their apps are counted, and then there is one more.
    const operation = await this.#reservations.run(String(plan.ownerUid), work.signal, () =>
      this.#reserve(plan, work),
    );
    const id = operation.appId;
    const app = plan.describe(id);
    try {
      const tree = await identities.tree(paths.appDir(id), app.runUid);
      await tree.create();
      await identities.createOwnedDir(paths.appRunDir(id), app.runUid);
      await fill(runnable(app));
      await runtimeOf(app).prepare(runnable(app), work);
      await operations.end(operation, [patchApp(id, { state: "STOPPED" })]);
    } catch (error) {
      await this.undo(operation);
      throw error;
    } finally {
      operations.release(operation);
    }
    return id;
  }

  /** Removes what an install or a clone has made so far; also what recovery does with one that was left behind. */
  async undo(operation: Operation): Promise<void> {
    const { operations, registry, identities, paths, runtimeOf, runnable } = this.#options;
    const id = operation.appId;
    const { runUid } = operation.detail;
    const app = registry.get(id);
    if (app !== undefined) await runtimeOf(app).remove(runnable(app));
    if (runUid !== undefined) {
      const tree = await identities.tree(paths.appDir(id), runUid);
      await tree.destroy();
      await identities.removeOwnedDir(paths.appRunDir(id), runUid);
    }
    await operations.end(operation, [deleteApp(id)]);
  }

  /** Writes the app under the first free id. @throws SvcError `too_many` when the owner has as many as they may */
  async #reserve(plan: CreationPlan, { cancel }: WorkOptions): Promise<Operation> {
    const { operations, registry, maxAppsPerUser, userName } = this.#options;
    const { caller, ownerUid, kind, describe } = plan;
    const callerName = caller.root ? "" : await userName(caller.uid);
    for (;;) {
      // Nobody tells at once of what another process wrote.
      registry.invalidate();
      const owned = registry.all().filter((app) => app.ownerUid === ownerUid).length;
      if (!caller.root && owned >= maxAppsPerUser) throw tooManyApps(owned, maxAppsPerUser);
      const id = firstFreeId(registry, { ...plan, callerName });
      const app = describe(id);
      try {
        return await operations.begin({
          appId: id,
          kind,
          phase: "create",
          detail: { runUid: app.runUid },
          statements: [insertApp(app)],
          cancel,
        });
      } catch (error) {
        // Somebody took the id in this very moment.
        const taken =
          error instanceof StoreConflict || (error instanceof SvcError && error.reason === "app_busy");
        if (!taken) throw error;
      }
    }
  }
}

function tooManyApps(owned: number, max: number): SvcError<"too_many"> {
  return new SvcError(
    "too_many",
    `you have ${owned} apps, and [limits] max_apps_per_user is ${max}: remove one, or ask for a higher limit`,
  );
}

function rootWarning(name: string): string {
  return `${name} runs as root; set [apps] root_runs_as to an account that root's apps should run as instead`;
}
