/**
 * The engine's volumes of a project, and how backups take them and bring them back. The engine knows no other name for a volume that is
 * there, so a restore does not end in a rename: what is restored is laid out in a second volume while the app's own stays as
 * it is; then the stopped app's own is copied to a third, removed, and made anew from the second. Making it anew is not
 * atomic, but from before its first step until after its last a whole copy of what was there is kept, and whoever finds a
 * restore that was interrupted makes the volume of that again, as often as it takes.
 */
import { PassThrough, type Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type Dockerode from "dockerode";
import type { VolumeInspectInfo } from "dockerode";
import { unlessGone } from "../../docker/engine-errors.ts";
import {
  appLabels,
  composeProjectLabel,
  composeProjectOf,
  composeVolumeLabel,
  isMadeFor,
  madeForFilter,
  type Labels,
} from "../../docker/attribution.ts";
import type { DiskMeter } from "../../docker/disk-usage.ts";
import type { DockerEngine } from "../../docker/engine.ts";
import { SvcError } from "../../errors.ts";
import type { EngineVolumes, RuntimeWork } from "../runtime.ts";
import { withEmptyImage } from "./empty-image.ts";
import { copyVolumes, isCopied } from "./volume-copy.ts";
import { withVolumes, type VolumeHelper } from "./volume-helper.ts";

export interface ProjectVolumesOptions {
  engine: DockerEngine;
  storeId: string;
  /** What the engine's volumes take. */
  disk: DiskMeter;
  /** Whether the app may have volumes at all; from memory and the daemon's own files. */
  mayHave: (id: string) => Promise<boolean>;
  /** Removes the stopped app's containers, which hold its volumes. @throws SvcError when somebody else's does */
  release: (id: string) => Promise<void>;
  /** There is something of the app on the engine from now on. */
  touch: (id: string) => void;
}

const timeoutMs = 6 * 3_600_000;
const volumeAs = "volume";
/** What compose allows, and is a name in a directory. */
const keyPattern = /^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,128}$/;

/** A copy of an app's volume, for the time of a restore: what it shall be, or what it was. */
type Copy = "restored" | "replaced";

export class ProjectVolumes implements EngineVolumes {
  readonly #options: ProjectVolumesOptions;

  constructor(options: ProjectVolumesOptions) {
    this.#options = options;
  }

  /** All that the engine has for the app. */
  async all(id: string): Promise<VolumeInspectInfo[]> {
    const { engine, storeId } = this.#options;
    const { Volumes } = await engine.call(`list the volumes of app "${id}"`, (docker) =>
      docker.listVolumes({ filters: madeForFilter(id, storeId) }),
    );
    // Engines answer `null` where there are none, whatever their client's types promise.
    const listed = Volumes as VolumeInspectInfo[] | null;
    return listed ?? [];
  }

  /** The names of those that a copy of the app would share with it. */
  async sharedNames(id: string): Promise<string[]> {
    const shared = (await this.all(id)).filter((volume) => !isCopied(volume, id));
    return shared.map(({ Name }) => Name);
  }

  /** Copies the app's own for a copy of it, which has none; resolves with the bytes. */
  async copy(id: string, copyId: string, work: RuntimeWork): Promise<number> {
    const volumes = (await this.all(id)).filter((volume) => isCopied(volume, id));
    if (volumes.length === 0) return 0;
    this.#options.touch(copyId);
    const { engine, storeId } = this.#options;
    return copyVolumes({ ...work, engine, storeId, volumes, appId: copyId });
  }

  /** The bytes that were freed. */
  async removeAll(volumes: readonly VolumeInspectInfo[]): Promise<number> {
    if (volumes.length === 0) return 0;
    const { engine, disk } = this.#options;
    // What it freed is worth a look, but not a removal that fails.
    const usage = await disk.measure().catch(() => undefined);
    const sizes = new Map(usage?.volumes.map(({ name, sizeBytes }) => [name, sizeBytes]));
    for (const { Name: name } of volumes) {
      await engine.call(`remove the volume ${name}`, (docker) => docker.getVolume(name).remove());
    }
    return volumes.reduce((sum, { Name }) => sum + (sizes.get(Name) ?? 0), 0);
  }

