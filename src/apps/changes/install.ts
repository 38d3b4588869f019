/** Installs a package from a spec. The new app is stopped; a failure leaves nothing behind. */
import { basename, join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { manifestFileName, settingsOf, type Manifest } from "../../packages/manifest/manifest.ts";
import { valuesOfTexts } from "../../packages/settings/setting-texts.ts";
import type { UnmanagedStacks } from "../../engine/unmanaged-stacks.ts";
import type { ResolvedPackage } from "../../packages/resolved-package.ts";
import { oneAtATime } from "../../lib/limiter.ts";
import { checkoutOf } from "../../runtimes/app-tree.ts";
import type { AdoptedData, Placement, RunnableApp } from "../../runtimes/runnable-app.ts";
import { StoreConflict } from "../../store/store.ts";
import {
  acknowledgementOf,
  nothingAccepted,
  requireAcknowledgement,
  type Consent,
} from "./acknowledgement.ts";
import { deleteApp, insertApp, newApp, patchApp, type NewApp } from "../records/app-record.ts";
import type { AppCaller } from "../records/app-registry.ts";
import { firstFreeId, requireFreeName } from "../records/app-ids.ts";
import type { AppSettings } from "../records/app-settings.ts";
import type { FreePorts } from "../ports/free-ports.ts";
import { requireOpenPorts } from "../ports/privileged-ports.ts";
import type { Operation, OperationDetail } from "../lifecycle/operations.ts";
import type { InstallPhase, RemovalPhase } from "../lifecycle/phases.ts";
import { cancelably, type WorkOptions } from "../../work/progress.ts";
import { withStepNumbers } from "../../work/step-numbers.ts";
import type { InstallLimiter } from "./install-limiter.ts";
import { requireSwarmPackage } from "./placement.ts";
import { checkOutRelease } from "./release.ts";
import { isEngineAway, removeAdoptedPackage } from "./removal.ts";
import type { AppsContext } from "../apps-context.ts";
import { adoptPlan, firstSteps, installPlan } from "./step-plans.ts";

/** The package to install, and how; see `InstallAppRequest`. Texts that were not given are empty. */
export interface InstallRequest extends Consent {
  spec: string;
  source: string;
  name: string;
  branch: string;
  tag: string;
  settings: JsonObject;
  /** By setting; see `valuesOfTexts`. */
  settingTexts: Readonly<Record<string, string>>;
  /** Null: on this host. */
  placement: Placement | null;
}

/** An install that takes over containers. */
export interface InstallAdoption {
  readonly data: AdoptedData;
  readonly detail: OperationDetail;
  /** The ID if no name is chosen. */
  readonly baseId: string;
  /** Starts the app in place of the containers, and ends the operation. */
  readonly complete: (operation: Operation, app: NewApp, work: WorkOptions) => Promise<void>;
  /** Undoes {@link complete} too, and ends the operation. */
  readonly undo: (operation: Operation) => Promise<void>;
}

export interface InstallerOptions extends AppsContext {
  settings: AppSettings;
  freePorts: FreePorts;
  installLimiter: InstallLimiter;
  stacks: Pick<UnmanagedStacks, "list">;
  /** Does not apply to root. */
  maxAppsPerUser: number;
  /** Why packages of a runtime cannot be installed here; undefined if they can. */
  whyAbsent: (runtime: string) => string | undefined;
}

/** Owner and names of a new app. */
export interface CreationPlan {
  caller: AppCaller;
  ownerUid: number;
  kind: "install" | "clone" | "adopt";
  /** First phase: `create` if the app's volumes are filled together with its files. */
  phase: InstallPhase;
  /** For `adopt` only. */
  adoption?: InstallAdoption | undefined;
  /** The ID if no name is chosen; a number is added if it is taken. */
  baseId: string;
  /** The ID that the user chose; empty for none. */
  name: string;
  /** Displayed if no name is chosen and no app of the owner is displayed so; else the ID is displayed. */
  defaultName: string;
  describe: (id: string, name: string) => NewApp;
}

export class Installer {
  readonly #options: InstallerOptions;
  /** By owner. */
  readonly #reservations = oneAtATime<number>();

  constructor(options: InstallerOptions) {
    this.#options = options;
  }

  /**
   * Installs a package; resolves to the new app's ID.
   * @throws SvcError `license_required`, `ambiguous`, `package_invalid`, `git_failed`, `source_failed`, `build_failed`,
   *   `invalid_request` for settings that the package rejects; nothing remains then.
   */
  async install(
    request: InstallRequest,
    caller: AppCaller,
    work: WorkOptions,
    adoption?: InstallAdoption,
  ): Promise<string> {
    using _slot = await this.#options.installLimiter.take(caller, work);
    return await cancelably(work, (within) => this.#install(request, caller, within, adoption));
  }

  async #install(
    request: InstallRequest,
    caller: AppCaller,
    work: WorkOptions,
    adoption: InstallAdoption | undefined,
  ): Promise<string> {
    const { packages, settings, userHelpers, freePorts, daemonPort, runUidOf } = this.#options;
    const runUid = await runUidOf(caller.ownerUid);
    // Checked again with the write; checked here first so that a taken name does not cost a download.
    if (request.name !== "")
      await this.#chooseId({ caller, kind: "install", baseId: "", name: request.name });
    const first = withStepNumbers(work, firstSteps.install, { isComplete: false });
    await using resolved = await packages.resolve(request, caller.ownerUid, first);
    const { manifest } = resolved;
    if (adoption !== undefined) requireNoCommands(manifest);
    const numbered = withStepNumbers(
      work,
      adoption === undefined ? installPlan(manifest) : adoptPlan(manifest),
    );
    const { ownerUid } = caller;
    requireAcknowledgement(resolved, { ...request, ownerUid, accepted: nothingAccepted, again: "install" });
    this.requireRuntime(manifest);
    if (request.placement !== null) requireSwarmPackage(manifest);
    if (adoption === undefined) await this.#warnOfOldStack(resolved, caller, work);
    const given = { ...request.settings, ...valuesOfTexts(manifest, request.settingTexts) };
    await settings.validate(manifest, given, caller.ownerUid, work.signal);
    // The ports of the old containers are in use until they are stopped.
    const inherited = adoption === undefined ? [] : settingsOf(manifest).map(([key]) => key);
    const fixed = new Set([...Object.keys(given), ...inherited]);
    using chosen = await freePorts.choose(manifest, given, { ownerUid, uid: runUid }, fixed);
    const values = chosen.settings;
    await requireOpenPorts({
      ...{ manifest, values, ownerUid, runUid, daemonPort },
      selfUid: userHelpers.selfUid,
    });
    for (const message of adoption === undefined ? chosen.notes : [])
      work.onProgress?.({ step: "ports", message });
    if (runUid === 0) work.onProgress?.({ step: "warning", message: rootWarning(manifest.name) });
    const nowMs = this.#options.now();
    const describe = (id: string, name: string): NewApp =>
      newApp(
        {
          ...{ id, name },
          ownerUid: caller.ownerUid,
          runUid,
          runtime: manifest.runtime.kind,
          packageId: manifest.id,
          origin: resolved.origin,
          version: resolved.version,
          manifest,
          settings: values,
          accepted: acknowledgementOf(resolved),
          placement: request.placement,
          adopted: adoption?.data ?? null,
        },
        nowMs,
      );
    const names = {
      baseId: adoption?.baseId ?? manifest.id,
      ...{ name: request.name, defaultName: manifest.name },
    };
    const begin =
      adoption === undefined
        ? ({ kind: "install", phase: "files" } as const)
        : ({ kind: "adopt", phase: "create" } as const);
    const { id } = await this.create(
      { caller, ownerUid, ...begin, adoption, ...names, describe },
      async (app) => {
        await checkOutRelease(this.#options, app, resolved, numbered);
        if (adoption !== undefined) await this.#requireCopied(app, manifest, numbered);
      },
      numbered,
    );
    resolved.retain();
    return id;
  }

  /** The owner of the package's directory may have exchanged its manifest before or during the copy. */
  async #requireCopied(app: RunnableApp, manifest: Manifest, work: WorkOptions): Promise<void> {
    const spec = join(app.directory, checkoutOf(app));
    const request = { spec, source: "", branch: "", tag: "" };
    await using copied = await this.#options.packages.resolve(request, app.uid, work);
    if (isDeepStrictEqual(copied.manifest, manifest)) return;
    throw new SvcError(
      "not_possible",
      `${manifestFileName} of "${app.id}" changed while it was read; review the new plan, and adopt again`,
    );
  }

  /** Only root may see the containers of the host. */
  async #warnOfOldStack(
    { manifest, origin }: ResolvedPackage,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<void> {
    if (!caller.root || manifest.runtime.kind !== "compose" || origin.kind !== "directory") return;
    const stacks = await this.#options.stacks.list().catch(() => []);
    const old = stacks.find(
      ({ name, directory, kind }) =>
        kind === "project" && (directory === origin.url || name === basename(origin.url)),
    );
    if (old === undefined) return;
    const message = `the containers of compose project "${old.name}" exist; this install creates new, empty volumes; to keep the data of these containers: svc adopt ${old.name}`;
    work.onProgress?.({ step: "warning", message });
  }

  /** @throws SvcError `unavailable` if this host lacks the runtime of the package */
  requireRuntime({ runtime }: Manifest): void {
    const why = this.#options.whyAbsent(runtime.kind);
    if (why !== undefined) throw new SvcError("not_possible", why);
  }

  /**
   * Adds an app under a free ID, fills its directory by `fill`, and shows it as STOPPED; a failure leaves nothing behind.
   * @throws SvcError `already_exists` if the chosen name is taken
   */
  async create(
    plan: CreationPlan,
    fill: (app: RunnableApp) => Promise<void>,
    work: WorkOptions,
  ): Promise<NewApp> {
    const { operations, userHelpers, paths, runnable, runtimeOf, log } = this.#options;
    const { operation, app: reserved } = await this.#reserve(plan, work);
    let app = reserved;
    const { id } = app;
    if (plan.kind === "install" && plan.name === "" && id !== plan.baseId)
      work.onProgress?.({
        step: "warning",
        message: `the ID "${plan.baseId}" is in use; this app is "${id}"`,
      });
    work.onCreate?.(id);
    try {
      const tree = await userHelpers.tree(paths.appDir(id), app.runUid);
      await tree.create();
      await userHelpers.createOwnedDir(paths.appRunDir(id), app.runUid);
      await fill(runnable(app));
      if (operation.phase === ("files" satisfies InstallPhase))
        await operations.enter(operation, "create" satisfies InstallPhase);
      app = await this.#withCurrentPorts(operation, app, work);
      await runtimeOf(app).prepare(runnable(app), work);
      if (plan.adoption === undefined) await operations.end(operation, [patchApp(id, { state: "STOPPED" })]);
      else await plan.adoption.complete(operation, app, work);
    } catch (error) {
      // The first error explains the failure; a recovery sweep repeats an undo that failed.
      await (plan.adoption?.undo ?? ((left) => this.undo(left)))(operation).catch((failed: unknown) => {
        log.warn({ err: failed, appId: id }, "failed to undo the creation of an app");
      });
      throw error;
    } finally {
      operations.release(operation);
    }
    return app;
  }

  /** The file may have been edited since its manifest was generated. */
  async #withCurrentPorts(
    operation: Operation,
    app: NewApp,
    { signal, onProgress }: WorkOptions,
  ): Promise<NewApp> {
    const { operations, runtimeOf, runnable, freePorts } = this.#options;
    const current = await runtimeOf(app).projects?.currentManifest(runnable(app), signal);
    if (current?.usesHostNetwork === true && operation.kind === "clone") {
      const message =
        "services on the host's network cannot get other ports: stop the original before you start the clone";
      onProgress?.({ step: "warning", message });
    }
    if (current === undefined || current.notes.length === 0) return app;
    const { manifest } = current;
    const { ownerUid, runUid, adopted } = app;
    // The ports of adopted containers are in use until they are stopped.
    using chosen =
      adopted === null
        ? await freePorts.choose(
            manifest,
            app.settings,
            { ownerUid, uid: runUid },
            new Set(Object.keys(app.settings)),
          )
        : undefined;
    const { settings } = chosen ?? app;
    for (const message of [...current.notes, ...(chosen?.notes ?? [])])
      onProgress?.({ step: "ports", message });
    await operations.enter(operation, "create" satisfies InstallPhase, [
      patchApp(app.id, { manifest, settings }),
    ]);
    return { ...app, manifest, settings };
  }

  /** Removes a partial install or clone, or leaves that to a removal that waits for the engine. Recovery uses it, too. */
  async undo(operation: Operation): Promise<void> {
    const { operations, registry, userHelpers, paths, runtimeOf, runnable } = this.#options;
    const id = operation.appId;
    const { runUid } = operation.detail;
    const app = registry.get(id);
    if (app !== undefined) {
      const runtime = runtimeOf(app);
      // The phase is recorded, because another process may undo the install while the engine is unreachable.
      if (operation.phase === ("files" satisfies InstallPhase)) runtime.engine?.begin(runnable(app));
      try {
        await runtime.remove(runnable(app));
      } catch (error) {
        if (isEngineAway(runtime, error)) {
          operation.detail.awaitsEngine = true;
          await operations.enter(operation, "delete" satisfies RemovalPhase, [], "remove");
        }
        throw error;
      }
      await removeAdoptedPackage(this.#options, app);
    }
    if (runUid !== undefined) {
      const tree = await userHelpers.tree(paths.appDir(id), runUid);
      await tree.destroy();
      await userHelpers.removeOwnedDir(paths.appRunDir(id), runUid);
    }
    await operations.end(operation, [deleteApp(id)]);
  }

  /** Writes the app under the first free ID. @throws SvcError `too_many` if the owner has the maximum number of apps */
  async #reserve(
    plan: CreationPlan,
    { cancel, signal }: WorkOptions,
  ): Promise<{ operation: Operation; app: NewApp }> {
    const { operations, registry, maxAppsPerUser } = this.#options;
    const { caller, ownerUid, kind, phase, describe } = plan;
    // One install per owner at a time: the count of apps stays valid until the new app is written.
    using _slot = await this.#reservations.acquire(ownerUid, signal);
    for (;;) {
      // Writes of other processes are noticed with a delay, so read again.
      registry.invalidate();
      const owned = registry.all().filter((app) => app.ownerUid === ownerUid).length;
      if (!caller.root && owned >= maxAppsPerUser) throw tooManyApps(owned, maxAppsPerUser);
      const id = await this.#chooseId(plan);
      const app = describe(id, this.#displayedName(plan, id));
      try {
        const operation = await operations.begin({
          appId: id,
          kind,
          phase,
          detail: { runUid: app.runUid, ...plan.adoption?.detail },
          statements: [insertApp(app)],
          cancel,
        });
        return { operation, app };
      } catch (error) {
        // Another process took the ID at the same moment.
        const taken =
          error instanceof StoreConflict || (error instanceof SvcError && error.reason === "app_busy");
        if (!taken) throw error;
      }
    }
  }

  /** @throws SvcError `already_exists` with a suggestion if the chosen name is taken */
  async #chooseId({
    caller,
    kind,
    baseId,
    name,
  }: Pick<CreationPlan, "caller" | "kind" | "baseId" | "name">): Promise<string> {
    const { registry, userName } = this.#options;
    const callerName = caller.root ? "" : await userName(caller.uid);
    return name === ""
      ? firstFreeId(registry, { caller, callerName, kind: kind === "clone" ? kind : "install", baseId })
      : requireFreeName(registry, { caller, callerName, baseId: name });
  }

  #displayedName({ name, defaultName, ownerUid }: CreationPlan, id: string): string {
    if (name !== "") return name;
    const isShown = this.#options.registry
      .all()
      .some((app) => app.ownerUid === ownerUid && [app.name, app.id].includes(defaultName));
    return defaultName === "" || isShown ? id : defaultName;
  }
}

/**
 * Root adopts what containers run, and has not chosen the programs of a manifest that lies beside the compose file.
 * @throws SvcError `not_possible`
 */
function requireNoCommands({ runtime, migrate, backup }: Manifest): void {
  const remedy = `remove that from ${manifestFileName}, or adopt the project with from_containers`;
  if (runtime.kind !== "compose")
    throw new SvcError("not_possible", `${manifestFileName} runs no compose file; ${remedy}`);
  const commands = {
    migrate,
    "backup.dump": backup?.dump,
    "backup.after": backup?.after,
    "backup.restore": backup?.restore,
  };
  const found = Object.entries(commands).flatMap(([key, command]) => (command === undefined ? [] : [key]));
  if (found.length > 0)
    throw new SvcError(
      "not_possible",
      `${manifestFileName} runs commands on the host as root (${found.join(", ")}); ${remedy}`,
    );
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
