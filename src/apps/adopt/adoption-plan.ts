/** Plans the adoption of a stack: the package that its app is installed from, and the data that stays in place. */
import { createHash, randomUUID } from "node:crypto";
import { basename, dirname, isAbsolute, join, posix, relative } from "node:path";
import {
  composeNetworkLabel,
  composeProjectLabel,
  composeVolumeLabel,
  type Labels,
} from "../../engine/attribution.ts";
import { isAnonymousName } from "../../engine/engine-objects.ts";
import type { UnmanagedStack, UnmanagedStacks } from "../../engine/unmanaged-stacks.ts";
import { SvcError } from "../../errors.ts";
import { yamlText } from "../../export/yaml-text.ts";
import { isInside } from "../../lib/paths.ts";
import { manifestFileName } from "../../packages/manifest/manifest.ts";
import type { YamlThread } from "../../packages/manifest/yaml-thread.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { AdoptedData, AdoptedMount } from "../../runtimes/runnable-app.ts";
import { checkComposeSources, type YamlReader } from "../../runtimes/compose/compose-sources.ts";
import { composeFileNames, overrideFileNames } from "../../runtimes/compose/project-files.ts";
import { volumeKeyPattern } from "../../runtimes/compose/project-volumes.ts";
import type { AppPaths } from "../records/app-paths.ts";
import {
  composeOf,
  portsWithoutAddress,
  serviceOf,
  volumeKeyOf,
  type InspectedContainer,
} from "./container-compose.ts";

export interface AdoptionPlan {
  readonly stack: UnmanagedStack;
  /** The ID of the app if no name is chosen. */
  readonly baseId: string;
  /** The directory of the package. */
  readonly directory: string;
  /** Whether the compose file is written from the configuration of the containers. */
  readonly fromContainers: boolean;
  /** Files to write first. */
  readonly files: readonly { readonly path: string; readonly text: string }[];
  /** Owner of the directory, who writes them. */
  readonly uid: number;
  readonly data: AdoptedData;
  readonly notes: readonly string[];
  /** Compose files, relative to the directory. */
  readonly composeFiles: readonly [string, ...string[]];
  /** Digest of the package's files; see {@link AdoptionPlanner.sourcesOf}. */
  readonly sources: string;
  /** Digest of the containers, the package with its `sources`, and the data. */
  readonly digest: string;
}

export interface AdoptionPlannerOptions {
  stacks: UnmanagedStacks;
  userHelpers: UserHelpers;
  /** The command line of svc, which generates manifests. */
  command: readonly string[];
  paths: AppPaths;
  /** Parses compose files. */
  yaml: Pick<YamlThread, "read">;
  /** Where ports of apps are published that name no address. */
  publishAddress: string;
}

const composeFile = "compose.yaml";
const maxFileBytes = 512 * 1024;
const deriveTimeoutMs = 120_000;

/** The parts of a package. */
interface PackagePlan {
  readonly directory: string;
  readonly uid: number;
  readonly fromContainers: boolean;
  readonly files: AdoptionPlan["files"];
  /** Whether a service builds its image from the directory. */
  readonly builds: boolean;
  readonly composeFiles: AdoptionPlan["composeFiles"];
  readonly sources: string;
}

/** A directory with a package. */
interface PackageLocation {
  readonly helper: Pick<UserHelper, "readFile" | "stat">;
  readonly root: string;
  /** Relative to `root`. */
  readonly checkout: string;
  readonly composeFiles: AdoptionPlan["composeFiles"];
  /** User whose share of the parser is used. */
  readonly uid: number;
}

export class AdoptionPlanner {
  readonly #options: AdoptionPlannerOptions;

  constructor(options: AdoptionPlannerOptions) {
    this.#options = options;
  }

