/** An app's compose file, from the checkout to what is run. */
import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join, posix, relative } from "node:path";
import { appLabels, composeProjectOf } from "../../docker/attribution.ts";
import type { DockerEngine } from "../../docker/engine.ts";
import type { EngineEvents } from "../../docker/events.ts";
import type { EntryType } from "../../identity/identity-work.ts";
import type { Identities } from "../../identity/identities.ts";
import { isInside } from "../../lib/is-inside.ts";
import type { JsonObject } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import type { ComposeRuntime as ComposeSection } from "../../packages/manifest.ts";
import { resolveSettings } from "../../packages/settings.ts";
import type { YamlThread } from "../../packages/yaml-thread.ts";
import { appEnvironment, appExpander } from "../app-environment.ts";
import { checkoutOf } from "../app-tree.ts";
import { releaseLabel } from "../stuck-containers.ts";
import { ownerSpec, requireAllowed, type Bind, type ContainerClaims } from "../container-policy.ts";
import { entryType } from "../entry-type.ts";
import { missingClock } from "../host-clock.ts";
import { holdMounts } from "../mount-points.ts";
import { type AppImages, withTag } from "../docker/app-images.ts";
import { requireForeign } from "../docker/foreign-images.ts";
import type { PublishOptions } from "../published-ports.ts";
import type { RunnableApp, ToldProject } from "../runtime.ts";
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
  type RunnableProject,
} from "./compose-document.ts";
import { checkComposeSources, invalid, type YamlReader } from "./compose-sources.ts";
import { listOf, namedParts, recordOf, textOf } from "./compose-values.ts";
import { projectClaims } from "./project-claims.ts";
import { withoutSubnets } from "./project-networks.ts";
import { readServiceMount } from "./service-mounts.ts";
import { withAddresses } from "./service-ports.ts";

export interface ComposeProjectsOptions extends PublishOptions {
  identities: Identities;
  command: ComposeCommand;
  images: AppImages;
  storeId: string;
  /** The daemon's own directory for what it has compose run; one directory per app. */
  composeDir: string;
  engine: DockerEngine;
  events: Pick<EngineEvents, "verify" | "isHung">;
  yaml: YamlThread;
  /** Ports below it are root's. */
  unprivilegedPortStart: number;
  /** Processes that a service of a regular user has at most, unless the file says otherwise. */
  usersPidsLimit: number;
}

/** Every container of an app is of the same release: compose itself makes anew what has changed. */
export const composeRelease = "compose";

/** A project, what it asks of the host, and which of its mounts are data ({@link dataBinds}). */
interface Plan {
  readonly project: RunnableProject;
  readonly claims: readonly ContainerClaims[];
  readonly data: readonly string[];
}

/** What compose made of an app's checkout last, and of what. */
interface KeptConfig {
  /** Digest of all that it depends on. */
  readonly key: string;
  readonly text: string;
}

const configTimeoutMs = 60_000;
const upTimeoutMs = 300_000;
const maxConfigBytes = 4 * 1024 * 1024;
/** Most projects are far smaller: characters. */
const maxKeptConfig = 64 * 1024;
const keptLines = 20;
/** More no engine keeps as one. */
const maxToldBytes = 1_000 * 1_024;

export class ComposeProjects {
  readonly #options: ComposeProjectsOptions;
  /** By app. */
  readonly #configs = new Map<string, KeptConfig>();

  constructor(options: ComposeProjectsOptions) {
    this.#options = options;
  }

  /**
   * The project as it is to be run now. Compose reads the checkout with the owner's identity, and what it makes of it is
   * checked; nobody looks at the checkout again after that.
   * @throws SvcError `package_invalid`, `denied`
   */
  async resolve(app: RunnableApp, signal?: AbortSignal): Promise<RunnableProject> {
    const { project, claims } = await this.#plan(app, signal);
    // What is not there yet is made for the start.
    await this.#requireAllowed(app, await this.#withoutMissing(app, claims));
    return project;
  }

  /**
   * The project, with those files of its package that services see one by one, as far as an engine would keep them.
   * @throws SvcError as {@link resolve}
   */
  async told(app: RunnableApp): Promise<ToldProject> {
    const { document, builds } = await this.resolve(app);
    const identity = await this.#options.identities.as(app.uid);
    const checkout = join(app.directory, checkoutOf(app));
    const paths = filesOf(document).filter((path) => isInside(checkout, path) && path !== checkout);
    const files = new Map<string, string>();
    let left = maxToldBytes;
    for (const path of paths) {
      const below = relative(app.directory, path);
      if ((await entryType(identity, app.directory, below)) !== "file") continue;
      const { sizeBytes = 0 } = (await identity.stat(app.directory, below)) ?? {};
      if (sizeBytes > left) continue;
      const bytes = await identity.readFile(app.directory, below, { maxBytes: maxToldBytes });
      left -= bytes.length;
      // What is no text goes along in no manifest.
      if (isUtf8(bytes)) files.set(path, bytes.toString());
    }
    return { document, built: new Set(builds.map(({ service }) => service)), files };
  }

