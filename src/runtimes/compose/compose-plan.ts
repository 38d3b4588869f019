/**
 * Plans an app's compose project. svc reads the checkout as the owner and gives compose copies, which it reads as a uid
 * without other files. Then svc checks and changes the result.
 */
import { createHash } from "node:crypto";
import { join, posix, relative } from "node:path";
import type { EngineEvents } from "../../engine/events.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import type { IsolatedRun } from "../../run-as/isolated-run.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { Limiter } from "../../lib/limiter.ts";
import { mapValues } from "../../lib/map-values.ts";
import type { ComposeRuntime as ComposeSection } from "../../packages/manifest/manifest.ts";
import { resolveSettings } from "../../packages/settings/settings.ts";
import type { YamlThread } from "../../packages/manifest/yaml-thread.ts";
import { rootShare } from "../../lib/share-owner.ts";
import { appEnvironment, appExpander } from "../app-environment.ts";
import { checkoutOf } from "../app-tree.ts";
import { ownerSpec, requireWithinLimits, type ContainerClaims } from "../containers/container-policy.ts";
import { missingClockFiles } from "../containers/host-clock.ts";
import type { AppImages } from "../docker/app-images.ts";
import { withTag, requireAllowedName } from "../docker/image-names.ts";
import type { PublishOptions } from "../containers/published-ports.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { entryType } from "../entry-type.ts";
import { withAdoptedMounts, withoutAdopted } from "./adopted-data.ts";
import { withBindVolumes } from "./bind-volumes.ts";
import { dataBinds, withData } from "./checkout-binds.ts";
import type { ComposeCommand } from "./compose-command.ts";
import { readResolved, runnableProject, withoutCopies, type RunnableProject } from "./compose-document.ts";
import {
  checkComposeSources,
  contentVariablesOf,
  invalid,
  type ComposeSources,
  type TextResolver,
  type YamlReader,
} from "./compose-sources.ts";
import { withInlineFiles, withVariables, type InlineFile } from "./inline-files.ts";
import { projectClaims } from "./project-claims.ts";
import { requireFewParts } from "./project-size.ts";
import { buildClaims, requireInPackage } from "./service-build.ts";
import { withHostPorts } from "./service-ports.ts";
import { requireClassicSubstitution } from "./classic-substitution.ts";
import { configFailure } from "./compose-failure.ts";
import { ConfigCache, type CachedConfig } from "./config-cache.ts";
import { dotenvValues, resolvedTexts } from "./dotenv-values.ts";
import { chooseProject, type ProjectChoice } from "./project-files.ts";
import { ProjectReads } from "./project-reads.ts";

/** A project, its host access, and which of its mounts are data ({@link dataBinds}). */
export interface ComposePlan {
  readonly project: RunnableProject;
  /** Relative to the checkout. */
  readonly composeFiles: readonly string[];
  /** The document for this host's engine, with inline contents as files; `claims` refer to it. */
  readonly placed: JsonObject;
  readonly files: readonly InlineFile[];
  readonly claims: readonly ContainerClaims[];
  readonly data: readonly string[];
}

/** Reads variables of the `.env` in a directory, which is relative to the app's. */
type ValueReader = (directory: string, names: Iterable<string>) => Promise<ReadonlyMap<string, string>>;

interface OpenProject {
  readonly choice: ProjectChoice;
  readonly reads: ProjectReads;
  readonly readYaml: YamlReader;
  readonly readValues: ValueReader;
  readonly resolveTexts: TextResolver;
}

interface ConfigInputs extends Omit<OpenProject, "readValues" | "resolveTexts"> {
  readonly section: ComposeSection;
  readonly sources: ComposeSources;
}

const configTimeoutMs = 60_000;
const maxConfigBytes = 4 * 1024 * 1024;

export interface ComposePlannerOptions extends PublishOptions {
  userHelpers: UserHelpers;
  command: ComposeCommand;
  images: AppImages;
  ownership: EngineOwnership;
  /** The daemon's directory for compose documents; one directory per app. */
  composeDir: string;
  events: Pick<EngineEvents, "verify" | "isUnresponsive">;
  yaml: YamlThread;
  /** Default process limit of a regular user's service. */
  usersPidsLimit: number;
  /** Limit of the processes and threads of a regular user, in all containers together. */
  maxUserProcesses: number;
}

export class ComposePlanner {
  readonly #options: ComposePlannerOptions;
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