  /** @throws SvcError `package_invalid` if svc cannot run the compose file */
  async plan(stack: UnmanagedStack, fromContainers: boolean): Promise<AdoptionPlan> {
    const notes: string[] = [];
    const containers = await this.#inspect(stack);
    const found = fromContainers ? undefined : await this.#packageOf(stack, notes);
    const chosen = found ?? (await this.#packageFrom(stack, containers, notes));
    const data = await this.#dataOf(stack, containers, chosen);
    const stopped = stack.containers.filter(({ state }) => state !== "running");
    for (const { name, state } of stopped)
      notes.push(`container "${name}" is ${state}; the app starts its service`);
    notes.push(...portNotes(containers, this.#options.publishAddress));
    const { builds: _, ...planned } = chosen;
    const identities = stack.containers.map(({ id, name, image }) => [id, name, image]);
    const digest = digestOf([identities, planned, data]);
    return { stack, baseId: idOf(stack.name), ...planned, data, notes, digest };
  }

  /**
   * Digest of the files that decide what a package runs. Their owner can change them at any time.
   * @param manifest its text, if the file does not exist yet
   * @throws SvcError `package_invalid`
   */
  async sourcesOf(
    { helper, root, checkout, composeFiles, uid }: PackageLocation,
    manifest?: string,
  ): Promise<string> {
    const readYaml: YamlReader = (text, bounds) => this.#options.yaml.read(text, bounds, uid);
    const { digest } = await checkComposeSources(helper, root, checkout, composeFiles, readYaml);
    const path = posix.join(checkout, manifestFileName);
    const bytes =
      manifest === undefined
        ? await helper.readFile(root, path, { maxBytes: maxFileBytes })
        : Buffer.from(manifest);
    return digestOf([digest, bytes.toString("latin1")]);
  }

  async #inspect(stack: UnmanagedStack): Promise<InspectedContainer[]> {
    const { stacks } = this.#options;
    const infos = await stacks.inspect(stack.containers);
    const inspected: InspectedContainer[] = [];
    for (const [at, unordered] of infos.entries()) {
      const record = stack.containers[at];
      if (record === undefined) continue;
      // The engine returns them in any order.
      const Mounts = unordered.Mounts.toSorted((a, b) => (a.Destination < b.Destination ? -1 : 1));
      const info = { ...unordered, Mounts };
      const volumeKeys = new Map<string, string>();
      for (const { Type, Name = "" } of info.Mounts) {
        const key = Type === "volume" ? await this.#volumeKey(stack, Name) : "";
        if (volumeKeyPattern.test(key)) volumeKeys.set(Name, key);
      }
      const networkKeys = new Map<string, string>();
      for (const name of Object.keys(record.networks)) {
        const labels = (await stacks.network(name))?.Labels ?? {};
        const key = labels[composeProjectLabel] === stack.name ? labels[composeNetworkLabel] : undefined;
        if (key !== undefined) networkKeys.set(name, key);
      }
      const image = await stacks.imageConfig(info.Image);
      inspected.push({ record, info, image, volumeKeys, networkKeys });
    }
    return inspected;
  }

  /** The key of the project's own volume in its compose file; empty for others. */
  async #volumeKey({ name: project, kind }: UnmanagedStack, name: string): Promise<string> {
    const labels = ((await this.#options.stacks.volume(name))?.Labels as Labels | null | undefined) ?? {};
    const key = labels[composeProjectLabel] === project ? (labels[composeVolumeLabel] ?? "") : "";
    const prefix = `${project}_`;
    return key || (kind === "project" && name.startsWith(prefix) ? name.slice(prefix.length) : "");
  }

  /** @returns undefined if svc cannot use the project's files, with a note */
  async #packageOf(stack: UnmanagedStack, notes: string[]): Promise<PackagePlan | undefined> {
    const { userHelpers } = this.#options;
    const { directory, kind } = stack;
    if (kind === "container") return undefined;
    // Compose v1 records paths relative to the directory in which it was called.
    const paths = stack.files.map((file) => (isAbsolute(file) ? file : join(directory, basename(file))));
    const useContainers = (why: string): undefined =>
      void notes.push(`${why}; the compose file is written from the configuration of the containers`);
    const [file, ...others] = paths;
    if (!isAbsolute(directory) || file === undefined) {
      useContainers("the project does not name its files");
      return;
    }
    const self = await userHelpers.as(userHelpers.selfUid);
    const info = await self.stat(directory, ".").catch(() => undefined);
    if (info === undefined) {
      useContainers(`${directory} no longer exists`);
      return;
    }
    if (info.uid !== userHelpers.selfUid)
      notes.push(
        `${directory} belongs to another user (uid ${info.uid}), whose files decide what the app runs as root; read them first`,
      );
    const owner = await userHelpers.as(info.uid);
    for (const path of paths) {
      const entry = await owner.stat(directory, relative(directory, path) || ".").catch(() => undefined);
      if (!isInside(directory, path) || entry?.type !== "file") {
        useContainers(`${path} is not a file of ${directory}`);
        return;
      }
    }
    if (dirname(file) !== directory) {
      useContainers(`${file} is not directly in the project's ${directory}`);
      return;
    }
    const isOverride = others.every((path) => overrideFileNames.includes(basename(path)));
    const isFound = composeFileNames.includes(basename(file)) && others.length <= 1 && isOverride;
    if (others.length > 0 && !isFound && !(await mentions(owner, directory, [".env"], /COMPOSE_FILE/))) {
      useContainers(`svc does not merge ${paths.join(", ")}`);
      return;
    }
    const names = paths.map((path) => relative(directory, path));
    const builds = await mentions(owner, directory, names, /\bbuild\b/);
    const composeFiles: AdoptionPlan["composeFiles"] = [basename(file), ...names.slice(1)];
    const plan = { directory, uid: info.uid, fromContainers: false, builds, composeFiles };
    const location = { helper: owner, root: directory, checkout: ".", composeFiles, uid: info.uid };
    const known = await owner.stat(directory, manifestFileName).catch(() => undefined);
    if (known !== undefined) return { ...plan, files: [], sources: await this.sourcesOf(location) };
    const text = await this.#manifestFor(owner, file, notes);
    const sources = await this.sourcesOf(location, text);
    return { ...plan, files: [{ path: join(directory, manifestFileName), text }], sources };
  }

  async #packageFrom(
    stack: UnmanagedStack,
    containers: readonly InspectedContainer[],
    notes: string[],
  ): Promise<PackagePlan> {
    const { userHelpers, paths } = this.#options;
    const { adoptedDir } = paths;
    const uid = userHelpers.selfUid;
    const self = await userHelpers.as(uid);
    // Several names give one ID.
    const suffix = containers[0]?.record.id.slice(0, 12) ?? "";
    const directory = join(adoptedDir, `${idOf(stack.name)}-${suffix}`);
    const text = yamlText(composeOf(stack, containers, notes));
    // The manifest is generated from a file.
    const draft = join(`.${randomUUID()}`, idOf(stack.name));
    await self.makeDirs(dirname(adoptedDir), [join(basename(adoptedDir), draft)]);
    try {
      await self.writeFile(adoptedDir, join(draft, composeFile), text);
      const manifest = await this.#manifestFor(self, join(adoptedDir, draft, composeFile), notes);
      const files = [
        { path: join(directory, composeFile), text },
        { path: join(directory, manifestFileName), text: manifest },
      ];
      const composeFiles: AdoptionPlan["composeFiles"] = [composeFile];
      const location = { helper: self, root: adoptedDir, checkout: draft, composeFiles, uid };
      const sources = await this.sourcesOf(location, manifest);
      return { directory, uid, fromContainers: true, files, builds: false, composeFiles, sources };
    } finally {
      await self.removeTree(adoptedDir, dirname(draft));
    }
  }

  /** The manifest that an install of the compose file would generate. */
  async #manifestFor(owner: UserHelper, file: string, notes: string[]): Promise<string> {
    const argv = [...this.#options.command, "install", "--dry-run", "--json", file];
    const { exitCode, stdout, stderr } = await owner.runCommand(argv, {
      // Without the settings of that user, such as a default node.
      ...{ cwd: dirname(file), env: { HOME: "/nonexistent", DOCKER_HOST: "" }, timeoutMs: deriveTimeoutMs },
    });
    if (exitCode !== 0) {
      const why = messageOf(stderr) || messageOf(stdout) || `svc install --dry-run exited with ${exitCode}`;
      throw new SvcError("package_invalid", `${why}; fix the file, or adopt it with from_containers`);
    }
    const { manifest, notes: found = [] } = JSON.parse(stdout) as { manifest: string; notes?: string[] };
    notes.push(...found);
    return manifest;
  }

  async #dataOf(
    { directory }: UnmanagedStack,
    containers: readonly InspectedContainer[],
    chosen: PackagePlan,
  ): Promise<AdoptedData> {
    const volumes: Record<string, string> = {};
    const networks: Record<string, string> = {};
    const mounts: AdoptedMount[] = [];
    const binds = new Set<string>();
    const paths = new Set<string>();
    for (const { record, info, volumeKeys, networkKeys } of containers) {
      for (const [name, key] of networkKeys) networks[key] = name;
      for (const { Type, Name = "", Source, Destination: target } of info.Mounts) {
        if (Type === "bind") paths.add(Source);
        if (Type === "bind" && !chosen.fromContainers && isInside(directory, Source))
          binds.add(relative(directory, Source) || ".");
        if (Type !== "volume") continue;
        const key = volumeKeyOf({ volumeKeys }, Name);
        const isNamed = chosen.fromContainers || volumeKeys.has(Name);
        // The compose file names other volumes as external.
        if (isNamed || isAnonymousName(Name)) volumes[key] = Name;
        if (!isNamed && isAnonymousName(Name)) mounts.push({ service: serviceOf(record), target, key });
      }
    }
    const leftOut: string[] = [];
    const owner = await this.#options.userHelpers.as(chosen.uid);
    for (const path of binds) {
      // A build may need it.
      const type = chosen.builds || path === "." ? undefined : (await owner.stat(directory, path))?.type;
      if (type === "directory") leftOut.push(path);
    }
    const sorted = { binds: [...binds].sort(), paths: [...paths].sort(), leftOut: leftOut.sort() };
    return { directory, ...sorted, volumes, networks, mounts };
  }
}

