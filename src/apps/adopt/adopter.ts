/**
 * Adopts stacks that svc does not manage: installs an app that uses their data in place, and starts it instead of their
 * containers. Until the app is healthy, every failure starts the old containers again.
 */
import { basename, dirname } from "node:path";
import { isDeepStrictEqual } from "node:util";
import type { UnmanagedStack, UnmanagedStacks } from "../../engine/unmanaged-stacks.ts";
import { isUpState } from "../../engine/container-record.ts";
import { formatImageReference, parseImageReference } from "../../engine/image-reference.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { checkoutOf } from "../../runtimes/app-tree.ts";
import { recordOf, textOf } from "../../runtimes/compose/compose-values.ts";
import type { WorkOptions } from "../../work/progress.ts";
import type { AppsContext } from "../apps-context.ts";
import { removeAdoptedPackage } from "../changes/removal.ts";
import type { Consent } from "../changes/acknowledgement.ts";
import type { Installer } from "../changes/install.ts";
import type { Lifecycle } from "../lifecycle/lifecycle.ts";
import type { Operation } from "../lifecycle/operations.ts";
import type { AdoptionPhase } from "../lifecycle/phases.ts";
import { patchApp, type NewApp } from "../records/app-record.ts";
import type { AppCaller } from "../records/app-registry.ts";
import { serviceOf } from "./container-compose.ts";
import { AdoptionPlanner, type AdoptionPlan, type AdoptionPlannerOptions } from "./adoption-plan.ts";

/** See `AdoptStackRequest`. */
export interface AdoptionRequest extends Consent {
  readonly name: string;
  /** Name and ID of the app; empty for that of the stack. */
  readonly appName: string;
  readonly containerIds: readonly string[];
  readonly fromContainers: boolean;
  readonly removeOld: boolean;
  /** Empty for none. */
  readonly planDigest: string;
  /** Values for settings of the compose file that `.env` does not set. */
  readonly settings: JsonObject;
  readonly settingTexts: Readonly<Record<string, string>>;
}

export interface AdopterOptions extends AppsContext, AdoptionPlannerOptions {
  stacks: UnmanagedStacks;
  installer: Installer;
  lifecycle: Lifecycle;
}

export class Adopter {
  readonly #options: AdopterOptions;
  readonly #planner: AdoptionPlanner;

  constructor(options: AdopterOptions) {
    this.#options = options;
    this.#planner = new AdoptionPlanner(options);
  }

  /** Stacks that can be adopted, sorted by name. */
  list(): Promise<UnmanagedStack[]> {
    return this.#options.stacks.list();
  }

  /** @throws SvcError `not_found`, `owned_by_app`, `package_invalid` */
  async plan({ name, containerIds, fromContainers, planDigest }: AdoptionRequest): Promise<AdoptionPlan> {
    const { stacks, userHelpers } = this.#options;
    if (userHelpers.selfUid !== 0)
      throw new SvcError("not_possible", "only a daemon that runs as root can adopt containers");
    const stack = await stacks.find(name);
    if (containerIds.length > 0) requireContainers(stack, containerIds);
    const plan = await this.#planner.plan(stack, fromContainers);
    if (planDigest !== "" && planDigest !== plan.digest)
      throw new SvcError("not_possible", `the containers or files of "${name}" have changed; ${planAgain}`);
    this.#requireUnused(plan);
    return plan;
  }

