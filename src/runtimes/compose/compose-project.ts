/** Prepares and starts the compose project of an app. */
import { isUtf8 } from "node:buffer";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join, posix, relative } from "node:path";
import { blankedLabels, type Labels } from "../../engine/attribution.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EntryType } from "../../run-as/user-helper-types.ts";
import { isInside } from "../../lib/paths.ts";
import type { JsonObject } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import { appTree, checkoutOf } from "../app-tree.ts";
import type { AppNetworks } from "../containers/app-networks.ts";
import { releaseLabel } from "../containers/blocked-containers.ts";
import {
  requireAllowed,
  type Bind,
  type ContainerClaims,
  type HostPortRules,
  type PolicyOptions,
} from "../containers/container-policy.ts";
import { entryType } from "../entry-type.ts";
import { holdMounts } from "../containers/mount-points.ts";
import type { CurrentManifest, ResolvedProject } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { settingsDigest, settingsLabel } from "../settings-digest.ts";
import { startFailed } from "../start-failed.ts";
import { withAdoptedObjects, withoutAdopted, withOwnObjects } from "./adopted-data.ts";
import { moveData, seedData } from "./checkout-binds.ts";
import {
  labelled,
  printDocument,
  readPrinted,
  withoutPulls,
  type ProjectLabels,
  type RunnableProject,
} from "./compose-document.ts";
import { writeInlineFiles } from "./inline-files.ts";
import { isSet, recordOf, textOf } from "./compose-values.ts";
import { projectClaims } from "./project-claims.ts";
import { pullImages, type PullOptions } from "./project-images.ts";
import { PullTimes } from "./pull-policy.ts";
import { withoutSubnets } from "./project-networks.ts";
import { explainMissingSources, lastLines, reasonOf } from "./compose-failure.ts";
import { portVariables, withCurrentPorts, withDotenvPorts } from "./current-ports.ts";
import { creationGroups, mountedFiles, referencesOf } from "./document-services.ts";
import { fixedPorts } from "./service-ports.ts";
import {
  ComposePlanner,
  nameVariable,
  projectArgs,
  type ComposePlan,
  type ComposePlannerOptions,
} from "./compose-plan.ts";

export interface ComposeProjectsOptions extends ComposePlannerOptions {
  engine: DockerEngine;
  networks: Pick<AppNetworks, "pool">;
  portRules: HostPortRules;
}

/** All containers of an app have the same release: compose itself recreates what has changed. */
export const composeRelease = "compose";

/** No limit, because a service may run a migration before the others start. The longest delay of a timer. */
const upTimeoutMs = 2 ** 31 - 1;
/** Engines store no larger secret or config. */
const maxStoredFileBytes = 1_000 * 1_024;

export class ComposeProjects {
  readonly #options: ComposeProjectsOptions;
  readonly #planner: ComposePlanner;

  constructor(options: ComposeProjectsOptions) {
    this.#options = options;
    this.#planner = new ComposePlanner(options);
  }

  /**
   * The project as it would run now. Compose reads the checkout as the owner, and its output is checked; the checkout
   * is not read again afterwards.
   * @throws SvcError `package_invalid`, `denied`
   */
  async resolve(app: RunnableApp, signal?: AbortSignal): Promise<RunnableProject> {
    return (await this.#resolve(app, signal)).project;
  }

  async #resolve(app: RunnableApp, signal?: AbortSignal): Promise<ComposePlan> {
    const plan = await this.#planner.plan(app, signal);
    // Missing sources are created at the start.
    const userHelper = await this.#options.userHelpers.as(app.uid);
    const present = await this.#withoutMissing(app, plan.claims);
    await this.#requireAllowed(app, present, (path) => entryType(userHelper, app.directory, path));
    return plan;
  }

