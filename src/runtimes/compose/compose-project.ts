/** An app's compose file, from the checkout to what is run. */
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join, posix, relative } from "node:path";
import { appLabels, composeProjectOf } from "../../docker/attribution.ts";
import type { Identities } from "../../identity/identity.ts";
import { isInside } from "../../lib/is-inside.ts";
import type { JsonObject } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import type { ComposeRuntime as ComposeSection } from "../../packages/manifest.ts";
import { resolveSettings } from "../../packages/settings.ts";
import { appEnvironment, appExpander } from "../app-environment.ts";
import { appTree } from "../app-tree.ts";
import { releaseLabel } from "../app-containers.ts";
import { ownerSpec, requireAllowed, type ContainerClaims } from "../container-policy.ts";
import type { AppImages } from "../docker/app-images.ts";
import { requireForeign, withTag } from "../docker/app-images.ts";
import type { RunnableApp } from "../runtime.ts";
import { startFailed } from "../start-failed.ts";
import type { ComposeCommand } from "./compose-command.ts";
import {
  labelled,
  printDocument,
  readResolved,
  runnableProject,
  type RunnableProject,
} from "./compose-document.ts";
import { checkComposeSources, invalid } from "./compose-sources.ts";
import { recordOf, textOf } from "./compose-values.ts";
import { projectClaims } from "./project-claims.ts";

export interface ComposeProjectsOptions {
  identities: Identities;
  command: ComposeCommand;
  images: AppImages;
  storeId: string;
  /** The daemon's own directory for what it has compose run; one directory per app. */
  composeDir: string;
  /** Path of the engine's socket. */
  engineSocket: string;
  /** Ports below it are root's. */
  unprivilegedPortStart: number;
}

/** Every container of an app is of the same release: compose itself makes anew what has changed. */
export const composeRelease = "compose";

const configTimeoutMs = 60_000;
const upTimeoutMs = 300_000;
const maxConfigBytes = 4 * 1024 * 1024;
const keptLines = 20;

export class ComposeProjects {
  readonly #options: ComposeProjectsOptions;

  constructor(options: ComposeProjectsOptions) {
    this.#options = options;
  }

  /**
   * The project as it is to be run now. Compose reads the checkout with the owner's identity, and what it makes of it is
   * checked; nobody looks at the checkout again after that.
   * @throws SvcError `package_invalid`, `denied`
   */
  async resolve(app: RunnableApp, signal?: AbortSignal): Promise<RunnableProject> {
    const { identities, images } = this.#options;
    const section = composeSection(app);
    const { file } = section;
    if (app.manifest.health?.probe.kind === "exec") {
      throw invalid(
        "svc.yaml",
        "health.exec has no container to run in: use a healthcheck of the compose file",
      );
    }
    const identity = await identities.as(app.uid);
    await checkComposeSources(identity, app.directory, appTree.repo, file);
    const resolved = await readResolved(await this.#config(app, section, signal), file);
    const project = runnableProject(resolved, {
      file,
      isClassic: await this.#options.command.isClassic(),
      profiles: section.profiles,
      restart: app.manifest.restart,
      stopGraceMs: app.manifest.stop.graceMs,
      owner: app.ownerUid === 0 ? undefined : ownerSpec(identity.user),
      builtTag: (service) => images.builtTag(app, service),
      withTag,
    });
    for (const { context, service } of project.builds) {
      if (!isInside(join(app.directory, appTree.repo), context)) {
        throw invalid(file, `service "${service}": the build context is outside`);
      }
    }
    for (const image of project.pulls) requireForeign(image);
    await this.#requireAllowed(app, projectClaims(project.document, composeProjectOf(app.id)));
    return project;
  }

  async #requireAllowed(app: RunnableApp, claims: readonly ContainerClaims[]): Promise<void> {
    const { identities, engineSocket, unprivilegedPortStart } = this.#options;
    const identity = await identities.as(app.uid);
    // Compose makes directories that are to be mounted and are missing; the engine would make them as root.
    for (const { source } of claims.flatMap(({ binds }) => binds)) {
      if (source === app.directory || !isInside(app.directory, source)) continue;
      const path = relative(app.directory, source);
      const isMissing = await identity.stat(app.directory, path).then(
        (entry) => entry === undefined,
        () => false,
      );
      if (isMissing) await identity.makeDirs(app.directory, [path]);
    }
    await requireAllowed(app, claims, { identity, engineSockets: [engineSocket], unprivilegedPortStart });
  }