  /** {@link resolve} for a start: what is to be mounted is there, and stays there. No container of the app runs. */
  async layOut(app: RunnableApp): Promise<RunnableProject> {
    const { identities } = this.#options;
    await this.keepData(app, ["directory"]);
    const { project, claims, data } = await this.#plan(app);
    const binds = claims.flatMap((claim) => claim.binds);
    await holdMounts(identities, app, binds);
    const tree = await identities.tree(app.directory, app.uid);
    await seedData(tree, data);
    // The engine would make them as root.
    for (const { source } of binds) {
      if (source === app.directory || !isInside(app.directory, source)) continue;
      const path = relative(app.directory, source);
      if ((await entryType(await identities.as(app.uid), app.directory, path)) === undefined) {
        await tree.makeDirs([path]);
      }
    }
    await this.#requireAllowed(app, claims);
    return project;
  }

  /**
   * Moves what its containers have written into the checkout, as it was last run, to where it stays. None of them runs.
   * @param types what is moved
   */
  async keepData(app: RunnableApp, types: readonly EntryType[]): Promise<void> {
    const { identities } = this.#options;
    const document = await this.kept(app.id);
    if (document === undefined) return;
    const tree = await identities.tree(app.directory, app.uid);
    await moveData(await identities.as(app.uid), tree, document, types);
  }

  async #plan(app: RunnableApp, signal?: AbortSignal): Promise<Plan> {
    const { identities, images, events } = this.#options;
    const section = composeSection(app);
    const { file } = section;
    // Compose takes its time: an engine that hangs is found out meanwhile, and then nobody waits for compose either.
    const hung = new AbortController();
    events.verify().catch((error: unknown) => {
      if (events.isHung) hung.abort(error);
    });
    const ended = signal === undefined ? hung.signal : AbortSignal.any([signal, hung.signal]);
    if (app.manifest.health?.probe.kind === "exec") {
      throw invalid(
        "svc.yaml",
        "health.exec has no container to run in: use a healthcheck of the compose file",
      );
    }
    const identity = await identities.as(app.uid);
    const readYaml: YamlReader = (text, bounds) => this.#options.yaml.read(text, bounds, app.ownerUid);
    const sources = await checkComposeSources(identity, app.directory, checkoutOf(app), file, readYaml);
    const resolved = await readResolved(await this.#config(app, section, sources, ended), file, readYaml);
    const project = runnableProject(resolved, {
      file,
      isClassic: await this.#options.command.isClassic(),
      profiles: section.profiles,
      restart: app.manifest.restart,
      stopGraceMs: app.manifest.stop.graceMs,
      owner: app.ownerUid === 0 ? undefined : ownerSpec(identity.user),
      pidsLimit: app.ownerUid === 0 ? undefined : this.#options.usersPidsLimit,
      absent: await missingClock(),
      builtTag: (service) => images.builtTag(app, service),
      withTag,
    });
    for (const { context, service } of project.builds) {
      if (!isInside(join(app.directory, checkoutOf(app)), context)) {
        throw invalid(
          file,
          `service "${service}": the build context is outside of the package: move it there`,
        );
      }
    }
    for (const image of project.pulls) requireForeign(image);
    const data = await dataBinds(identity, app, project.document);
    const withPlaces = withData(project.document, app, data);
    const document = withAddresses(withPlaces, app, this.#options);
    const claims = projectClaims(document, composeProjectOf(app.id));
    return { project: { ...project, document }, claims, data };
  }

  async #withoutMissing(app: RunnableApp, claims: readonly ContainerClaims[]): Promise<ContainerClaims[]> {
    const identity = await this.#options.identities.as(app.uid);
    const isThere = async ({ source }: Bind): Promise<boolean> =>
      !isInside(app.directory, source) ||
      (await entryType(identity, app.directory, relative(app.directory, source) || ".")) !== undefined;
    return Promise.all(
      claims.map(async (claim) => {
        const binds: Bind[] = [];
        for (const bind of claim.binds) if (await isThere(bind)) binds.push(bind);
        return { ...claim, binds };
      }),
    );
  }