  async list(id: string): Promise<{ own: string[]; shared: string[] }> {
    if (!(await this.#options.mayHave(id))) return { own: [], shared: [] };
    const listed = (await this.all(id)).filter(({ Labels }) => Labels[composeVolumeLabel] !== undefined);
    const isOwn = (volume: VolumeInspectInfo): boolean =>
      isCopied(volume, id) && keyPattern.test(volume.Labels[composeVolumeLabel] ?? "");
    return {
      own: listed
        .filter(isOwn)
        .map(({ Labels }) => Labels[composeVolumeLabel] ?? "")
        .sort(),
      shared: listed
        .filter((volume) => !isOwn(volume))
        .map(({ Name }) => Name)
        .sort(),
    };
  }

  async *read(id: string, key: string, signal?: AbortSignal): AsyncGenerator<Buffer, void> {
    const bytes = new PassThrough({ highWaterMark: 1 << 20 });
    const work = this.#with(id, `read the volume ${key} of app "${id}"`, nameOf(id, key), signal, (helper) =>
      send(helper, bytes),
    );
    work.catch((error: unknown) => bytes.destroy(error as Error));
    try {
      yield* bytes as AsyncIterable<Buffer>;
    } finally {
      bytes.destroy();
    }
    await work;
  }

  async stage(id: string, key: string, tar: Readable, signal?: AbortSignal): Promise<void> {
    await this.#create(id, key, copyOf("restored", id, key), {});
    await this.#fill(id, key, copyOf("restored", id, key), tar, signal);
  }

  async create(id: string, key: string, tar: Readable, signal?: AbortSignal): Promise<void> {
    await this.#create(id, key, nameOf(id, key), { [composeVolumeLabel]: key });
    await this.#fill(id, key, nameOf(id, key), tar, signal);
  }

  async keep(id: string, key: string, signal?: AbortSignal): Promise<void> {
    await this.removeHelpers(id);
    await this.#options.release(id);
    await this.#remove(id, copyOf("replaced", id, key));
    const name = nameOf(id, key);
    if ((await this.#inspect(name)) === undefined) return;
    await this.#create(id, key, copyOf("replaced", id, key), {});
    await this.#copy(id, name, copyOf("replaced", id, key), signal);
  }

  async swap(id: string, key: string, signal?: AbortSignal): Promise<void> {
    await this.#make(id, key, copyOf("restored", id, key), signal);
  }

  async putBack(id: string, key: string): Promise<void> {
    await this.removeHelpers(id);
    await this.#options.release(id);
    const kept = copyOf("replaced", id, key);
    // There was none.
    if ((await this.#inspect(kept)) === undefined) await this.#remove(id, nameOf(id, key));
    else await this.#make(id, key, kept);
  }

  async settle(id: string, key: string): Promise<void> {
    await this.removeHelpers(id);
    for (const kind of ["restored", "replaced"] as const) await this.#remove(id, copyOf(kind, id, key));
  }

  /** What a daemon that was killed left of its work holds volumes, which the engine then does not remove. */
  async removeHelpers(id: string): Promise<void> {
    for (const name of Object.values(helpersOf(id))) {
      await unlessGone(
        this.#options.engine.call(`remove the container ${name}`, (docker) =>
          docker.getContainer(name).remove({ force: true, v: true }),
        ),
      );
    }
  }

  /** Makes the volume anew from another one. */
  async #make(id: string, key: string, from: string, signal?: AbortSignal): Promise<void> {
    const name = nameOf(id, key);
    await this.#remove(id, name);
    await this.#create(id, key, name, { [composeVolumeLabel]: key });
    await this.#copy(id, from, name, signal);
  }

  async #fill(id: string, key: string, name: string, tar: Readable, signal?: AbortSignal): Promise<void> {
    await this.#with(id, `fill the volume ${key} of app "${id}"`, name, signal, async (helper) => {
      await helper.container.putArchive(tar, { path: helper.directoryOf(0) });
    });
  }

