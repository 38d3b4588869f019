/** Limits of the builds of regular users: processes, memory, CPU, disk space, and a network of their own. */
import { createHash } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import type { DiskMeter } from "../../engine/disk-usage.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import { SvcError } from "../../errors.ts";
import { Limiter } from "../../lib/limiter.ts";
import type { Log } from "../../lib/log.ts";
import type { AppNetworks, NetworkOwner } from "../containers/app-networks.ts";
import { createBuildCgroup, type BuildCgroup, type BuildCgroupOptions } from "./build-cgroup.ts";

export interface BuildLimits {
  readonly maxBuildsPerUser: number;
  readonly maxBuildMemoryBytes: number;
  readonly maxBuildCpus: number;
  readonly maxBuildProcesses: number;
  readonly maxBuildBytesPerUser: number;
}

export interface UserBuildsOptions {
  engine: DockerEngine;
  disk: DiskMeter;
  networks: Pick<AppNetworks, "ensureForBuilds">;
  storeId: string;
  limits: BuildLimits;
  /** `none`: build steps have no network access. */
  network: "bridge" | "none";
  limitSlice: BuildCgroupOptions["limitSlice"];
  log: Pick<Log, "warn">;
}

/** The limits and network of one build of a regular user, until it is disposed of. */
export interface BuildBounds extends AsyncDisposable {
  /** Query parameters of the engine's build API. */
  readonly options: Readonly<Record<string, string | number>>;
  /** Marks all images and containers of the user's builds. */
  readonly label: { readonly name: string; readonly value: string };
  /** Aborted when the user's builds use too much disk space. */
  readonly signal: AbortSignal;
  /** @throws SvcError `build_failed` if the user's builds use too much disk space */
  verify(): Promise<void>;
}

/** On images and containers of builds: the user. */
const builderLabel = "svc.builder";
const cpuPeriodUs = 100_000;
const maxWaiting = 100;
/** Pause between two measurements, which may take at most a tenth of the time. */
const measureIntervalMs = 1_000;
const measureShare = 10;
/** Time for the engine to end and remove the containers of a canceled build. */
const endMs = 30_000;
const pollMs = 200;
const leftoversFailed = "failed to remove leftovers of a build";
const removalAttempts = 4;
const removalPauseMs = 500;

export class UserBuilds {
  readonly #options: UserBuildsOptions;
  /** By uid. */
  readonly #slots: Limiter<number>;
  readonly #running = new Map<number, number>();