  /**
   * The project with the package's files that services mount individually, up to the size that engines store.
   * @throws SvcError as {@link resolve}
   */
  async describe(app: RunnableApp): Promise<ResolvedProject> {
    const { project, composeFiles } = await this.#resolve(app);
    const { document, builds } = project;
    const tags = new Set(builds.map(({ service }) => this.#options.images.builtTag(app, service)));
    const userHelper = await this.#options.userHelpers.as(app.uid);
    const checkout = join(app.directory, checkoutOf(app));
    const paths = mountedFiles(document).filter((path) => isInside(checkout, path) && path !== checkout);
    const files = new Map<string, string>();
    let left = maxStoredFileBytes;
    for (const path of paths) {
      const below = relative(app.directory, path);
      if ((await entryType(userHelper, app.directory, below)) !== "file") continue;
      const { sizeBytes = 0 } = (await userHelper.stat(app.directory, below)) ?? {};
      if (sizeBytes > left) continue;
      const bytes = await userHelper.readFile(app.directory, below, { maxBytes: maxStoredFileBytes });
      left -= bytes.length;
      // Manifests of other engines can only contain text.
      if (isUtf8(bytes)) files.set(path, bytes.toString());
    }
    return {
      project: this.#nameOf(app),
      ...{ document, composeFiles },
      built: new Set(
        [...referencesOf(document)].flatMap(([service, image]) => (tags.has(image) ? [service] : [])),
      ),
      files,
    };
  }

  /** The manifest with the ports of its file. @throws SvcError as {@link resolve} */
  async currentManifest(app: RunnableApp, signal?: AbortSignal): Promise<CurrentManifest> {
    const variables = portVariables(app.manifest);
    const values = await this.#planner.dotenv(app, [...variables.values()], signal);
    const current = withDotenvPorts(app, variables, values);
    const fixed = new Set(fixedPorts(app.manifest).map(({ setting }) => setting));
    const settings = Object.fromEntries(Object.entries(app.settings).filter(([key]) => !fixed.has(key)));
    const unmoved = { ...app, manifest: current.manifest, settings };
    const { project } = await this.#planner.plan(unmoved, signal);
    const found = withCurrentPorts(unmoved, project.document);
    const unused = unusedVolumes(await this.lastDocument(app.id), project.document);
    return { ...found, notes: [...current.notes, ...found.notes, ...unused] };
  }

  /** {@link resolve} for a start: creates and holds the mount sources. The app's containers must not run. */
  async prepareFiles(app: RunnableApp, signal?: AbortSignal): Promise<RunnableProject> {
    const { userHelpers } = this.#options;
    await this.preserveData(app, ["directory"]);
    const { project, placed, files, claims, data } = await this.#planner.plan(app, signal);
    const binds = claims.flatMap((claim) => claim.binds);
    const tree = await userHelpers.tree(app.directory, app.uid);
    await tree.remove(appTree.inline);
    const typeOf = await holdMounts(userHelpers, app, binds);
    await writeInlineFiles(tree, files);
    await seedData(await userHelpers.as(app.uid), tree, data);
    // Otherwise the engine would create them as root.
    for (const { source } of binds) {
      if (source === app.directory || !isInside(app.directory, source)) continue;
      const path = relative(app.directory, source);
      if ((await typeOf(path)) === undefined) await tree.makeDirs([path]);
    }
    await this.#requireAllowed(app, claims, typeOf);
    return { ...project, document: placed };
  }

  /**
   * Moves data that containers wrote into the checkout to a permanent place. The app's containers must not run.
   * @param types types of entries to move
   */
  async preserveData(app: RunnableApp, types: readonly EntryType[]): Promise<void> {
    const { userHelpers } = this.#options;
    const document = await this.lastDocument(app.id);
    if (document === undefined) return;
    const tree = await userHelpers.tree(app.directory, app.uid);
    await moveData(await userHelpers.as(app.uid), tree, document, types);
  }

  async #withoutMissing(app: RunnableApp, claims: readonly ContainerClaims[]): Promise<ContainerClaims[]> {
    const userHelper = await this.#options.userHelpers.as(app.uid);
    const isThere = async ({ source }: Bind): Promise<boolean> =>
      !isInside(app.directory, source) ||
      (await entryType(userHelper, app.directory, relative(app.directory, source) || ".")) !== undefined;
    return Promise.all(
      claims.map(async (claim) => {
        const binds: Bind[] = [];
        for (const bind of claim.binds) if (await isThere(bind)) binds.push(bind);
        return { ...claim, binds };
      }),
    );
  }

  /** Checks whether the last document may still run. @throws SvcError `denied` */
  async checkLast(app: RunnableApp): Promise<void> {
    const last = await this.lastDocument(app.id);
    if (last === undefined) return;
    const document = withOwnObjects(withoutSubnets(last), app);
    const claims = withoutAdopted(projectClaims(withoutLabels(document), this.#nameOf(app)), app);
    const typeOf = await holdMounts(
      this.#options.userHelpers,
      app,
      claims.flatMap(({ binds }) => binds),
    );
    await this.#requireAllowed(app, claims, typeOf);
  }

  async #requireAllowed(
    app: RunnableApp,
    claims: readonly ContainerClaims[],
    typeOf: PolicyOptions["typeOf"],
  ): Promise<void> {
    const { userHelpers, engine, networks, portRules } = this.#options;
    const { user } = await userHelpers.as(app.uid);
    await requireAllowed(app, claims, {
      ...{ user, typeOf, engineSockets: [engine.socket], subnetPool: networks.pool },
      ...portRules,
    });
  }

  /**
   * Makes compose create and start the project's containers.
   * @param how `--no-start` to only create them
   * @param completed services that are not started again; compose v1 starts them
   * @throws SvcError `start_failed` with compose's last output; the signal's reason
   */
  async up(
    app: RunnableApp,
    { document }: RunnableProject,
    how: "--detach" | "--no-start",
    { completed, signal }: { completed?: ReadonlySet<string>; signal?: AbortSignal | undefined },
  ): Promise<void> {
    await this.write(app, document);
    const isClassic = await this.#options.command.isClassic();
    const groups = isClassic && how === "--no-start" ? creationGroups(document) : [];
    if (groups.length > 1) {
      for (const group of groups) await this.#up(app, [how, "--no-deps", ...group], signal);
      return;
    }
    const names = Object.keys(recordOf(document["services"])).filter((name) => !completed?.has(name));
    const isSubset = completed !== undefined && completed.size > 0 && names.length > 0;
    const isPart = isSubset && !isClassic;
    await this.#up(app, [how, "--remove-orphans", ...(isPart ? ["--no-deps", ...names] : [])], signal);
  }

  /** Replaces the container of one service of the last started project, and does not start it. @throws as {@link up} */
  async recreate(app: RunnableApp, service: string, signal?: AbortSignal): Promise<void> {
    await this.#up(app, ["--no-start", "--force-recreate", "--no-deps", service], signal);
  }

  /** Starts one service of the last started project. @throws as {@link up} */
  async startService(app: RunnableApp, service: string): Promise<void> {
    await this.#up(app, ["--detach", "--no-deps", service]);
  }

  async #up(app: RunnableApp, options: readonly string[], ended?: AbortSignal): Promise<void> {
    const { userHelpers, command, engine } = this.#options;
    const file = this.#path(app.id);
    const args = ["up", "--no-build", ...options];
    const self = await userHelpers.as(userHelpers.selfUid);
    // Compose would wait for a hanging engine.
    const { exitCode, stderr } = await engine.operate(
      `start app "${app.id}"`,
      (_docker, signal) =>
        command.run(self, [...projectArgs([file], posix.dirname(file)), ...args], {
          cwd: posix.dirname(file),
          env: {
            DOCKER_HOST: `unix://${engine.socket}`,
            HOME: posix.dirname(file),
            ...nameVariable(this.#nameOf(app)),
          },
          ...{ timeoutMs: upTimeoutMs, signal },
        }),
      { waitsFor: "start", signal: ended },
    );
    if (exitCode === 0) return;
    const lines = lastLines(stderr);
    const document = app.ownerUid === 0 ? await this.lastDocument(app.id) : undefined;
    const reason = await explainMissingSources(reasonOf(lines), mountedFiles(document ?? {}));
    throw startFailed(app.id, reason, { exitCode: exitCode ?? 1, lastLines: lines });
  }

  /** Writes the document to a directory that only the daemon can change; resolves to its path. */
  async write(app: RunnableApp, document: JsonObject): Promise<string> {
    const { ownership } = this.#options;
    const inherited = await this.#imageLabels(document);
    const own = { [releaseLabel]: composeRelease, [settingsLabel]: settingsDigest(app) };
    const labels: ProjectLabels = {
      of: (kind) => ({ ...ownership.labels(kind, app.id), ...own }),
      // Compose overwrites the labels that it depends on.
      ofService: (service) => blankedLabels(inherited.get(service)),
    };
    const path = this.#path(app.id);
    await mkdir(posix.dirname(path), { recursive: true, mode: 0o700 });
    const isPlain = app.ownerUid === 0 || (await this.#options.command.isClassic());
    const adopted = withAdoptedObjects(document, app);
    const run = labelled(isPlain ? adopted : withoutPulls(adopted), labels);
    await writeFile(`${path}.new`, printDocument(run), { mode: 0o600 });
    await rename(`${path}.new`, path);
    return path;
  }

  /** The labels of each service's image, if the image exists here. */
  async #imageLabels(document: JsonObject): Promise<ReadonlyMap<string, Labels>> {
    const labels = new Map<string, Labels>();
    for (const [service, reference] of referencesOf(document)) {
      const image = await this.#options.images.inspect(reference);
      labels.set(service, (image?.Config.Labels as Labels | null | undefined) ?? {});
    }
    return labels;
  }

  /** The last written document; `undefined` before the first start. */
  async lastDocument(id: string): Promise<JsonObject | undefined> {
    try {
      return readPrinted(await readFile(this.#path(id), "utf8"));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
  }

  /** Names of the volumes that the last document takes from outside the app. */
  async externalVolumes(id: string): Promise<string[]> {
    const volumes = Object.entries(recordOf((await this.lastDocument(id))?.["volumes"]));
    return volumes.flatMap(([key, value]) => {
      const { external = null, name = null } = recordOf(value);
      return isSet(external) ? [textOf(name) || key] : [];
    });
  }

  /** Whether the app may have engine volumes, by the last document. */
  async hasVolumes(id: string): Promise<boolean> {
    return Object.keys(recordOf((await this.lastDocument(id))?.["volumes"])).length > 0;
  }

  /** Pulls images as their services' policies require. @throws SvcError as {@link pullImages} */
  async pull(
    app: RunnableApp,
    project: Pick<RunnableProject, "pulls">,
    work: Omit<PullOptions, "times">,
  ): Promise<void> {
    const times = new PullTimes(join(posix.dirname(this.#path(app.id)), "pulls.json"));
    await pullImages(this.#options.images, app, project, { ...work, times });
  }

  async forget(id: string): Promise<void> {
    this.#planner.forget(id);
    await rm(posix.dirname(this.#path(id)), { recursive: true, force: true });
  }

  #path(id: string): string {
    return join(this.#options.composeDir, id, "compose.json");
  }

  #nameOf({ id }: Pick<RunnableApp, "id">): string {
    return this.#options.ownership.projectOf(id);
  }
}

/** Notes on volumes of the last version that the new one lacks: after a rename, an app starts without its data. */
function unusedVolumes(last: JsonObject | undefined, next: JsonObject): string[] {
  const used = recordOf(next["volumes"]);
  return Object.entries(recordOf(last?.["volumes"])).flatMap(([name, volume]) => {
    const { external = null, driver_opts: options = null } = recordOf(volume);
    // Their data is elsewhere.
    if (Object.hasOwn(used, name) || isSet(external) || isSet(options)) return [];
    return [`this version does not use volume "${name}"; its data stays until the app is removed`];
  });
}

/** Removes labels, which were checked before: they cannot have changed, and some are svc's own. */
function withoutLabels(document: JsonObject): JsonObject {
  const sections = (["services", "networks", "volumes"] as const).map((section) => [
    section,
    mapValues(recordOf(document[section]), (part) => ({ ...recordOf(part), labels: null })),
  ]);
  return { ...document, ...(Object.fromEntries(sections) as JsonObject) };
}
