/** Compose projects and single containers that svc does not manage: found, stopped, started and removed. */
import type { ContainerInspectInfo, VolumeInspectInfo } from "dockerode";
import { notFound, SvcError } from "../errors.ts";
import { mapBounded } from "../lib/map-bounded.ts";
import { storeLabel, type Labels } from "./attribution.ts";
import { ContainerFinder } from "./container-finder.ts";
import { isUpState, namedObject, type ContainerRecord } from "./container-record.ts";
import { unlessGone } from "./engine-errors.ts";
import type { EngineState } from "./engine-state.ts";
import type { DockerEngine } from "./engine.ts";
import { createAttribution, type EngineOwnership } from "./ownership.ts";

/** A compose project, or a single container. */
export interface UnmanagedStack {
  /** Name of the project, or of the container. */
  readonly name: string;
  readonly kind: "project" | "container";
  /** The project's directory, as its labels name it; empty for a container. */
  readonly directory: string;
  /** The project's compose files, as its labels name them. */
  readonly files: readonly string[];
  /** Sorted by name. */
  readonly containers: readonly ContainerRecord[];
}

export interface UnmanagedStacksOptions {
  engine: DockerEngine;
  state: EngineState;
  ownership: EngineOwnership;
  /** IDs of the installed apps. */
  appIds: () => Iterable<string>;
}

/** Labels of compose that describe a project. */
const directoryLabel = "com.docker.compose.project.working_dir";
const filesLabel = "com.docker.compose.project.config_files";
/** On a container of `docker compose run`. */
const oneOffLabel = "com.docker.compose.oneoff";
const composePrefix = "com.docker.compose.";
/** Compose sets at least one of these on each container, and on no image. */
const ownLabels = [directoryLabel, `${composePrefix}container-number`, `${composePrefix}config-hash`];
const swarmLabel = "com.docker.swarm.task.id";

/** Longer than the grace period of containers, after which the engine kills them. */
const stopTimeoutMs = 330_000;
const callsAtOnce = 8;

export class UnmanagedStacks {
  readonly #options: UnmanagedStacksOptions;
  readonly #finder: ContainerFinder;

  constructor(options: UnmanagedStacksOptions) {
    this.#options = options;
    this.#finder = new ContainerFinder(options.engine, options.state);
  }

