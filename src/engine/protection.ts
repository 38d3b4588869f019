/** Finds the engine objects that installed apps need, which are never pruned, with the reason for each. */
import type { Attribution } from "./ownership.ts";
import type { ContainerUse } from "./disk-usage.ts";
import type { ImageRecord, VolumeRecord } from "./engine-objects.ts";
import { formatImageReference, parseImageReference } from "./image-reference.ts";

/** Engine objects that an app needs, running or not. They are never pruned. */
export interface EngineNeeds {
  /** References or IDs. */
  readonly images: readonly string[];
  /** Names of engine volumes. */
  readonly volumes: readonly string[];
}

export interface ProtectionOptions {
  /** By app ID. */
  needs: ReadonlyMap<string, EngineNeeds>;
  containers: readonly ContainerUse[];
  /** Which app owns an object. */
  attribution: Attribution;
}

export class Protection {
  /** Full names, digests and IDs of images, with the app that needs them. */
  readonly #images = new Map<string, string>();
  readonly #volumes = new Map<string, string>();
  readonly #attribution: Attribution;

  constructor({ needs, containers, attribution }: ProtectionOptions) {
    this.#attribution = attribution;
    for (const [appId, { images, volumes }] of needs) {
      for (const image of images) this.#images.set(fullName(image), appId);
      for (const volume of volumes) this.#volumes.set(volume, appId);
    }
    for (const { imageId, names, labels, volumes } of containers) {
      const appId = attribution("container", { labels, names });
      if (appId === undefined) continue;
      this.#images.set(imageId, appId);
      for (const volume of volumes) this.#volumes.set(volume, appId);
    }
  }

  /** Why an image must stay; empty when no installed app needs it. */
  ofImage({ id, tags, digests, labels }: ImageRecord): string {
    const names = [id, ...[...tags, ...digests].map(fullName)];
    const appId = names.map((name) => this.#images.get(name)).find((found) => found !== undefined);
    return reason("runs it", appId ?? this.#attribution("image", { labels, names: tags }));
  }

  /** Why a volume must stay; empty when no installed app needs it. */
  ofVolume({ name, labels }: VolumeRecord): string {
    return reason("keeps data in it", this.#volumes.get(name) ?? this.#attribution("volume", { labels }));
  }
}

function reason(what: string, appId: string | undefined): string {
  return appId === undefined ? "" : `the installed app "${appId}" ${what}`;
}

/** The same spelling for all names of an image; IDs and invalid names are returned unchanged. */
function fullName(text: string): string {
  if (text.startsWith("sha256:")) return text;
  try {
    const { tag, ...name } = parseImageReference(text);
    // A pull by tag and digest creates no tag: the engine knows the image only by its digest.
    return formatImageReference(name.digest === undefined && tag !== undefined ? { ...name, tag } : name);
  } catch {
    return text;
  }
}
