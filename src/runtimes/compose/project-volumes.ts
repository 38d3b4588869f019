/**
 * The engine volumes of a project, and how backups read and restore them. The engine cannot rename a volume, so a
 * restore cannot end with a rename: the archive is unpacked into a second volume, while the app's volume stays
 * unchanged. Then the stopped app's volume is copied to a third, removed, and recreated from the second. Recreating
 * is not atomic, but a complete copy of the old content exists from before the first step until after the last. After
 * an interruption the volume is recreated from that copy, as often as necessary.
 */
import { PassThrough, type Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type Dockerode from "dockerode";
import type { VolumeInspectInfo } from "dockerode";
import { unlessGone } from "../../engine/engine-errors.ts";
import { composeProjectLabel, composeVolumeLabel, type Labels } from "../../engine/attribution.ts";
import type { DiskMeter } from "../../engine/disk-usage.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import { SvcError } from "../../errors.ts";
import type { EngineVolumes, RuntimeWork, VolumeList } from "../capabilities.ts";
import type { UserObjects } from "../containers/user-objects.ts";
import type { AnonymousMount } from "./anonymous-volumes.ts";
import { withEmptyImage } from "./empty-image.ts";
import { copyVolumes, isPlain } from "./volume-copy.ts";
import { withVolumes, type VolumeHelper } from "./volume-helper.ts";

export interface ProjectVolumesOptions {
  engine: DockerEngine;
  ownership: EngineOwnership;
  userObjects: UserObjects;
  /** Measures the engine's volumes. */
  disk: DiskMeter;
  /** Whether the app may have volumes; from memory and the daemon's own files. */
  mayHave: (id: string) => Promise<boolean>;
  /** Names of the volumes that the compose file takes from outside the app. */
  externalNames: (id: string) => Promise<string[]>;
  /**
   * Removes the stopped app's containers, which use its volumes. @throws SvcError when another owner's container does
   */
  release: (id: string) => Promise<void>;
  /** Called when objects of the app are created on the engine. */
  touch: (id: string) => void;
  /** Anonymous volumes of the app's containers, with their places; from memory. */
  anonymousMounts: (id: string) => readonly AnonymousMount[];
  /** Names of the volumes that the app has adopted, by their key in the compose file. */
  adoptedVolumes: (id: string) => Readonly<Record<string, string>>;
}

const timeoutMs = 6 * 3_600_000;
const volumeAs = "volume";
/** Keys of volumes that backups contain: valid in a compose file, and as a file name. */
export const volumeKeyPattern = /^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,128}$/;

/** A temporary copy of an app's volume during a restore: its new or its old content. */
type Copy = "restored" | "replaced";

export class ProjectVolumes implements EngineVolumes {
  readonly #options: ProjectVolumesOptions;

  constructor(options: ProjectVolumesOptions) {
    this.#options = options;
  }