  /**
   * Resolves to the new app's ID.
   * @throws SvcError as {@link Installer.install}; `start_failed` if the app does not become healthy. The old containers run
   *   again then.
   */
  async adopt(
    plan: AdoptionPlan,
    request: AdoptionRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<string> {
    const { installer } = this.#options;
    const { appName: name, licenseAck, permissionsAck, removeOld, settings, settingTexts } = request;
    const { containers } = plan.stack;
    const origin = { spec: plan.directory, source: "", branch: "", tag: "" };
    const spec = { ...origin, settings, settingTexts, placement: null };
    let isSwitched = false;
    await this.#write(plan);
    try {
      // Root started the containers, so root owns the app, also for a caller through sudo.
      const owner = { ...caller, ownerUid: this.#options.userHelpers.selfUid };
      return await installer.install({ ...spec, name, licenseAck, permissionsAck }, owner, work, {
        ...{ data: plan.data, baseId: plan.baseId },
        detail: {
          containers: containers.map(({ id }) => id),
          running: containers.filter(({ state }) => isUpState(state)).map(({ id }) => id),
          removesOld: removeOld,
        },
        complete: async (operation, app, numbered) => {
          // Another adoption may have begun in the meantime.
          this.#requireUnused(plan, app.id);
          await this.#requirePlanned(plan, app);
          await this.#requireSame(plan, app);
          isSwitched = true;
          await this.#switch(operation, app, numbered);
        },
        undo: (operation) => this.undo(operation),
      });
    } catch (error) {
      await this.#removeWritten(plan);
      throw await this.#describeFailure(plan.stack, error, isSwitched);
    }
  }

  /** Two apps must not write to one volume. The old containers of an adopted stack still exist. */
  #requireUnused({ data }: AdoptionPlan, appId = ""): void {
    const names = new Set(Object.values(data.volumes));
    for (const { id, adopted } of this.#options.registry.all()) {
      const used = Object.values(adopted?.volumes ?? {}).find((name) => names.has(name));
      if (used === undefined || id === appId) continue;
      const message = `app "${id}" uses volume ${used}, which it adopted; remove the app first: svc rm ${id}`;
      throw new SvcError("not_possible", message);
    }
  }

  /** The owner of the directory, and everyone with access to the engine, can change the stack after the plan. */
  async #requirePlanned({ stack, composeFiles, sources }: AdoptionPlan, app: NewApp): Promise<void> {
    const { stacks, userHelpers, runnable } = this.#options;
    const ids = stack.containers.map(({ id }) => id);
    requireContainers(await stacks.find(stack.name), ids);
    const installed = runnable(app);
    const { directory: root, uid } = installed;
    const helper = await userHelpers.as(uid);
    const location = { helper, root, checkout: checkoutOf(installed), composeFiles, uid };
    if ((await this.#planner.sourcesOf(location)) !== sources)
      throw new SvcError(
        "not_possible",
        `files of "${stack.name}" have changed since the plan; ${planAgain}`,
      );
  }

  /** The app runs what the containers run: an adoption must not upgrade or leave out a service. */
  async #requireSame({ stack: { containers }, composeFiles }: AdoptionPlan, app: NewApp): Promise<void> {
    const { runtimeOf, runnable } = this.#options;
    const project = await runtimeOf(app).projects?.describe(runnable(app));
    if (project === undefined) return;
    const services = recordOf(project.document["services"]);
    const remedy = `run "docker compose up" there first, or adopt it with from_containers`;
    // The plan covers only these.
    if (!isDeepStrictEqual(project.composeFiles.toSorted(), composeFiles.toSorted())) {
      const message = `the app would run ${project.composeFiles.join(", ")}, and the project was started with ${composeFiles.join(", ")}; ${remedy}`;
      throw new SvcError("not_possible", message);
    }
    for (const container of containers.filter(({ state }) => isUpState(state))) {
      const service = serviceOf(container);
      const who = `container "${container.name}"`;
      if (!Object.hasOwn(services, service)) {
        const message = `the compose file does not run service "${service}" of ${who}; set its profile in .env, or ${remedy}`;
        throw new SvcError("not_possible", message);
      }
      const image = textOf(recordOf(services[service])["image"]);
      if (project.built.has(service) || isSameImage(image, container.image)) continue;
      const message = `the compose file runs ${image} as service "${service}", and ${who} runs ${container.image}; ${remedy}`;
      throw new SvcError("not_possible", message);
    }
  }

  /** The error, with what became of the old containers. @param wereStopped whether they may have been stopped */
  async #describeFailure(
    { containers }: UnmanagedStack,
    error: unknown,
    wereStopped: boolean,
  ): Promise<unknown> {
    if (!wereStopped || !(error instanceof SvcError)) return error;
    const ran = containers.filter(({ state }) => isUpState(state)).map(({ id }) => id);
    const down = await this.#options.stacks.stoppedNames(ran).catch(() => undefined);
    if (down === undefined) return error;
    const { reason, message, payload } = error as SvcError;
    const state =
      down.length === 0
        ? "the old containers run again"
        : `these old containers do not run: ${down.join(", ")}; start them: docker start ${down.join(" ")}`;
    const whole = `${message}; ${state}`;
    return new SvcError(reason, whole, { payload, cause: error });
  }