  constructor(options: ComposePlannerOptions) {
    this.#options = options;
    this.#configs = new ConfigCache(options.composeDir);
  }

  /** The project as it would run now. @throws SvcError `package_invalid`, `denied` */
  async plan(app: RunnableApp, signal?: AbortSignal): Promise<ComposePlan> {
    using _slot = await this.#planning.acquire(app.ownerUid, signal);
    return await this.#planNow(app, signal);
  }

  async #planNow(app: RunnableApp, signal?: AbortSignal): Promise<ComposePlan> {
    const { userHelpers, images, events } = this.#options;
    const section = composeSection(app);
    const { file } = section;
    const isRoots = app.ownerUid === 0;
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
    const { reads, readYaml, choice, resolveTexts } = await this.#open(app, ended);
    const checkout = checkoutOf(app);
    const sources = await checkComposeSources(
      reads,
      app.directory,
      checkout,
      choice.files,
      readYaml,
      resolveTexts,
    );
    const inputs = { section, choice, sources, reads, readYaml };
    const isClassic = await this.#options.command.isClassic();
    if (isClassic) requireClassicSubstitution(sources.documents, file);
    const { text, values, copies } = await this.#config(app, inputs, ended);
    const written = await readResolved(text, file, readYaml, copies);
    const resolved = withBindVolumes(written, join(app.directory, checkout));
    requireFewParts(resolved, file, isRoots);
    const variables = { ...values, ...environmentOf(app, section) };
    const project = runnableProject(withVariables(resolved, variables, file), {
      file,
      isClassic,
      profiles: choice.profiles,
      restart: app.manifest.restart,
      stopGraceMs: app.manifest.stop.graceMs,
      owner: isRoots ? undefined : ownerSpec(userHelper.user),
      pidsLimit: isRoots ? undefined : this.#options.usersPidsLimit,
      maxUserProcesses: isRoots ? undefined : this.#options.maxUserProcesses,
      absent: await missingClockFiles(),
      builtTag: (service) => images.builtTag(app, service),
      withTag,
    });
    for (const build of project.builds) requireInPackage(file, build, join(app.directory, checkoutOf(app)));
    for (const { reference } of project.pulls) requireAllowedName(reference);
    const adopted = withAdoptedMounts(project.document, app);
    const data = await dataBinds(userHelper, app, adopted);
    const withDataMounts = withData(adopted, app, data);
    const document = withHostPorts(withDataMounts, app, this.#options);
    const { document: placed, files } = withInlineFiles(document, { directory: app.directory, isRoots });
    const claims = [
      ...withoutAdopted(projectClaims(placed, this.#options.ownership.projectOf(app.id)), app),
      ...project.builds.map(buildClaims),
    ];
    requireWithinLimits(app, claims);
    const composeFiles = choice.files.map((path) => posix.normalize(path));
    return { project: { ...project, document }, composeFiles, placed, files, claims, data };
  }

  /** The values that the project's `.env` gives to variables. @throws SvcError `package_invalid` */
  async dotenv(
    app: RunnableApp,
    names: readonly string[],
    signal?: AbortSignal,
  ): Promise<ReadonlyMap<string, string>> {
    if (names.length === 0) return new Map();
    using _slot = await this.#planning.acquire(app.ownerUid, signal);
    const { choice, reads, readValues } = await this.#open(app, signal);
    const directory = join(checkoutOf(app), posix.dirname(choice.files[0]));
    if ((await entryType(reads, app.directory, join(directory, ".env"))) !== "file") return new Map();
    return await readValues(directory, names);
  }

  /** Finds the files of the project. */
  async #open(app: RunnableApp, signal: AbortSignal | undefined): Promise<OpenProject> {
    const { userHelpers, yaml } = this.#options;
    const section = composeSection(app);
    const reads = new ProjectReads(await userHelpers.as(app.uid));
    const readYaml: YamlReader = (text, bounds) => yaml.read(text, bounds, app.ownerUid, signal);
    const readValues: ValueReader = async (directory, names) => {
      await using isolated = await userHelpers.isolate(app.uid, reads.copied);
      return await this.#dotenvValues(isolated, join(app.directory, directory), names, readYaml, signal);
    };
    const place = { root: app.directory, checkout: checkoutOf(app), section };
    const choice = await chooseProject(reads, place, readValues);
    const directory = join(app.directory, checkoutOf(app), posix.dirname(choice.files[0]));
    const resolveTexts: TextResolver = async (texts) => {
      const dotenv = posix.join(relative(app.directory, directory), ".env");
      // Compose gets only what was read.
      if ((await entryType(reads, app.directory, dotenv)) === "file")
        await reads.readFile(app.directory, dotenv);
      await using isolated = await userHelpers.isolate(app.uid, reads.copied);
      const options = { command: this.#options.command, runner: isolated, readYaml, signal };
      return await resolvedTexts(
        { ...options, copies: isolated.directory },
        isolated.copyOf(directory),
        texts,
        environmentOf(app, section),
      );
    };
    return { reads, readYaml, readValues, resolveTexts, choice };
  }

  /**
   * The output of compose for the checkout, which requires no engine. It is cached, also for the next daemon, until
   * its inputs change: compose takes longer than the rest of a start, and a booting host starts all its apps.
   */
  async #config(
    app: RunnableApp,
    { section, choice, sources, reads, readYaml }: ConfigInputs,
    signal: AbortSignal,
  ): Promise<CachedConfig> {
    const { userHelpers, command } = this.#options;
    const directory = join(app.directory, checkoutOf(app));
    const below = posix.dirname(choice.files[0]);
    const argsBelow = (copies: string): string[] => [
      ...projectArgs(
        choice.files.map((file) => join(copies, directory, file)),
        join(copies, directory, below),
      ),
      ...choice.profiles.flatMap((name) => ["--profile", name]),
      "config",
    ];
    const env = {
      ...environmentOf(app, section),
      ...nameVariable(this.#options.ownership.projectOf(app.id)),
    };
    const userHelper = await userHelpers.as(app.uid);
    // "copies, own variables": earlier versions cached what compose had read in place, or with variables of the daemon.
    const key = createHash("sha256")
      .update(
        JSON.stringify([
          "copies, own variables",
          sources.digest,
          await command.fingerprint(),
          userHelper.user,
          argsBelow("/"),
          env,
        ]),
      )
      .digest("hex");
    const known = await this.#configs.find(app.id, key);
    if (known !== undefined) return known;
    await using isolated = await userHelpers.isolate(app.uid, reads.copied);
    const { directory: copies } = isolated;
    const { exitCode, stdout, stderr } = await command.run(isolated, argsBelow(copies), {
      ...{ cwd: isolated.copyOf(directory), env },
      ...{ timeoutMs: configTimeoutMs, maxOutputBytes: maxConfigBytes, signal },
    });
    if (exitCode !== 0) throw invalid(section.file, configFailure(withoutCopies(stderr, copies)));
    const content = sources.documents.flatMap((document) => [...contentVariablesOf(document)]);
    const missing = content.map(({ name }) => name).filter((name) => !Object.hasOwn(env, name));
    const values = await this.#dotenvValues(isolated, join(directory, below), missing, readYaml, signal);
    const config = { key, text: stdout, copies, values: Object.fromEntries(values) };
    await this.#configs.store(app.id, config);
    return config;
  }

  /** Values of the copied `.env` in a directory. */
  #dotenvValues(
    isolated: IsolatedRun,
    directory: string,
    names: Iterable<string>,
    readYaml: YamlReader,
    signal: AbortSignal | undefined,
  ): Promise<ReadonlyMap<string, string>> {
    const options = { command: this.#options.command, runner: isolated, readYaml, signal };
    return dotenvValues({ ...options, copies: isolated.directory }, isolated.copyOf(directory), names);
  }

  /** Deletes the cached output of compose for an app. */
  forget(id: string): void {
    this.#configs.forget(id);
  }
}

export function projectArgs(files: readonly string[], directory: string): string[] {
  return [...files.flatMap((file) => ["--file", file]), "--project-directory", directory];
}

/** Passed in the environment, because every user can read arguments, and the name is secret. */
export function nameVariable(project: string): Record<string, string> {
  return { COMPOSE_PROJECT_NAME: project };
}

/** The variables for resolving the file. */
function environmentOf(app: RunnableApp, section: ComposeSection): Record<string, string> {
  return {
    ...mapValues(section.env, appExpander(app)),
    ...resolveSettings(app.manifest, app.settings).env,
    ...appEnvironment(app),
  };
}

/** @throws Error for an app that is not a compose project */
function composeSection(app: RunnableApp): ComposeSection {
  const { runtime } = app.manifest;
  if (runtime.kind !== "compose") throw new Error(`app ${app.id} runs as ${runtime.kind}`);
  return runtime;
}