  /** All volumes of the app on the engine, with those that it has adopted. */
  async all(id: string): Promise<VolumeInspectInfo[]> {
    const adopted: VolumeInspectInfo[] = [];
    for (const name of Object.values(this.#options.adoptedVolumes(id))) {
      const volume = await this.#inspect(name);
      if (volume !== undefined) adopted.push(volume);
    }
    return [...(await this.created(id)), ...adopted];
  }

  /** The volumes that svc created for the app, and removes with it. */
  async created(id: string): Promise<VolumeInspectInfo[]> {
    const { engine, ownership } = this.#options;
    const { Volumes } = await engine.call(`list the volumes of app "${id}"`, (docker) =>
      docker.listVolumes({ filters: ownership.filter(id) }),
    );
    // Engines return `null` for an empty list, unlike the client's type.
    const listed = (Volumes as VolumeInspectInfo[] | null) ?? [];
    return listed.filter(({ Labels: labels }) => ownership.isOwn("volume", id, { labels }));
  }

  /** The volume's key in the compose file if backups and clones contain it; undefined for shared volumes. */
  #keyOf(id: string, volume: VolumeInspectInfo): string | undefined {
    const adopted = Object.entries(this.#options.adoptedVolumes(id)).find(([, name]) => name === volume.Name);
    const key = adopted?.[0] ?? volume.Labels[composeVolumeLabel] ?? "";
    const isOwn = adopted !== undefined || volume.Name === `${this.#projectOf(id)}_${key}`;
    return isOwn && isPlain(volume) ? key : undefined;
  }

  /** Names of volumes that a copy of the app would share with it. */
  async sharedNames(id: string): Promise<string[]> {
    const all = await this.all(id);
    const shared = all.filter((volume) => this.#keyOf(id, volume) === undefined);
    return [...shared.map(({ Name }) => Name), ...(await this.#externalNames(id, all))];
  }

  /** Adopted volumes are external for compose, but not for svc. */
  async #externalNames(id: string, all: readonly VolumeInspectInfo[]): Promise<string[]> {
    const known = new Set(all.map(({ Name }) => Name));
    return (await this.#options.externalNames(id)).filter((name) => !known.has(name));
  }

  /** Copies the app's own volumes for a new copy of the app; resolves to the number of bytes. */
  async copy(id: string, copyId: string, work: RuntimeWork): Promise<number> {
    const volumes = (await this.all(id)).flatMap((volume) => {
      const key = this.#keyOf(id, volume);
      return key === undefined ? [] : [{ ...volume, key }];
    });
    if (volumes.length === 0) return 0;
    const { engine, ownership, userObjects } = this.#options;
    await userObjects.requireVolumes(copyId, volumes);
    this.#options.touch(copyId);
    return copyVolumes({ ...work, engine, ownership, volumes, appId: copyId });
  }

  /** Resolves to the number of freed bytes. */
  async removeAll(volumes: readonly VolumeInspectInfo[]): Promise<number> {
    if (volumes.length === 0) return 0;
    const { engine, disk } = this.#options;
    // The freed size is useful, but must not make the removal fail.
    const usage = await disk.measure().catch(() => undefined);
    const sizes = new Map(usage?.volumes.map(({ name, sizeBytes }) => [name, sizeBytes]));
    for (const { Name: name } of volumes) {
      await engine.call(`remove the volume ${name}`, (docker) => docker.getVolume(name).remove());
    }
    return volumes.reduce((sum, { Name }) => sum + (sizes.get(Name) ?? 0), 0);
  }

  async list(id: string): Promise<VolumeList> {
    const mounts = this.#options.anonymousMounts(id);
    const anonymousExcept = (known: readonly string[]): string[] =>
      mounts.filter(({ name }) => !known.includes(name)).map(({ place }) => place);
    if (!(await this.#options.mayHave(id))) return { own: [], shared: [], anonymous: anonymousExcept([]) };
    const [own, shared]: [string[], string[]] = [[], []];
    const all = await this.all(id);
    shared.push(...(await this.#externalNames(id, all)));
    for (const volume of all) {
      const key = this.#keyOf(id, volume);
      if (key !== undefined && volumeKeyPattern.test(key)) own.push(key);
      // A temporary copy during a restore has no key.
      else if (key !== undefined || composeVolumeLabel in ((volume.Labels as Labels | null) ?? {}))
        shared.push(volume.Name);
    }
    const anonymous = anonymousExcept([...all.map(({ Name }) => Name), ...shared]);
    return { own: own.sort(), shared: shared.sort(), anonymous };
  }

  async *read(id: string, key: string, signal?: AbortSignal): AsyncGenerator<Buffer, void> {
    const bytes = new PassThrough({ highWaterMark: 1 << 20 });
    const work = this.#with(
      id,
      `read the volume ${key} of app "${id}"`,
      this.#nameOf(id, key),
      signal,
      (helper) => send(helper, bytes),
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
    await this.#options.userObjects.requireVolumes(id, [key]);
    await this.#create(id, key, this.#copyOf("restored", id, key), {});
    await this.#fill(id, key, this.#copyOf("restored", id, key), tar, signal);
  }

  async create(id: string, key: string, tar: Readable, signal?: AbortSignal): Promise<void> {
    await this.#options.userObjects.requireVolumes(id, [key]);
    await this.#create(id, key, this.#nameOf(id, key), { [composeVolumeLabel]: key });
    await this.#fill(id, key, this.#nameOf(id, key), tar, signal);
  }

  async backUp(id: string, key: string, signal?: AbortSignal): Promise<void> {
    await this.removeHelpers(id);
    await this.#options.release(id);
    await this.#remove(id, this.#copyOf("replaced", id, key));
    const name = this.#nameOf(id, key);
    if ((await this.#inspect(name)) === undefined) return;
    await this.#create(id, key, this.#copyOf("replaced", id, key), {});
    await this.#copy(id, name, this.#copyOf("replaced", id, key), signal);
  }

  async swap(id: string, key: string, signal?: AbortSignal): Promise<void> {
    await this.#make(id, key, this.#copyOf("restored", id, key), signal);
  }

  async rollBack(id: string, key: string): Promise<void> {
    await this.removeHelpers(id);
    await this.#options.release(id);
    const replacedCopy = this.#copyOf("replaced", id, key);
    // There was no old content.
    if ((await this.#inspect(replacedCopy)) === undefined) await this.#remove(id, this.#nameOf(id, key));
    else await this.#make(id, key, replacedCopy);
  }

  async settle(id: string, key: string): Promise<void> {
    await this.removeHelpers(id);
    for (const kind of ["restored", "replaced"] as const) await this.#remove(id, this.#copyOf(kind, id, key));
  }

  /** Helper containers of a killed daemon use volumes, which the engine then does not remove. */
  async removeHelpers(id: string): Promise<void> {
    for (const name of Object.values(this.#helpersOf(id))) {
      await unlessGone(
        this.#options.engine.call(`remove the container ${name}`, (docker) =>
          docker.getContainer(name).remove({ force: true, v: true }),
        ),
      );
    }
  }

  /** Recreates the volume from another one. */
  async #make(id: string, key: string, from: string, signal?: AbortSignal): Promise<void> {
    const name = this.#nameOf(id, key);
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
      // A second container, because the engine does one operation at a time per container.
      const options = { name: this.#helpersOf(id).copy, labels: this.#labels(id), image };
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

  /** @throws SvcError `not_possible` for a name that belongs to another owner */
  async #create(id: string, key: string, name: string, labels: Record<string, string>): Promise<void> {
    if (!volumeKeyPattern.test(key))
      throw new SvcError("not_possible", `"${key}" is not a valid name of a volume`);
    this.#options.touch(id);
    const own = {
      [composeProjectLabel]: this.#projectOf(id),
      ...labels,
      ...this.#options.ownership.labels("volume", id),
    };
    // An adopted volume outlives the app, and must not belong to the next app with this ID.
    const volumeLabels = this.#isAdopted(id, name) ? ((await this.#inspect(name))?.Labels ?? {}) : own;
    await this.#remove(id, name);
    await this.#options.engine.call(`create the volume ${name}`, (docker) =>
      docker.createVolume({
        Name: name,
        Driver: "local",
        Labels: volumeLabels,
      }),
    );
  }

  async #remove(id: string, name: string): Promise<void> {
    const found = await this.#inspect(name);
    if (found === undefined) return;
    const labels = found.Labels as Labels | null;
    if (!this.#isAdopted(id, name) && !this.#options.ownership.isOwn("volume", id, { labels })) {
      const message = `volume ${name} exists and does not belong to app "${id}"; remove it: docker volume rm ${name}`;
      throw new SvcError("not_possible", message);
    }
    await unlessGone(
      this.#options.engine.call(`remove the volume ${name}`, (docker) => docker.getVolume(name).remove()),
    );
  }

  #isAdopted(id: string, name: string): boolean {
    return Object.values(this.#options.adoptedVolumes(id)).includes(name);
  }

  #inspect(name: string): Promise<VolumeInspectInfo | undefined> {
    return unlessGone(
      this.#options.engine.call(`inspect the volume ${name}`, (docker) => docker.getVolume(name).inspect()),
    );
  }

  #labels(id: string): Record<string, string> {
    return this.#options.ownership.labels("container", id);
  }

  #projectOf(id: string): string {
    return this.#options.ownership.projectOf(id);
  }

  #nameOf(id: string, key: string): string {
    return this.#options.adoptedVolumes(id)[key] ?? `${this.#projectOf(id)}_${key}`;
  }

  /** A name that compose cannot give to a volume of svc's projects. */
  #copyOf(kind: Copy, id: string, key: string): string {
    return `svc.${kind}.${this.#nameOf(id, key)}`;
  }

  /** Names of the helper containers for reading and writing volumes. */
  #helpersOf(id: string): { backup: string; copy: string } {
    const project = this.#projectOf(id);
    return { backup: `${project}-volumes-backup`, copy: `${project}-volumes-copy` };
  }

  #with(
    id: string,
    what: string,
    volume: string,
    signal: AbortSignal | undefined,
    work: (helper: VolumeHelper, docker: Dockerode, image: string) => Promise<void>,
  ): Promise<void> {
    const name = this.#helpersOf(id).backup;
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

async function send({ container, directoryOf }: VolumeHelper, to: PassThrough): Promise<void> {
  await pipeline(await container.getArchive({ path: `${directoryOf(0)}/${volumeAs}` }), to);
}
