/** Limits the volumes and images of a regular user on the engine, and the size of all users' entries in its lists. */
import type { ImageInfo } from "dockerode";
import { descriptionBytes } from "../../engine/engine-objects.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import { SvcError } from "../../errors.ts";

export interface UserObjectsOptions {
  readonly engine: Pick<DockerEngine, "call">;
  readonly ownership: EngineOwnership;
  /** The owner of an installed app; `undefined` for an unknown one. */
  readonly ownerOf: (appId: string) => number | undefined;
  /** Users for whom svc pulled an image, by its ID. */
  readonly pulled: () => ReadonlyMap<string, readonly number[]>;
  readonly limits: { readonly maxImageBytesPerUser: number };
}

/**
 * Number of entries per user, and bytes of the engine's JSON. svc reads the lists, and all of them together as disk
 * usage, up to 64 MiB: half of that is for containers.
 */
const bounds = {
  volumes: { count: 1_024, userBytes: 2 * 2 ** 20, usersBytes: 8 * 2 ** 20 },
  images: { count: 256, userBytes: 4 * 2 ** 20, usersBytes: 16 * 2 ** 20 },
};

type Kind = keyof typeof bounds;

const remedies: Readonly<Record<Kind, string>> = {
  volumes: "remove an app that you do not need",
  images:
    "remove an app that you do not need, and ask an administrator to run: svc docker prune images --all",
};

/** An entry of a list, and the users it counts for. */
interface Entry {
  readonly owners: readonly number[];
  readonly bytes: number;
}

export class UserObjects {
  readonly #options: UserObjectsOptions;

  constructor(options: UserObjectsOptions) {
    this.#options = options;
  }

  /**
   * Checks the limits before volumes of an app are created. Volumes of earlier versions count until the app is
   * removed.
   * @param missing labels of the volumes to create
   * @throws SvcError `too_many`
   */
  async requireVolumes(appId: string, missing: readonly unknown[]): Promise<void> {
    const { engine, ownership, ownerOf } = this.#options;
    const ownerUid = ownerOf(appId) ?? 0;
    if (ownerUid === 0 || missing.length === 0) return;
    const { Volumes } = await engine.call("list the volumes of apps", (docker) =>
      docker.listVolumes({ filters: ownership.filter() }),
    );
    // The engine returns `null` for an empty list.
    const entries = ((Volumes as typeof Volumes | null) ?? []).map((volume): Entry => {
      const owner = ownership.ownerOf("volume", { labels: volume.Labels });
      const uid = owner === undefined ? undefined : ownerOf(owner);
      return { owners: uid === undefined ? [] : [uid], bytes: descriptionBytes(volume) };
    });
    const added = missing.map((labels) => ({ owners: [ownerUid], bytes: descriptionBytes(labels) }));
    requireFew("volumes", ownerUid, entries, added, `app "${appId}" needs ${missing.length} new volumes`);
  }

  /**
   * Checks the limits including an image that svc has just pulled or built for the user. @throws SvcError `too_many`
   */
  async requireImages(ownerUid: number, imageId: string, reference: string): Promise<void> {
    const { engine, ownership, ownerOf, pulled } = this.#options;
    const listed = await engine.call("list images", (docker) => docker.listImages());
    const pulledFor = pulled();
    const entries = listed.map((image): Entry & { id: string } => {
      const { Id: id, Labels: labels, RepoTags: names } = image;
      const appId = ownership.ownerOf("image", { labels, names: (names as string[] | null) ?? [] });
      const builder = appId === undefined ? undefined : ownerOf(appId);
      return { id, owners: [...(pulledFor.get(id) ?? []), builder ?? 0], bytes: descriptionBytes(image) };
    });
    const others = entries.filter(({ id }) => id !== imageId);
    const bytes = entries.find(({ id }) => id === imageId)?.bytes ?? 0;
    const what = `the image ${reference} is one more`;
    requireFew("images", ownerUid, others, [{ owners: [ownerUid], bytes }], what);
    const own = listed.find(({ Id: id }) => id === imageId);
    if (own !== undefined) this.#requireSpace(ownerUid, reference, listed, own);
  }

  /**
   * Checks the space for an image that svc is about to pull for the user.
   * @param sizeBytes of the compressed layers
   * @returns what the user's images may use in addition
   * @throws SvcError `too_many`
   */
  async requireImageSpace(ownerUid: number, reference: string, sizeBytes: number): Promise<number> {
    const listed = await this.#options.engine.call("list images", (docker) => docker.listImages());
    return this.#requireSpace(ownerUid, reference, listed, { Id: "", Size: sizeBytes });
  }

  #requireSpace(
    ownerUid: number,
    reference: string,
    listed: readonly Pick<ImageInfo, "Id" | "Size">[],
    added: Pick<ImageInfo, "Id" | "Size">,
  ): number {
    const { limits, pulled } = this.#options;
    const pulledFor = pulled();
    const own = listed.filter(
      ({ Id: id }) => id !== added.Id && pulledFor.get(id)?.includes(ownerUid) === true,
    );
    const usedBytes = own.reduce((sum, { Size: sizeBytes }) => sum + sizeBytes, 0);
    if (usedBytes + added.Size <= limits.maxImageBytesPerUser) return limits.maxImageBytesPerUser - usedBytes;
    throw new SvcError(
      "too_many",
      `the image ${reference} has ${added.Size} bytes, your apps' other pulled images have ${usedBytes}, and max_image_bytes_per_user is ${limits.maxImageBytesPerUser}; ${remedies.images}`,
    );
  }
}

function requireFew(
  kind: Kind,
  ownerUid: number,
  listed: readonly Entry[],
  added: readonly Entry[],
  what: string,
): void {
  const { count, userBytes, usersBytes } = bounds[kind];
  const own = [...listed.filter(({ owners }) => owners.includes(ownerUid)), ...added];
  const users = [...listed.filter(({ owners }) => owners.some((uid) => uid !== 0)), ...added];
  const remedy = remedies[kind];
  const before = own.length - added.length;
  if (own.length > count) {
    throw new SvcError(
      "too_many",
      `${what}, your apps have ${before}, those of earlier versions included, and a user has at most ${count} ${kind}; ${remedy}`,
    );
  }
  for (const [whose, entries, max] of [
    ["your", own, userBytes],
    ["all users'", users, usersBytes],
  ] as const) {
    const bytes = entries.reduce((sum, entry) => sum + entry.bytes, 0);
    if (bytes <= max) continue;
    throw new SvcError(
      "too_many",
      `${what}, and the engine would list ${whose} ${kind} with ${bytes} bytes, more than ${max}; use fewer labels, or ${remedy}`,
    );
  }
}