  /** Rolls an adoption back, or finishes it in phase `switched`. Recovery uses it, too; calling it twice is harmless. */
  async undo(operation: Operation): Promise<void> {
    const { registry, installer, runtimeOf, runnable, stacks, log } = this.#options;
    const phase = operation.phase as AdoptionPhase;
    if (phase === "switched") return this.#finish(operation);
    const app = registry.get(operation.appId);
    if (phase === "switch") {
      if (app !== undefined) {
        await runtimeOf(app).stop(runnable(app));
        // Frees its ports; its data is the old containers' own.
        await runtimeOf(app).remove(runnable(app));
      }
      await stacks.start(operation.detail.running ?? []).catch((error: unknown) => {
        // The operation stays, and recovery tries again when the engine is back.
        if (error instanceof SvcError && error.code === "unavailable") throw error;
        log.error(
          { err: error, appId: operation.appId },
          "failed to start the containers before an adoption",
        );
      });
    }
    await installer.undo(operation);
  }

  async #switch(operation: Operation, app: NewApp, { signal, onProgress }: WorkOptions): Promise<void> {
    const { operations, registry, lifecycle, stacks, log } = this.#options;
    const { running = [] } = operation.detail;
    const active = signal ?? new AbortController().signal;
    active.throwIfAborted();
    await operations.enter(operation, "switch" satisfies AdoptionPhase, [
      patchApp(app.id, { state: "STOPPED" }),
    ]);
    onProgress?.({ step: "stop", message: `Stopping ${running.length} old containers` });
    await stacks.stop(running);
    active.throwIfAborted();
    const record = registry.lockedApp(operation);
    onProgress?.({ step: "start", message: `Starting ${app.id}` });
    const patch = await lifecycle.startWithin(operation, record, active);
    await lifecycle.waitUntilUp(record, { signal: active, onProgress });
    await operations.enter(operation, "switched" satisfies AdoptionPhase, [
      patchApp(app.id, { ...patch, desired: "running" }),
    ]);
    // The app has replaced the containers, whatever happens to them now: recovery tries again.
    await this.#finish(operation).catch((error: unknown) => {
      log.warn({ err: error, appId: app.id }, "failed to retire the containers of an adopted stack");
    });
  }

  /** Completes an adoption that can no longer be rolled back. */
  async #finish(operation: Operation): Promise<void> {
    const { operations, stacks } = this.#options;
    const { containers = [], removesOld } = operation.detail;
    await stacks.retire(containers);
    if (removesOld === true) await stacks.remove(containers);
    await operations.end(operation);
  }

  async #write({ directory, fromContainers, files, uid }: AdoptionPlan): Promise<void> {
    if (files.length === 0) return;
    const helper = await this.#options.userHelpers.as(uid);
    if (fromContainers) await helper.makeDirs(dirname(dirname(directory)), [directoryBelow(directory)]);
    for (const { path, text } of files)
      await helper.writeFile(directory, basename(path), text, { mode: fromContainers ? 0o600 : 0o644 });
  }

  async #removeWritten({ directory, fromContainers, files, data, uid }: AdoptionPlan): Promise<void> {
    if (fromContainers) {
      const app = { adopted: data, origin: { url: directory } };
      await removeAdoptedPackage(this.#options, app).catch(() => undefined);
      return;
    }
    const helper = await this.#options.userHelpers.as(uid);
    for (const { path } of files) await helper.removeTree(directory, basename(path)).catch(() => undefined);
  }
}

const planAgain = "review the new plan, and adopt again";

/** @throws SvcError `not_possible` if the stack has other containers */
function requireContainers({ name, containers }: UnmanagedStack, ids: readonly string[]): void {
  if (containers.length === ids.length && containers.every(({ id }) => ids.includes(id))) return;
  throw new SvcError("not_possible", `"${name}" has other containers than the plan; ${planAgain}`);
}

/** Whether two references name the same image; a container of an image without a name is not compared. */
function isSameImage(reference: string, used: string): boolean {
  if (used.startsWith("sha256:")) return true;
  const whole = (text: string): string => formatImageReference(parseImageReference(text));
  return whole(reference) === whole(used);
}

/** `adopted/<name>`: both are created if missing. */
function directoryBelow(directory: string): string {
  return `${basename(dirname(directory))}/${basename(directory)}`;
}