  /** Sorted by name. */
  async list(): Promise<UnmanagedStack[]> {
    const { containers } = await this.#options.state.containers();
    const ownerOf = this.#ownerOf();
    const found = containers.filter((container) => ownerOf(container) === undefined);
    return stacksOf((await this.#withoutInherited(found)).filter(isUnmanaged));
  }

  /**
   * The project with this name, else the container.
   * @throws SvcError `not_found`, `owned_by_app`
   */
  async find(name: string): Promise<UnmanagedStack> {
    const labelled = await this.#withoutInherited(await this.#finder.members(name));
    const members = labelled.filter(({ composeProject }) => composeProject === name);
    const found =
      members.length > 0 ? members : await this.#withoutInherited([await this.#finder.find(name)]);
    const ownerOf = this.#ownerOf();
    for (const container of found) {
      const appId = ownerOf(container);
      if (appId === undefined) continue;
      const message = `container "${container.name}" belongs to the app "${appId}" already`;
      throw new SvcError("owned_by_app", message, { payload: { appId } });
    }
    const [stack] = stacksOf(found.filter(isUnmanaged));
    if (stack === undefined) throw notFound("compose project or container", name);
    // The name of a container may name its project.
    return members.length > 0 || stack.kind === "container" ? stack : this.find(stack.name);
  }

  inspect(containers: readonly ContainerRecord[]): Promise<ContainerInspectInfo[]> {
    return mapBounded(containers, callsAtOnce, ({ id, name }) =>
      this.#options.engine.call(`inspect the container ${name}`, (docker) =>
        docker.getContainer(id).inspect(),
      ),
    );
  }

  /** The settings that containers inherit from an image; undefined if the image was removed. */
  async imageConfig(id: string): Promise<ContainerInspectInfo["Config"] | undefined> {
    const image = await unlessGone(
      this.#options.engine.call("inspect an image", (docker) => docker.getImage(id).inspect()),
    );
    return image?.Config;
  }

  volume(name: string): Promise<VolumeInspectInfo | undefined> {
    return unlessGone(
      this.#options.engine.call(`inspect the volume ${name}`, (docker) => docker.getVolume(name).inspect()),
    );
  }

  async network(name: string): Promise<{ readonly Labels?: Labels | null } | undefined> {
    const network: unknown = await unlessGone(
      this.#options.engine.call(`inspect the network ${name}`, (docker) => docker.getNetwork(name).inspect()),
    );
    return network as { readonly Labels?: Labels | null } | undefined;
  }

  /** The names of containers that do not run. */
  async stoppedNames(ids: readonly string[]): Promise<string[]> {
    const down = (await this.#present(ids)).filter(({ state }) => !isUpState(state));
    return down.map(({ name }) => name);
  }

  /** Stops running containers, the newest first. */
  async stop(ids: readonly string[]): Promise<void> {
    const { engine } = this.#options;
    for (const container of (await this.#present(ids)).toReversed()) {
      if (!isUpState(container.state)) continue;
      await engine.operate(
        `stop the container ${container.name}`,
        async (docker) => {
          if (container.state === "paused") await docker.getContainer(container.id).unpause();
          await docker.getContainer(container.id).stop();
        },
        { timeoutMs: stopTimeoutMs, waitsFor: "stop" },
      );
      await this.#finder.refresh(container.id);
    }
  }

  /** Starts stopped containers, the oldest first. */
  async start(ids: readonly string[]): Promise<void> {
    const { engine } = this.#options;
    for (const { id, name, state } of await this.#present(ids)) {
      if (isUpState(state)) continue;
      await engine.operate(`start the container ${name}`, (docker) => docker.getContainer(id).start(), {
        timeoutMs: stopTimeoutMs,
        waitsFor: "start",
      });
      await this.#finder.refresh(id);
    }
  }

  /** Keeps the engine from starting stopped containers when it starts itself. */
  async retire(ids: readonly string[]): Promise<void> {
    for (const { id, name } of await this.#present(ids)) {
      await this.#options.engine.call(`change the restart policy of the container ${name}`, (docker) =>
        docker.getContainer(id).update({ RestartPolicy: { Name: "no" } }),
      );
    }
  }

  /** Removes stopped containers; their volumes stay. */
  async remove(ids: readonly string[]): Promise<void> {
    for (const { id, name } of await this.#present(ids)) {
      await unlessGone(
        this.#options.engine.call(`remove the container ${name}`, (docker) =>
          docker.getContainer(id).remove(),
        ),
      );
    }
  }

  /** In the order of their creation. */
  async #present(ids: readonly string[]): Promise<ContainerRecord[]> {
    const found = await mapBounded(ids, callsAtOnce, (id) => this.#finder.refresh(id));
    return found
      .filter((container) => container !== undefined)
      .toSorted((a, b) => a.createdAtMs - b.createdAtMs);
  }

  /** Labels that an image sets do not count: its author could name any project and directory. */
  #withoutInherited(containers: readonly ContainerRecord[]): Promise<ContainerRecord[]> {
    const images = new Map<string, Promise<Labels | undefined>>();
    return mapBounded(containers, callsAtOnce, async (container) => {
      const { composeProject, imageId } = container;
      if (composeProject === undefined) return container;
      const inherited =
        images.get(imageId) ??
        // Engines return null where their client's types have labels.
        this.imageConfig(imageId).then((image) => image && ((image.Labels as Labels | null) ?? {}));
      images.set(imageId, inherited);
      return withoutInherited(container, await inherited);
    });
  }

  #ownerOf(): (container: ContainerRecord) => string | undefined {
    const { ownership, appIds } = this.#options;
    const attribution = createAttribution({ ownership, appIds: appIds() });
    return (container) => attribution("container", namedObject(container));
  }
}

/**
 * Compose labels the images that it builds with the project and service, so these may be inherited.
 * @param inherited undefined if the image was removed: then no label counts
 */
function withoutInherited(container: ContainerRecord, inherited: Labels | undefined): ContainerRecord {
  const own = Object.entries(container.labels).filter(
    ([name, value]) =>
      !name.startsWith(composePrefix) || (inherited !== undefined && inherited[name] !== value),
  );
  const labels = Object.fromEntries(own);
  if (ownLabels.some((name) => (labels[name] ?? "") !== "")) return { ...container, labels };
  const { composeProject: _project, composeService: _service, ...single } = container;
  return { ...single, labels };
}

/** Whether a container belongs to no svc and no swarm, and is not of `docker compose run`. */
function isUnmanaged({ labels }: ContainerRecord): boolean {
  const has = (label: string): boolean => (labels[label] ?? "") !== "";
  return !has(storeLabel) && !has(swarmLabel) && labels[oneOffLabel]?.toLowerCase() !== "true";
}

function stacksOf(containers: readonly ContainerRecord[]): UnmanagedStack[] {
  const groups = Map.groupBy(containers, ({ id, composeProject }) => composeProject ?? `\0${id}`);
  return [...groups.values()]
    .flatMap((members) => {
      const sorted = members.toSorted((a, b) => compare(a.name, b.name));
      const [first] = sorted;
      return first === undefined ? [] : [stackOf(first, sorted)];
    })
    .toSorted((a, b) => compare(a.name, b.name));
}

function stackOf(first: ContainerRecord, containers: readonly ContainerRecord[]): UnmanagedStack {
  const { composeProject: project, labels } = first;
  if (project === undefined)
    return { name: first.name, kind: "container", directory: "", files: [], containers };
  const files = (labels[filesLabel] ?? "").split(",").filter((file) => file !== "");
  return { name: project, kind: "project", directory: labels[directoryLabel] ?? "", files, containers };
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