  constructor(options: UserBuildsOptions) {
    this.#options = options;
    const { maxBuildsPerUser } = options.limits;
    this.#slots = new Limiter<number>({
      ...{ total: Number.POSITIVE_INFINITY, perKey: maxBuildsPerUser, maxWaiting },
      tooMany: ({ waiting }) =>
        new SvcError(
          "too_many",
          `${waiting} of your builds wait already (limit ${maxWaiting}), and max_builds_per_user is ${maxBuildsPerUser}; try again when one has finished`,
        ),
    });
  }

  /**
   * Waits until the user has a free build slot.
   * @throws SvcError `not_possible` if this host cannot limit builds; `build_failed` if the user's builds use too much disk space;
   *   `too_many` if the user has too many networks
   */
  async enter(app: NetworkOwner, signal: AbortSignal): Promise<BuildBounds> {
    const uid = app.ownerUid;
    await using resources = new AsyncDisposableStack();
    resources.use(await this.#slots.acquire(uid, signal));
    const { limits, network } = this.#options;
    const cgroup = await this.#cgroup(uid);
    if (!this.#running.has(uid)) await this.#removeLeftovers(uid);
    this.#running.set(uid, (this.#running.get(uid) ?? 0) + 1);
    resources.defer(() => this.#leave(uid));
    const verify = (): Promise<void> => this.#verify(uid, cgroup);
    await verify();
    const networkmode = network === "none" ? "none" : this.#networkOf(uid);
    if (network !== "none") await this.#options.networks.ensureForBuilds(app, networkmode);
    const watch = resources.use(new DiskWatch(verify));
    const owned = resources.move();
    return {
      options: {
        cgroupparent: cgroup.parent,
        networkmode,
        memory: limits.maxBuildMemoryBytes,
        // The sum of memory and swap, so no swap.
        memswap: limits.maxBuildMemoryBytes,
        cpuperiod: cpuPeriodUs,
        cpuquota: limits.maxBuildCpus * cpuPeriodUs,
      },
      label: { name: builderLabel, value: this.#labelOf(uid) },
      signal: watch.signal,
      verify,
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    };
  }

  async #cgroup(uid: number): Promise<BuildCgroup> {
    const { engine, limits, limitSlice } = this.#options;
    const info = (await engine.call("describe itself", (docker) => docker.info())) as object;
    return createBuildCgroup({ info, uid, maxProcesses: limits.maxBuildProcesses, limitSlice });
  }

  async #leave(uid: number): Promise<void> {
    const others = (this.#running.get(uid) ?? 1) - 1;
    if (others > 0) {
      this.#running.set(uid, others);
      return;
    }
    this.#running.delete(uid);
    try {
      await this.#endBuilds(uid);
    } catch (error) {
      this.#options.log.warn({ uid, err: error }, leftoversFailed);
    }
  }

  async #endBuilds(uid: number): Promise<void> {
    const deadline = performance.now() + endMs;
    // The engine removes the container of a canceled build only after it has stored the image of that step.
    while ((await this.#hasContainers(uid)) && performance.now() < deadline) await wait(pollMs);
    for (let attempt = 0; attempt < removalAttempts && !(await this.#removeLeftovers(uid)); attempt++)
      await wait(removalPauseMs);
  }

  async #hasContainers(uid: number): Promise<boolean> {
    const filters = { label: [`${builderLabel}=${this.#labelOf(uid)}`] };
    const containers = await this.#options.engine.call("list containers of builds", (docker) =>
      docker.listContainers({ all: true, filters }),
    );
    return containers.length > 0;
  }

  /**
   * Removes the network and the images of steps that no built image uses. The next build removes leftovers.
   * @returns whether nothing is left
   */
  async #removeLeftovers(uid: number): Promise<boolean> {
    const { engine, log } = this.#options;
    const filters = { dangling: ["true"], label: [`${builderLabel}=${this.#labelOf(uid)}`] };
    const images = await engine.call("list images of builds", (docker) => docker.listImages({ filters }));
    const network = this.#networkOf(uid);
    const errors = await Promise.all([
      ...images.map(({ Id: id }) =>
        failureOf(engine.call(`remove the image ${id}`, (docker) => docker.getImage(id).remove())),
      ),
      failureOf(
        engine.call(`remove the network ${network}`, (docker) => docker.getNetwork(network).remove()),
      ),
    ]);
    let isAllGone = true;
    for (const error of errors) {
      const reason: unknown = error instanceof SvcError ? error.reason : undefined;
      if (error === undefined || reason === "not_found") continue;
      isAllGone = false;
      if (reason !== "not_possible") log.warn({ uid, err: error }, leftoversFailed);
    }
    return isAllGone;
  }

  async #verify(uid: number, cgroup: BuildCgroup): Promise<void> {
    const { maxBuildBytesPerUser: maxBytes } = this.#options.limits;
    const usedBytes = await this.#used(uid, cgroup);
    if (usedBytes <= maxBytes) return;
    throw new SvcError(
      "build_failed",
      `the build was stopped: your built images and running builds use ${usedBytes} bytes of disk space, more than max_build_bytes_per_user (${maxBytes}); remove apps that are built here, or build smaller images`,
      { payload: { signal: "", lastLines: [] } },
    );
  }

  async #used(uid: number, cgroup: BuildCgroup): Promise<number> {
    const { engine, disk } = this.#options;
    const filters = { label: [`${builderLabel}=${this.#labelOf(uid)}`] };
    const images = await engine.call("list images of builds", (docker) =>
      docker.listImages({ all: true, filters }),
    );
    // The first step of each stage sets the label and adds nothing to its base image.
    const sizes = new Map(images.map(({ Id: id, Size: sizeBytes }) => [id, sizeBytes]));
    let usedBytes = 0;
    for (const { ParentId: parent, Size: sizeBytes } of images) {
      usedBytes += Math.max(0, sizeBytes - (sizes.get(parent) ?? sizeBytes));
    }
    const volumes = new Set<string>();
    for (const id of await cgroup.containerIds()) {
      const container = await this.#container(id);
      usedBytes += container?.SizeRw ?? 0;
      for (const { Type: type, Name: name } of container?.Mounts ?? [])
        if (type === "volume" && name !== undefined) volumes.add(name);
    }
    if (volumes.size === 0) return usedBytes;
    for (const { name, sizeBytes } of (await disk.measure()).volumes) {
      if (volumes.has(name)) usedBytes += sizeBytes;
    }
    return usedBytes;
  }

  /** `undefined` if it has ended. */
  async #container(id: string): Promise<MeasuredContainer | undefined> {
    try {
      const found: unknown = await this.#options.engine.call("measure a build", (docker) =>
        (docker.getContainer(id) as unknown as SizedContainer).inspect({ size: true }),
      );
      return found as MeasuredContainer;
    } catch (error) {
      if (error instanceof SvcError && error.reason === "not_found") return undefined;
      throw error;
    }
  }

  #labelOf(uid: number): string {
    return `${this.#options.storeId}-${uid}`;
  }

  /** No app's network has this name, because its digest is of another text. */
  #networkOf(uid: number): string {
    const digest = createHash("sha256")
      .update(`builds/${this.#labelOf(uid)}`)
      .digest("hex")
      .slice(0, 8);
    return `svc-builds-${uid}-${digest}`;
  }
}

function failureOf(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => undefined,
    (error: unknown) => error,
  );
}

/** The client's types lack the option. */
interface SizedContainer {
  inspect(options: { size: boolean }): Promise<unknown>;
}

interface MeasuredContainer {
  readonly SizeRw?: number;
  readonly Mounts?: readonly { readonly Type: string; readonly Name?: string }[] | null;
}

/** Measures until it is disposed of. */
class DiskWatch implements AsyncDisposable {
  readonly #exceeded = new AbortController();
  readonly #disposed = new AbortController();
  readonly #watching: Promise<void>;

  constructor(verify: () => Promise<void>) {
    this.#watching = this.#watch(verify);
  }

  get signal(): AbortSignal {
    return this.#exceeded.signal;
  }

  async #watch(verify: () => Promise<void>): Promise<void> {
    const { signal } = this.#disposed;
    while (!signal.aborted) {
      const startMs = performance.now();
      try {
        await verify();
      } catch (error) {
        // If the engine is unreachable, the build itself fails.
        if (error instanceof SvcError && error.reason === "build_failed") this.#exceeded.abort(error);
      }
      if (this.#exceeded.signal.aborted) return;
      const pauseMs = Math.max(measureIntervalMs, measureShare * (performance.now() - startMs));
      await wait(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed.abort();
    await this.#watching;
  }
}
