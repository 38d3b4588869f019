/** Volumes whose names the engine chose: those that an image declares, and mounts without a source. */
import type { ContainerInfo } from "dockerode";
import type { ContainerRecord } from "../../engine/container-record.ts";
import { unlessGone } from "../../engine/engine-errors.ts";
import { isAnonymousName } from "../../engine/engine-objects.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { Log } from "../../lib/log.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { printDocument } from "./compose-document.ts";

export interface AnonymousVolumesOptions {
  engine: DockerEngine;
  log: Pick<Log, "warn">;
  /** The app's containers on the engine. */
  containers: (id: string) => Promise<readonly ContainerInfo[]>;
  /** The document that the app was started with, or prepared for. */
  document: (id: string) => Promise<JsonObject | undefined>;
  /** Names of volumes that exist outside the app, or are adopted. */
  spared: (id: string) => Promise<readonly string[]>;
}

/** Containers that a start replaced. */
interface Replaced {
  /** The document of the project that the start ran, as text. */
  readonly project: string;
  readonly volumes: readonly string[];
}

/**
 * Removes anonymous volumes of containers that are gone, because nobody could find them later. Compose leaves some of them
 * behind; others it passes on to the new containers by name, so that the engine keeps them.
 */
export class AnonymousVolumes {
  readonly #options: AnonymousVolumesOptions;
  /** By app of root, from its start until the start is settled. */
  readonly #replaced = new Map<string, Replaced>();

  constructor(options: AnonymousVolumesOptions) {
    this.#options = options;
  }

  /** Call this before a start. Its result notes the containers that the start has replaced. */
  async watch({
    id,
    ownerUid,
  }: RunnableApp): Promise<(before: readonly ContainerRecord[], isUp: boolean) => Promise<void>> {
    const sparedBefore = new Set(await this.#options.spared(id));
    return async (before, isUp) => {
      const volumes = anonymousVolumesOf(before).filter((name) => !sparedBefore.has(name));
      // Failed starts must not use up a user's share of the engine. Root's data stays until the new version has proven itself.
      if (ownerUid !== 0) return this.#remove(id, volumes);
      const document = await this.#options.document(id);
      if (isUp && document !== undefined)
        this.#replaced.set(id, { project: printDocument(document), volumes });
    };
  }

  /** Removes the volumes of replaced containers, unless the app was rolled back since. */
  async settle(id: string): Promise<void> {
    const replaced = this.#replaced.get(id);
    this.#replaced.delete(id);
    const document = await this.#options.document(id);
    if (replaced === undefined || document === undefined || printDocument(document) !== replaced.project)
      return;
    await this.#remove(id, replaced.volumes);
  }

  /** Removes the volumes of removed containers. */
  async removeOf(id: string, removed: readonly ContainerRecord[]): Promise<void> {
    this.#replaced.delete(id);
    await this.#remove(id, anonymousVolumesOf(removed));
  }

  async #remove(id: string, volumes: readonly string[]): Promise<void> {
    const { engine, log, containers, spared } = this.#options;
    if (volumes.length === 0) return;
    try {
      const mounted = (await containers(id)).flatMap(({ Mounts }) => Mounts.map(({ Name }) => Name));
      const inUse = new Set([...mounted, ...(await spared(id))]);
      for (const name of volumes.filter((each) => !inUse.has(each))) {
        await unlessGone(
          engine.call(`remove a volume of app "${id}"`, (docker) => docker.getVolume(name).remove()),
        );
      }
    } catch (error) {
      log.warn({ app: id, err: error }, "failed to remove volumes of replaced containers");
    }
  }
}

export interface AnonymousMount {
  readonly name: string;
  /** Such as `/data of service "db"`. */
  readonly place: string;
}

/** The anonymous volumes that these containers mount. */
export function anonymousMountsOf(containers: readonly ContainerRecord[]): AnonymousMount[] {
  return containers.flatMap(({ composeService = "", mounts }) =>
    mounts
      .filter(({ name = "" }) => isAnonymousName(name))
      .map(({ name = "", destination }) => ({
        name,
        place: `${destination} of service "${composeService}"`,
      })),
  );
}

/** Names of the anonymous volumes that these containers mount. */
export function anonymousVolumesOf(containers: readonly ContainerRecord[]): string[] {
  const names = containers.flatMap(({ mounts }) => mounts.flatMap(({ name = "" }) => name));
  return [...new Set(names)].filter(isAnonymousName);
}