  async #copy(id: string, from: string, to: string, signal?: AbortSignal): Promise<void> {
    await this.#with(id, `copy the volume ${from}`, from, signal, async (source, docker, image) => {
      // Of its own, as the engine does one thing at a time with each.
      const options = { name: helpersOf(id).copy, labels: this.#labels(id), image };
      await withVolumes(
        docker,
        { ...options, volumes: [{ volume: to, as: volumeAs }] },
        async ({ container, directoryOf }) => {
          const bytes = new PassThrough({ highWaterMark: 1 << 20 });
          await Promise.all([send(source, bytes), container.putArchive(bytes, { path: directoryOf(0) })]);
        },
      );
    });
  }

  /** @throws SvcError `not_possible` for a name that is somebody else's */
  async #create(id: string, key: string, name: string, labels: Record<string, string>): Promise<void> {
    if (!keyPattern.test(key)) throw new SvcError("not_possible", `a volume cannot be called "${key}"`);
    this.#options.touch(id);
    await this.#remove(id, name);
    const project = { [composeProjectLabel]: composeProjectOf(id) };
    await this.#options.engine.call(`make the volume ${name}`, (docker) =>
      docker.createVolume({
        Name: name,
        Driver: "local",
        Labels: { ...project, ...labels, ...this.#labels(id) },
      }),
    );
  }

  async #remove(id: string, name: string): Promise<void> {
    const found = await this.#inspect(name);
    if (found === undefined) return;
    // Engines answer `null` where there are none, whatever their client's types promise.
    const labels = found.Labels as Labels | null;
    if (!isMadeFor(id, this.#options.storeId, labels ?? {})) {
      throw new SvcError("not_possible", `the volume ${name} is there already and is not of app "${id}"`);
    }
    await unlessGone(
      this.#options.engine.call(`remove the volume ${name}`, (docker) => docker.getVolume(name).remove()),
    );
  }

  #inspect(name: string): Promise<VolumeInspectInfo | undefined> {
    return unlessGone(
      this.#options.engine.call(`inspect the volume ${name}`, (docker) => docker.getVolume(name).inspect()),
    );
  }

  #labels(id: string): Record<string, string> {
    return appLabels(id, this.#options.storeId);
  }

  #with(
    id: string,
    what: string,
    volume: string,
    signal: AbortSignal | undefined,
    work: (helper: VolumeHelper, docker: Dockerode, image: string) => Promise<void>,
  ): Promise<void> {
    const name = helpersOf(id).backup;
    return this.#options.engine.operate(
      what,
      (docker) =>
        withEmptyImage(docker, (image) =>
          withVolumes(
            docker,
            { name, labels: this.#labels(id), image, volumes: [{ volume, as: volumeAs }] },
            (helper) => work(helper, docker, image),
          ),
        ),
      { timeoutMs, signal },
    );
  }
}

/** What the containers are called that volumes are read and written through. */
const helpersOf = (id: string): { backup: string; copy: string } => ({
  backup: `${composeProjectOf(id)}-volumes-backup`,
  copy: `${composeProjectOf(id)}-volumes-copy`,
});

const nameOf = (id: string, key: string): string => `${composeProjectOf(id)}_${key}`;

/** Not what compose could call a volume of a project of svc's. */
const copyOf = (kind: Copy, id: string, key: string): string => `svc.${kind}.${nameOf(id, key)}`;

async function send({ container, directoryOf }: VolumeHelper, to: PassThrough): Promise<void> {
  await pipeline(await container.getArchive({ path: `${directoryOf(0)}/${volumeAs}` }), to);
}
