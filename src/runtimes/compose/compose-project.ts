/** Prepares an app's compose file: from the checkout to the document that compose runs. */
import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join, posix, relative } from "node:path";
import { blankedLabels, type Labels } from "../../engine/attribution.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EngineEvents } from "../../engine/events.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import type { EntryType } from "../../run-as/user-helper-types.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { SvcError } from "../../errors.ts";
import { isInside } from "../../lib/paths.ts";
import type { JsonObject } from "../../lib/json.ts";
import { Limiter } from "../../lib/limiter.ts";
import { mapValues } from "../../lib/map-values.ts";
import type { ComposeRuntime as ComposeSection } from "../../packages/manifest/manifest.ts";
import { resolveSettings } from "../../packages/settings/settings.ts";
import type { YamlThread } from "../../packages/manifest/yaml-thread.ts";
import { rootShare } from "../../lib/share-owner.ts";
import { appEnvironment, appExpander } from "../app-environment.ts";
import { appTree, checkoutOf } from "../app-tree.ts";
import type { AppNetworks } from "../containers/app-networks.ts";
import { releaseLabel } from "../containers/blocked-containers.ts";
import {
  ownerSpec,
  requireAllowed,
  requireModest,
  type Bind,
  type ContainerClaims,
  type HostPortRules,
  type PolicyOptions,
} from "../containers/container-policy.ts";
import { entryType } from "../entry-type.ts";
import { missingClock } from "../containers/host-clock.ts";
import { holdMounts } from "../containers/mount-points.ts";
import { type AppImages, withTag } from "../docker/app-images.ts";
import { requireAllowedName } from "../docker/image-names.ts";
import type { PublishOptions } from "../containers/published-ports.ts";
import type { ResolvedProject } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { settingsDigest, settingsLabel } from "../settings-digest.ts";
import { startFailed } from "../start-failed.ts";
import { dataBinds, moveData, seedData, withData } from "./checkout-binds.ts";
import type { ComposeCommand } from "./compose-command.ts";
import {
  labelled,
  printDocument,
  readPrinted,
  readResolved,
  runnableProject,
  withoutPulls,
  type ProjectLabels,
  type RunnableProject,
} from "./compose-document.ts";
import {
  checkComposeSources,
  contentVariablesOf,
  invalid,
  type ComposeSources,
  type YamlReader,
} from "./compose-sources.ts";
import { withInlineFiles, withVariables, writeInlineFiles, type InlineFile } from "./inline-files.ts";
import { recordOf } from "./compose-values.ts";
import { projectClaims } from "./project-claims.ts";
import { requireFewParts } from "./project-size.ts";
import { withoutSubnets } from "./project-networks.ts";
import { withAddresses } from "./service-ports.ts";
import { configFailure, lastLines, reasonOf } from "./compose-failure.ts";
import { ConfigCache, type CachedConfig } from "./config-cache.ts";
import { dotenvValues } from "./dotenv-values.ts";
import { chooseProject, type ProjectChoice } from "./project-files.ts";
import { referencesOf, mountedFiles } from "./document-services.ts";

export interface ComposeProjectsOptions extends PublishOptions {
  userHelpers: UserHelpers;
  command: ComposeCommand;
  images: AppImages;
  ownership: EngineOwnership;
  /** The daemon's directory for compose documents; one directory per app. */
  composeDir: string;
  engine: DockerEngine;
  events: Pick<EngineEvents, "verify" | "isUnresponsive">;
  networks: Pick<AppNetworks, "pool">;
  yaml: YamlThread;
  portRules: HostPortRules;
  /** Default process limit of a regular user's service. */
  usersPidsLimit: number;
  /** Limit of the processes and threads of a regular user, in all containers together. */
  maxUserProcesses: number;
}

/** All containers of an app have the same release: compose itself recreates what has changed. */
export const composeRelease = "compose";

/** A project, its host access, and which of its mounts are data ({@link dataBinds}). */
interface Plan {
  readonly project: RunnableProject;
  /** The document for this host's engine, with inline contents as files; `claims` refer to it. */
  readonly placed: JsonObject;
  readonly files: readonly InlineFile[];
  readonly claims: readonly ContainerClaims[];
  readonly data: readonly string[];
}