  /** Whether what was kept last may still run. @throws SvcError `denied` */
  async checkKept(app: RunnableApp): Promise<void> {
    const kept = await this.kept(app.id);
    if (kept === undefined) return;
    const document = withoutSubnets(kept);
    // Labels cannot have changed, and some of them are svc's own.
    const services = mapValues(recordOf(document["services"]), (service) => ({
      ...recordOf(service),
      labels: null,
    }));
    const claims = projectClaims({ ...document, services }, composeProjectOf(app.id));
    await holdMounts(
      this.#options.identities,
      app,
      claims.flatMap(({ binds }) => binds),
    );
    await this.#requireAllowed(app, claims);
  }

  async #requireAllowed(app: RunnableApp, claims: readonly ContainerClaims[]): Promise<void> {
    const { identities, engine, unprivilegedPortStart } = this.#options;
    const identity = await identities.as(app.uid);
    await requireAllowed(app, claims, { identity, engineSockets: [engine.socket], unprivilegedPortStart });
  }

  /**
   * What compose makes of the checkout; it needs no engine for that. Asked again only when something of it is another, by the next
   * daemon, too: it takes longer than all the rest of a start, and a host that boots starts all of its apps.
   * @param sources digest of the checkout's part
   */
  async #config(
    app: RunnableApp,
    section: ComposeSection,
    sources: string,
    signal: AbortSignal,
  ): Promise<string> {
    const { identities, command } = this.#options;
    const directory = join(app.directory, checkoutOf(app));
    const path = join(directory, section.file);
    const args = [
      ...this.#projectArgs(app, path),
      ...section.profiles.flatMap((name) => ["--profile", name]),
      "config",
    ];
    const env = {
      ...mapValues(section.env, appExpander(app)),
      ...resolveSettings(app.manifest, app.settings).env,
      ...appEnvironment(app),
    };
    const identity = await identities.as(app.uid);
    const key = createHash("sha256")
      .update(JSON.stringify([sources, await command.fingerprint(), identity.user, args, env]))
      .digest("hex");
    const known = this.#configs.get(app.id) ?? (await this.#keptConfig(app.id));
    if (known?.key === key) {
      this.#configs.set(app.id, known);
      return known.text;
    }
    const { exitCode, stdout, stderr } = await command.run(identity, args, {
      ...{ cwd: directory, env },
      ...{ timeoutMs: configTimeoutMs, maxOutputBytes: maxConfigBytes, signal },
    });
    if (exitCode !== 0) throw invalid(section.file, refusalOf(lastLines(stderr).join(" ")));
    if (stdout.length <= maxKeptConfig) await this.#keepConfig(app.id, { key, text: stdout });
    return stdout;
  }

  async #keepConfig(id: string, config: KeptConfig): Promise<void> {
    this.#configs.set(id, config);
    const path = this.#configPath(id);
    try {
      await mkdir(posix.dirname(path), { recursive: true, mode: 0o700 });
      await writeFile(path, JSON.stringify(config), { mode: 0o600 });
    } catch {
      // The next daemon asks compose again.
    }
  }

  /** What an earlier daemon kept; one that ended while it wrote has left no JSON. */
  async #keptConfig(id: string): Promise<KeptConfig | undefined> {
    try {
      return JSON.parse(await readFile(this.#configPath(id), "utf8")) as KeptConfig;
    } catch {
      return undefined;
    }
  }

  /**
   * Has compose make and start the project's containers.
   * @param how `--no-start` for making them alone
   * @throws SvcError `start_failed` with what compose printed last
   */
  async up(app: RunnableApp, { document }: RunnableProject, how: "--detach" | "--no-start"): Promise<void> {
    await this.write(app, document);
    await this.#up(app, [how, "--remove-orphans"]);
  }

  /** As {@link up}, of what was kept last: one service alone, with another container in the place of the one that it has. */
  async makeAnew(app: RunnableApp, service: string, how: "--detach" | "--no-start"): Promise<void> {
    await this.#up(app, [how, "--force-recreate", "--no-deps", service]);
  }

  async #up(app: RunnableApp, options: readonly string[]): Promise<void> {
    const { identities, command, engine } = this.#options;
    const file = this.#path(app.id);
    const args = ["up", "--no-build", ...options];
    const self = await identities.as(identities.selfUid);
    // Compose itself would wait for an engine that hangs.
    const { exitCode, stderr } = await engine.operate(
      `start app "${app.id}"`,
      (_docker, signal) =>
        command.run(self, [...this.#projectArgs(app, file), ...args], {
          cwd: posix.dirname(file),
          env: {
            DOCKER_HOST: `unix://${engine.socket}`,
            HOME: posix.dirname(file),
          },
          ...{ timeoutMs: upTimeoutMs, signal },
        }),
      { timeoutMs: upTimeoutMs },
    );
    if (exitCode === 0) return;
    const lines = lastLines(stderr);
    throw startFailed(app.id, reasonOf(lines), { exitCode: exitCode ?? 1, lastLines: lines });
  }

  /** Keeps what is run where nobody but the daemon can change it; resolves with its path. */
  async write(app: RunnableApp, document: JsonObject): Promise<string> {
    const labels = {
      ...appLabels(app.id, this.#options.storeId),
      [releaseLabel]: composeRelease,
      [settingsLabel]: settingsDigest(app),
    };
    const path = this.#path(app.id);
    await mkdir(posix.dirname(path), { recursive: true, mode: 0o700 });
    await writeFile(`${path}.new`, printDocument(labelled(document, labels)), { mode: 0o600 });
    await rename(`${path}.new`, path);
    return path;
  }

  /** What was kept last; `undefined` before the first time. */
  async kept(id: string): Promise<JsonObject | undefined> {
    try {
      return readPrinted(await readFile(this.#path(id), "utf8"));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
  }

  /** Whether it may have volumes of the engine, as it was kept last. */
  async hasVolumes(id: string): Promise<boolean> {
    return Object.keys(recordOf((await this.kept(id))?.["volumes"])).length > 0;
  }

  async forget(id: string): Promise<void> {
    this.#configs.delete(id);
    await rm(posix.dirname(this.#path(id)), { recursive: true, force: true });
  }

  #path(id: string): string {
    return join(this.#options.composeDir, id, "compose.json");
  }

  #configPath(id: string): string {
    return join(this.#options.composeDir, id, "config.json");
  }

  #projectArgs(app: RunnableApp, file: string): string[] {
    const directory = posix.dirname(file);
    return ["--file", file, "--project-name", composeProjectOf(app.id), "--project-directory", directory];
  }
}

/** References of the images that a kept document runs. */
export function imagesOf(document: JsonObject): string[] {
  return [...new Set(referencesOf(document).values())];
}

/** The image of each service, by name. */
export function referencesOf(document: JsonObject): ReadonlyMap<string, string> {
  const services = Object.entries(recordOf(document["services"])).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return new Map(
    services.flatMap(([service, value]): [string, string][] => {
      const image = textOf(recordOf(value)["image"]);
      return image === "" ? [] : [[service, image]];
    }),
  );
}

/** For each service how many services deep what it depends on goes; 0 for one that depends on none. */
export function dependencyDepths(document: JsonObject): ReadonlyMap<string, number> {
  const services = recordOf(document["services"]);
  const depths = new Map<string, number>();
  const measure = (name: string): number => {
    const known = depths.get(name);
    if (known !== undefined) return known;
    // Compose refuses circles; one must not keep an app from being stopped.
    depths.set(name, 0);
    const needed = namedParts(recordOf(services[name])["depends_on"]);
    const depth = Math.max(0, ...needed.map(([other]) => 1 + measure(other)));
    depths.set(name, depth);
    return depth;
  };
  for (const name of Object.keys(services)) measure(name);
  return depths;
}

/** @throws Error for an app that is no compose project */
function composeSection(app: RunnableApp): ComposeSection {
  const { runtime } = app.manifest;
  if (runtime.kind !== "compose") throw new Error(`app ${app.id} runs as ${runtime.kind}`);
  return runtime;
}

/** Why compose failed, in the engine's words where it was the engine that would not. */
export function reasonOf(lines: readonly string[]): string {
  const telling = lines.filter((line) => !/^ERROR: Encountered errors/.test(line));
  const said = telling
    .map((line) => /(?:Error response from daemon: |^ERROR: for \S+ +)(.+)$/.exec(line)?.[1])
    .findLast((words) => words !== undefined);
  const likely = telling.findLast((line) => /error|cannot|failed|denied|invalid/i.test(line));
  return said ?? likely ?? telling.at(-1) ?? "compose failed";
}

/** Docker-compose 1.29, which is Debian 12's, knows no `name`, and speaks of versions of the format then. */
function refusalOf(said: string): string {
  return said.includes("'name' does not match any of the regexes")
    ? 'this docker-compose is too old for "name" at the top: delete that line (svc names the project), or install compose 2'
    : said || "compose refuses it";
}

function lastLines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .slice(-keptLines);
}

/** What may be a file that a service sees. */
function filesOf(document: JsonObject): string[] {
  const services = Object.values(recordOf(document["services"]));
  const mounts = services.flatMap((service) => listOf(recordOf(service)["volumes"]).map(readServiceMount));
  const configs = Object.values(recordOf(document["configs"])).map((config) =>
    textOf(recordOf(config)["file"]),
  );
  return [...mounts.filter(({ type }) => type === "bind").map(({ source }) => source), ...configs];
}
