/** The host's container engine as DockerService shows and changes it, including objects that svc did not create. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  ListContainersResponseSchema,
  type Container,
  type ContainerDetailsSchema,
  type ContainerStatsSchema,
  type DockerDiskUsageSchema,
  type DockerEventSchema,
  type ImageSchema,
  type ListContainersResponse,
  type NetworkSchema,
  type VolumeSchema,
} from "../../gen/svc/v1/docker_pb.ts";
import { SvcError } from "../errors.ts";
import { unlessAborted } from "../lib/abort.ts";
import { newParts, readLog, type LogPart, type LogStart } from "../logs/log-chunk.ts";
import { NewLines } from "../logs/log-position.ts";
import { createAttribution, type Attribution, type EngineOwnership } from "./ownership.ts";
import {
  ContainerControl,
  type ControlAction,
  type ControlResult,
  type ControlTarget,
} from "./container-control.ts";
import { ContainerFinder } from "./container-finder.ts";
import { followContainerLog, readContainerLog } from "./container-logs.ts";
import { isUpState, namedObject, type ContainerRecord } from "./container-record.ts";
import { ContainerSampler } from "./container-sampler.ts";
import type { ContainerUse, DiskMeter } from "./disk-usage.ts";
import * as views from "./docker-views.ts";
import type { EngineState } from "./engine-state.ts";
import type { DockerEngine } from "./engine.ts";
import { followEvents } from "./followed-events.ts";
import type { EngineEvent } from "./event-stream.ts";
import type { EngineEvents } from "./events.ts";
import { Protection, type EngineNeeds } from "./protection.ts";
import type { OnProgress } from "../work/progress.ts";
import { Pruner, type PruneRequest, type PruneResult } from "./pruner.ts";

/** The host's view of the installed apps. */
export interface InstalledApps {
  /** Changes whenever an app is installed or removed. */
  readonly revision: number;
  ids(): readonly string[];
  /** Engine objects that the apps need, by app ID. */
  engineNeeds(): Promise<ReadonlyMap<string, EngineNeeds>>;
}

export interface DockerHostOptions {
  engine: DockerEngine;
  events: EngineEvents;
  state: EngineState;
  /** The only meter of this engine. */
  disk: DiskMeter;
  ownership: EngineOwnership;
  apps: InstalledApps;
}

const sizesTimeoutMs = 60_000;
/** For callers that show containers among other things: a hanging engine must not delay them. */
const runningTimeoutMs = 1_000;

/** All methods throw SvcError `unavailable` while the engine is unreachable or hangs. */
export class DockerHost {
  readonly #options: DockerHostOptions;
  readonly #finder: ContainerFinder;
  readonly #sampler: ContainerSampler;
  readonly #pruner: Pruner;
  readonly #control: ContainerControl;
  /** By whether stopped containers are included. */
  readonly #lists = new Map<boolean, { revision: string; list: ListContainersResponse }>();
  #attribution: { revision: number; of: Attribution } | undefined;