  /** What compose makes of the checkout; it needs no engine for that. */
  async #config(app: RunnableApp, section: ComposeSection, signal?: AbortSignal): Promise<string> {
    const { identities, command } = this.#options;
    const path = join(app.directory, appTree.repo, section.file);
    const { exitCode, stdout, stderr } = await command.run(
      await identities.as(app.uid),
      [...this.#projectArgs(app, path), ...section.profiles.flatMap((name) => ["--profile", name]), "config"],
      {
        cwd: join(app.directory, appTree.repo),
        env: {
          ...mapValues(section.env, appExpander(app)),
          ...resolveSettings(app.manifest, app.settings).env,
          ...appEnvironment(app),
        },
        timeoutMs: configTimeoutMs,
        maxOutputBytes: maxConfigBytes,
        ...(signal && { signal }),
      },
    );
    if (exitCode !== 0) throw invalid(section.file, lastLines(stderr).join(" ") || "compose refuses it");
    return stdout;
  }

  /**
   * Has compose start the project in the background.
   * @throws SvcError `start_failed` with what compose printed last
   */
  async up(app: RunnableApp, { document }: RunnableProject): Promise<void> {
    const { identities, command, engineSocket } = this.#options;
    const file = await this.write(app, document);
    const args = ["up", "--detach", "--no-build", "--remove-orphans"];
    const { exitCode, stderr } = await command.run(
      await identities.as(identities.selfUid),
      [...this.#projectArgs(app, file), ...args],
      {
        cwd: posix.dirname(file),
        env: {
          DOCKER_HOST: `unix://${engineSocket}`,
          HOME: posix.dirname(file),
        },
        timeoutMs: upTimeoutMs,
      },
    );
    if (exitCode === 0) return;
    const lines = lastLines(stderr);
    const why =
      lines.findLast((line) => /error|cannot|failed|denied|invalid/i.test(line)) ?? lines.at(-1) ?? "";
    throw startFailed(app.id, why || "compose failed", { exitCode: exitCode ?? 1, lastLines: lines });
  }

  /** Keeps what is run where nobody but the daemon can change it; resolves with its path. */
  async write(app: RunnableApp, document: JsonObject): Promise<string> {
    const labels = { ...appLabels(app.id, this.#options.storeId), [releaseLabel]: composeRelease };
    const path = this.#path(app.id);
    await mkdir(posix.dirname(path), { recursive: true, mode: 0o700 });
    await writeFile(`${path}.new`, printDocument(labelled(document, labels)), { mode: 0o600 });
    await rename(`${path}.new`, path);
    return path;
  }

  /** What was kept last; `undefined` before the first time. */
  async kept(id: string): Promise<JsonObject | undefined> {
    try {
      return JSON.parse(await readFile(this.#path(id), "utf8")) as JsonObject;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
  }

  async forget(id: string): Promise<void> {
    await rm(posix.dirname(this.#path(id)), { recursive: true, force: true });
  }

  #path(id: string): string {
    return join(this.#options.composeDir, id, "compose.json");
  }

  #projectArgs(app: RunnableApp, file: string): string[] {
    const directory = posix.dirname(file);
    return ["--file", file, "--project-name", composeProjectOf(app.id), "--project-directory", directory];
  }
}

/** References of the images that a kept document runs. */
export function imagesOf(document: JsonObject): string[] {
  const services = Object.values(recordOf(document["services"])).map(recordOf);
  return [...new Set(services.map(({ image }) => textOf(image)).filter((image) => image !== ""))];
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
    const { depends_on: dependsOn } = recordOf(services[name]);
    const needed = Array.isArray(dependsOn) ? dependsOn.map(textOf) : Object.keys(recordOf(dependsOn));
    const depth = Math.max(0, ...needed.map((other) => 1 + measure(other)));
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

function lastLines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .slice(-keptLines);
}