/** Reads variables of the `.env` in a directory, which is relative to the app's. */
type ValueReader = (directory: string, names: Iterable<string>) => Promise<ReadonlyMap<string, string>>;

interface ConfigInputs {
  readonly section: ComposeSection;
  readonly choice: ProjectChoice;
  readonly sources: ComposeSources;
  readonly readValues: ValueReader;
}

const configTimeoutMs = 60_000;
/** No limit, because a service may run a migration before the others start. The longest delay of a timer. */
const upTimeoutMs = 2 ** 31 - 1;
const maxConfigBytes = 4 * 1024 * 1024;
/** Engines store no larger secret or config. */
const maxStoredFileBytes = 1_000 * 1_024;

export class ComposeProjects {
  readonly #options: ComposeProjectsOptions;
  readonly #configs: ConfigCache;
  /**
   * By owner. Simultaneous starts wait here, because more would overload the thread that parses YAML, and each may
   * run compose. Users do not wait for each other.
   */
  readonly #planning = new Limiter<number>({
    ...{ total: Number.POSITIVE_INFINITY, perKey: 4, reserved: 12, maxWaiting: 1_000 },
    isReserved: (uid) => uid === rootShare,
    tooMany: ({ waiting }) =>
      new SvcError(
        "too_many",
        `${waiting} of your compose projects are waiting to be processed; try again in a moment`,
      ),
  });

  constructor(options: ComposeProjectsOptions) {
    this.#options = options;
    this.#configs = new ConfigCache(options.composeDir);
  }

  /**
   * The project as it would run now. Compose reads the checkout as the owner, and its output is checked; the checkout
   * is not read again afterwards.
   * @throws SvcError `package_invalid`, `denied`
   */
  async resolve(app: RunnableApp, signal?: AbortSignal): Promise<RunnableProject> {
    const { project, claims } = await this.#plan(app, signal);
    // Missing sources are created at the start.
    const userHelper = await this.#options.userHelpers.as(app.uid);
    const present = await this.#withoutMissing(app, claims);
    await this.#requireAllowed(app, present, (path) => entryType(userHelper, app.directory, path));
    return project;
  }

  /**
   * The project with the package's files that services mount individually, up to the size that engines store.
   * @throws SvcError as {@link resolve}
   */
  async describe(app: RunnableApp): Promise<ResolvedProject> {
    const { document, builds } = await this.resolve(app);
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
      document,
      built: new Set(
        [...referencesOf(document)].flatMap(([service, image]) => (tags.has(image) ? [service] : [])),
      ),
      files,
    };
  }

  /** {@link resolve} for a start: creates and holds the mount sources. The app's containers must not run. */
  async prepareFiles(app: RunnableApp, signal?: AbortSignal): Promise<RunnableProject> {
    const { userHelpers } = this.#options;
    await this.preserveData(app, ["directory"]);
    const { project, placed, files, claims, data } = await this.#plan(app, signal);
    const binds = claims.flatMap((claim) => claim.binds);
    const tree = await userHelpers.tree(app.directory, app.uid);
    await tree.remove(appTree.inline);
    const typeOf = await holdMounts(userHelpers, app, binds);
    await writeInlineFiles(tree, files);
    await seedData(tree, data);
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
    const document = await this.kept(app.id);
    if (document === undefined) return;
    const tree = await userHelpers.tree(app.directory, app.uid);
    await moveData(await userHelpers.as(app.uid), tree, document, types);
  }

  async #plan(app: RunnableApp, signal?: AbortSignal): Promise<Plan> {
    using _slot = await this.#planning.acquire(app.ownerUid, signal);
    return await this.#planNow(app, signal);
  }

  async #planNow(app: RunnableApp, signal?: AbortSignal): Promise<Plan> {
    const { userHelpers, images, events } = this.#options;
    const section = composeSection(app);
    const { file } = section;
    // Detects a hanging engine while compose runs, and stops waiting for compose then.
    const hung = new AbortController();
    events.verify().catch((error: unknown) => {
      if (events.isUnresponsive) hung.abort(error);
    });
    const ended = signal === undefined ? hung.signal : AbortSignal.any([signal, hung.signal]);
    if (app.manifest.health?.probe.kind === "exec") {
      throw invalid(
        "svc.yaml",
        "health.exec is not supported for compose projects; use a healthcheck in the compose file",
      );
    }
    const userHelper = await userHelpers.as(app.uid);
    const readYaml: YamlReader = (text, bounds) => this.#options.yaml.read(text, bounds, app.ownerUid, ended);
    const options = { command: this.#options.command, runner: userHelper, readYaml, signal: ended };
    const readValues: ValueReader = (directory, names) =>
      dotenvValues(options, join(app.directory, directory), names);
    const place = { root: app.directory, checkout: checkoutOf(app), section };
    const choice = await chooseProject(userHelper, place, readValues);
    const sources = await checkComposeSources(
      userHelper,
      app.directory,
      checkoutOf(app),
      choice.files,
      readYaml,
    );
    const { text, values } = await this.#config(app, { section, choice, sources, readValues }, ended);
    const resolved = await readResolved(text, file, readYaml);
    requireFewParts(resolved, file, app.ownerUid === 0);
    const variables = { ...values, ...environmentOf(app, section) };
    const project = runnableProject(withVariables(resolved, variables, file), {
      file,
      isClassic: await this.#options.command.isClassic(),
      profiles: choice.profiles,
      restart: app.manifest.restart,
      stopGraceMs: app.manifest.stop.graceMs,
      owner: app.ownerUid === 0 ? undefined : ownerSpec(userHelper.user),
      pidsLimit: app.ownerUid === 0 ? undefined : this.#options.usersPidsLimit,
      maxUserProcesses: app.ownerUid === 0 ? undefined : this.#options.maxUserProcesses,
      absent: await missingClock(),
      builtTag: (service) => images.builtTag(app, service),
      withTag,
    });
    for (const { context, service } of project.builds) {
      if (!isInside(join(app.directory, checkoutOf(app)), context)) {
        throw invalid(
          file,
          `service "${service}": the build context is outside the package; move it into the package`,
        );
      }
    }
    for (const image of project.pulls) requireAllowedName(image);
    const data = await dataBinds(userHelper, app, project.document);
    const withPlaces = withData(project.document, app, data);
    const document = withAddresses(withPlaces, app, this.#options);
    const isRoots = app.ownerUid === 0;
    const { document: placed, files } = withInlineFiles(document, { directory: app.directory, isRoots });
    const claims = projectClaims(placed, this.#nameOf(app));
    requireModest(app, claims);
    return { project: { ...project, document }, placed, files, claims, data };
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
    const kept = await this.kept(app.id);
    if (kept === undefined) return;
    const document = withoutSubnets(kept);
    const claims = projectClaims(withoutLabels(document), this.#nameOf(app));
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
   * The output of compose for the checkout, which requires no engine. It is cached, also for the next daemon, until
   * its inputs change: compose takes longer than the rest of a start, and a booting host starts all its apps.
   */
  async #config(
    app: RunnableApp,
    { section, choice, sources, readValues }: ConfigInputs,
    signal: AbortSignal,
  ): Promise<CachedConfig> {
    const { userHelpers, command } = this.#options;
    const directory = join(app.directory, checkoutOf(app));
    const below = posix.dirname(choice.files[0]);
    const args = [
      ...projectArgs(
        choice.files.map((file) => join(directory, file)),
        join(directory, below),
      ),
      ...choice.profiles.flatMap((name) => ["--profile", name]),
      "config",
    ];
    const env = { ...environmentOf(app, section), ...this.#projectEnvironment(app) };
    const userHelper = await userHelpers.as(app.uid);
    const key = createHash("sha256")
      .update(JSON.stringify([sources.digest, await command.fingerprint(), userHelper.user, args, env]))
      .digest("hex");
    const known = await this.#configs.find(app.id, key);
    if (known !== undefined) return known;
    const { exitCode, stdout, stderr } = await command.run(userHelper, args, {
      ...{ cwd: directory, env },
      ...{ timeoutMs: configTimeoutMs, maxOutputBytes: maxConfigBytes, signal },
    });
    if (exitCode !== 0) throw invalid(section.file, configFailure(lastLines(stderr).join(" ")));
    const content = sources.documents.flatMap((document) => [...contentVariablesOf(document)]);
    const missing = content.map(({ name }) => name).filter((name) => !Object.hasOwn(env, name));
    const values = await readValues(posix.join(checkoutOf(app), below), missing);
    const config = { key, text: stdout, values: Object.fromEntries(values) };
    await this.#configs.store(app.id, config);
    return config;
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
    const names = Object.keys(recordOf(document["services"])).filter((name) => !completed?.has(name));
    const isSubset = completed !== undefined && completed.size > 0 && names.length > 0;
    const isPart = isSubset && !(await this.#options.command.isClassic());
    await this.#up(app, [how, "--remove-orphans", ...(isPart ? ["--no-deps", ...names] : [])], signal);
  }

  /** As {@link up}, for one service of the last started project, whose container is replaced. */
  async recreate(
    app: RunnableApp,
    service: string,
    how: "--detach" | "--no-start",
    signal?: AbortSignal,
  ): Promise<void> {
    await this.#up(app, [how, "--force-recreate", "--no-deps", service], signal);
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
            ...this.#projectEnvironment(app),
          },
          ...{ timeoutMs: upTimeoutMs, signal },
        }),
      { waitsFor: "start", signal: ended },
    );
    if (exitCode === 0) return;
    const lines = lastLines(stderr);
    throw startFailed(app.id, reasonOf(lines), { exitCode: exitCode ?? 1, lastLines: lines });
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
    const run = labelled(isPlain ? document : withoutPulls(document), labels);
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
  async kept(id: string): Promise<JsonObject | undefined> {
    try {
      return readPrinted(await readFile(this.#path(id), "utf8"));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
  }

  /** Whether the app may have engine volumes, by the last document. */
  async hasVolumes(id: string): Promise<boolean> {
    return Object.keys(recordOf((await this.kept(id))?.["volumes"])).length > 0;
  }

  async forget(id: string): Promise<void> {
    this.#configs.forget(id);
    await rm(posix.dirname(this.#path(id)), { recursive: true, force: true });
  }

  #path(id: string): string {
    return join(this.#options.composeDir, id, "compose.json");
  }

  #nameOf({ id }: Pick<RunnableApp, "id">): string {
    return this.#options.ownership.projectOf(id);
  }

  /** Passed in the environment, because every user can read arguments, and the name is secret. */
  #projectEnvironment(app: RunnableApp): Record<string, string> {
    return { COMPOSE_PROJECT_NAME: this.#nameOf(app) };
  }
}

function projectArgs(files: readonly string[], directory: string): string[] {
  return [...files.flatMap((file) => ["--file", file]), "--project-directory", directory];
}

/** The variables for resolving the file. */
function environmentOf(app: RunnableApp, section: ComposeSection): Record<string, string> {
  return {
    ...mapValues(section.env, appExpander(app)),
    ...resolveSettings(app.manifest, app.settings).env,
    ...appEnvironment(app),
  };
}

/** Removes labels, which were checked before: they cannot have changed, and some are svc's own. */
function withoutLabels(document: JsonObject): JsonObject {
  const sections = (["services", "networks", "volumes"] as const).map((section) => [
    section,
    mapValues(recordOf(document[section]), (part) => ({ ...recordOf(part), labels: null })),
  ]);
  return { ...document, ...(Object.fromEntries(sections) as JsonObject) };
}

/** @throws Error for an app that is not a compose project */
function composeSection(app: RunnableApp): ComposeSection {
  const { runtime } = app.manifest;
  if (runtime.kind !== "compose") throw new Error(`app ${app.id} runs as ${runtime.kind}`);
  return runtime;
}