  constructor(options: DockerHostOptions) {
    const { engine, state, disk } = options;
    this.#options = options;
    this.#finder = new ContainerFinder(engine, state);
    this.#sampler = new ContainerSampler(options);
    this.#pruner = new Pruner({
      engine,
      disk,
      protect: ({ containers }) => this.#protection(containers),
      appsRevision: () => options.apps.revision,
    });
    this.#control = new ContainerControl({
      engine,
      finder: this.#finder,
      attribution: () => this.#owners(),
    });
  }

  /**
   * Sorted by name. @param all includes stopped containers @param size adds the size of the writable layers, which is
   * expensive
   */
  async containers(
    { all, size }: { all: boolean; size: boolean },
    signal: AbortSignal,
  ): Promise<ListContainersResponse> {
    const { state, apps } = this.#options;
    const { revision, containers } = await state.containers();
    const listRevision = `${revision} ${apps.revision}`;
    const cached = this.#lists.get(all);
    if (!size && cached?.revision === listRevision) return cached.list;
    const shown = all ? containers : containers.filter((container) => isUpState(container.state));
    const list = create(ListContainersResponseSchema);
    list.containers = shown.map((record) => this.#view(record));
    if (size) {
      const sizes = await this.#sizes(all, signal);
      list.containers = list.containers.map((view) => {
        const sizeBytes = sizes.get(view.id);
        return sizeBytes === undefined ? view : { ...view, sizeBytes: BigInt(sizeBytes) };
      });
      return list;
    }
    this.#lists.set(all, { revision: listRevision, list });
    return list;
  }

  /** Running containers, each with the installed app that owns it; empty while the engine is unreachable or slow. */
  async running(signal: AbortSignal): Promise<{ container: ContainerRecord; appId?: string }[]> {
    try {
      const { containers } = await unlessAborted(
        this.#options.state.containers(),
        AbortSignal.any([signal, AbortSignal.timeout(runningTimeoutMs)]),
      );
      const appIdOf = this.#owners();
      return containers
        .filter((container) => isUpState(container.state))
        .map((container) => {
          const appId = appIdOf("container", namedObject(container));
          return { container, ...(appId !== undefined && { appId }) };
        });
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof SvcError || (error as Error).name === "TimeoutError") return [];
      throw error;
    }
  }

  /**
   * Sorted by name. @param idsOrNames IDs, names or ID prefixes; empty for every running container. Unknown ones are
   * skipped.
   */
  async stats(
    idsOrNames: readonly string[],
    signal: AbortSignal,
  ): Promise<MessageInitShape<typeof ContainerStatsSchema>[]> {
    const { containers } = await this.#options.state.containers();
    const chosen =
      idsOrNames.length === 0
        ? containers
        : containers.filter((each) => idsOrNames.some((name) => isNamed(each, name)));
    const running = chosen.filter(({ state: word }) => word === "running" || word === "paused");
    const ids = running.map(({ id }) => id);
    const usages = await this.#sampler.sample(ids, signal);
    return running.flatMap((record) => {
      const usage = usages.get(record.id);
      return usage === undefined ? [] : [views.statsView(record, usage)];
    });
  }

  /** Sorted by first tag; images without a tag come last. */
  async images(): Promise<MessageInitShape<typeof ImageSchema>[]> {
    const [{ items }, uses] = await Promise.all([this.#options.state.images(), this.#uses()]);
    const protection = await this.#protection(uses);
    const counts = countBy(uses.map(({ imageId }) => imageId));
    return items
      .toSorted((a, b) => compare(a.tags[0] ?? "\u{10ffff}", b.tags[0] ?? "\u{10ffff}"))
      .map((image) => views.imageView(image, counts.get(image.id) ?? 0, protection.ofImage(image)));
  }

  /** Sorted by name. */
  async volumes(): Promise<MessageInitShape<typeof VolumeSchema>[]> {
    const [{ items }, uses] = await Promise.all([this.#options.state.volumes(), this.#uses()]);
    const protection = await this.#protection(uses);
    const counts = countBy(uses.flatMap(({ volumes }) => [...new Set(volumes)]));
    return items.map((volume) =>
      views.volumeView(volume, counts.get(volume.name) ?? 0, protection.ofVolume(volume)),
    );
  }

  /** Sorted by name. */
  async networks(): Promise<MessageInitShape<typeof NetworkSchema>[]> {
    return (await this.#options.state.networks()).items.map(views.networkView);
  }

  async diskUsage(signal: AbortSignal): Promise<MessageInitShape<typeof DockerDiskUsageSchema>> {
    const disk = await this.#options.disk.measure(signal);
    const category = (count: number, sizeBytes: number) => ({ count, sizeBytes: BigInt(sizeBytes) });
    return {
      images: category(disk.images.length, disk.layersBytes),
      containers: category(disk.containers.length, disk.containersBytes),
      volumes: category(disk.volumes.length, sum(disk.volumes.map(({ sizeBytes }) => sizeBytes))),
      buildCache: category(disk.buildCache.length, sum(disk.buildCache.map(({ Size }) => Size))),
    };
  }

  /** See {@link Pruner.prune}. */
  prune(request: PruneRequest, signal: AbortSignal, onProgress?: OnProgress): Promise<PruneResult> {
    return this.#pruner.prune(request, signal, onProgress);
  }

  /** See {@link ContainerControl.control}. */
  control(target: ControlTarget, action: ControlAction): Promise<ControlResult> {
    return this.#control.control(target, action);
  }

  /** @param idOrName ID, ID prefix or name @throws SvcError `not_found` */
  async inspect(
    idOrName: string,
    signal: AbortSignal,
  ): Promise<MessageInitShape<typeof ContainerDetailsSchema>> {
    const record = await this.#finder.find(idOrName);
    const info = await this.#options.engine.call(
      "inspect a container",
      (docker) => docker.getContainer(record.id).inspect(),
      { signal },
    );
    return views.detailsView(this.#view(record), record, info);
  }

  async logs(idOrName: string, from: LogStart, signal: AbortSignal): Promise<LogPart> {
    const container = await this.#finder.find(idOrName);
    const { engine } = this.#options;
    const sinceMs = from.after?.timeMs;
    return readLog(from, (tail) => readContainerLog(engine, container, { tail, sinceMs, signal }));
  }

  /**
   * Yields the last lines, or those after a position, and then each new one, until the container ends or `signal`
   * aborts.
   */
  async *followLogs(
    idOrName: string,
    { tail, after }: LogStart,
    signal: AbortSignal,
  ): AsyncGenerator<LogPart, void> {
    const container = await this.#finder.find(idOrName);
    const start = { tail: after === undefined ? tail : Infinity, sinceMs: after?.timeMs, signal };
    yield* newParts(followContainerLog(this.#options.engine, container, start), new NewLines(after));
  }

  /** Yields events from now on, until `signal` aborts. @param types of objects; empty for all */
  async *events(
    types: readonly string[],
    signal: AbortSignal,
  ): AsyncGenerator<MessageInitShape<typeof DockerEventSchema>, void> {
    for await (const event of followEvents(this.#options.events, signal)) {
      if (types.length > 0 && !types.includes(event.type)) continue;
      yield views.eventView(event, this.#ownerOfEvent(event));
    }
  }

  /** Only events of containers and images include the object's labels. */
  #ownerOfEvent({ type, attributes }: EngineEvent): string | undefined {
    if (type !== "container" && type !== "image") return undefined;
    return this.#owners()(type, { labels: attributes, names: [attributes["name"] ?? ""] });
  }

  #view(record: ContainerRecord): Container {
    const appId = this.#owners()("container", namedObject(record));
    return views.containerView(record, appId);
  }

  #owners(): Attribution {
    const { apps, ownership } = this.#options;
    const { revision } = apps;
    if (this.#attribution?.revision !== revision) {
      this.#attribution = { revision, of: createAttribution({ ownership, appIds: apps.ids() }) };
    }
    return this.#attribution.of;
  }

  async #protection(containers: readonly ContainerUse[]): Promise<Protection> {
    const needs = await this.#options.apps.engineNeeds();
    return new Protection({ needs, containers, attribution: this.#owners() });
  }

  /** Images and volumes that containers use, from the events so far. */
  async #uses(): Promise<ContainerUse[]> {
    const { containers } = await this.#options.state.containers();
    return containers.map(({ imageId, name, labels, mounts }) => ({
      imageId,
      names: [name],
      labels,
      volumes: mounts.flatMap(({ name }) => name ?? []),
    }));
  }

  async #sizes(all: boolean, signal: AbortSignal): Promise<Map<string, number>> {
    const list = await this.#options.engine.operate(
      "measure its containers",
      (docker) => docker.listContainers({ all, size: true } as object),
      { timeoutMs: sizesTimeoutMs, signal },
    );
    return new Map((list as { Id: string; SizeRw?: number }[]).map(({ Id, SizeRw = 0 }) => [Id, SizeRw]));
  }
}

/** The shortest ID that the engine shows. */
const shortIdLength = 12;

function isNamed({ id, name }: ContainerRecord, idOrName: string): boolean {
  return name === idOrName || (idOrName.length >= shortIdLength && id.startsWith(idOrName));
}

function countBy<T>(values: readonly T[]): Map<T, number> {
  const counts = new Map<T, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