function digestOf(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("hex");
}

/** An app ID for the name of a stack. */
/** Container engines publish a port that names no address at all addresses; svc has a default of its own. */
function portNotes(containers: readonly InspectedContainer[], address: string): string[] {
  if (["0.0.0.0", "::"].includes(address)) return [];
  const ports = containers.flatMap(({ info }) => portsWithoutAddress(info));
  if (ports.length === 0) return [];
  const open = ports.map((port) => `"0.0.0.0:${port}"`).join(", ");
  return [
    `the app publishes ${ports.join(", ")} at ${address}, no longer at all addresses; to keep them open, write ${open} in the compose file, or set [docker] publish_address`,
  ];
}

function idOf(name: string): string {
  const id = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-+|-+$/g, "")
    .slice(0, 60);
  return id === "" ? "stack" : id;
}

async function mentions(
  helper: UserHelper,
  directory: string,
  names: readonly string[],
  pattern: RegExp,
): Promise<boolean> {
  for (const name of names) {
    const bytes = await helper.readFile(directory, name, { maxBytes: maxFileBytes }).catch(() => undefined);
    if (bytes !== undefined && pattern.test(bytes.toString("latin1"))) return true;
  }
  return false;
}

/** The message of a failed command with `--json`. */
function messageOf(text: string): string {
  const line = text.trim();
  try {
    const { error } = JSON.parse(line) as { error?: { message?: string } };
    return error?.message ?? "";
  } catch {
    return line.replace(/^svc: /, "").slice(0, 1_000);
  }
}
