/** What of the engine installed apps still need: it is never pruned, and each item says why. */
import type { EngineNeeds } from "../runtimes/runtime.ts";
import type { Attribution } from "./attribution.ts";
import type { ContainerUse } from "./disk-usage.ts";
import type { ImageRecord, VolumeRecord } from "./engine-objects.ts";
import { formatImageReference, parseImageReference } from "./image-reference.ts";

export interface ProtectionOptions {
  /** By id of the app. */
  needs: ReadonlyMap<string, EngineNeeds>;
  containers: readonly ContainerUse[];
  /** Which app owns what carries labels. */
  attribution: Attribution;
}

export class Protection {
  /** Whole names, digests and ids of images, and the app that needs them. */
  readonly #images = new Map<string, string>();
  readonly #volumes = new Map<string, string>();
  readonly #attribution: Attribution;

  constructor({ needs, containers, attribution }: ProtectionOptions) {
    this.#attribution = attribution;
    for (const [appId, { images, volumes }] of needs) {
      for (const image of images) this.#images.set(wholeName(image), appId);
      for (const volume of volumes) this.#volumes.set(volume, appId);
    }
    for (const { imageId, labels, volumes } of containers) {
      const appId = attribution(labels);
      if (appId === undefined) continue;
      this.#images.set(imageId, appId);
      for (const volume of volumes) this.#volumes.set(volume, appId);
    }
  }

  /** Why an image stays; empty when no installed app needs it. */
  ofImage({ id, tags, digests, labels }: ImageRecord): string {
    const names = [id, ...[...tags, ...digests].map(wholeName)];
    const appId = names.map((name) => this.#images.get(name)).find((found) => found !== undefined);
    return reason("runs it", appId ?? this.#attribution(labels));
  }

  /** Why a volume stays; empty when no installed app needs it. */
  ofVolume({ name, labels }: VolumeRecord): string {
    return reason("keeps data in it", this.#volumes.get(name) ?? this.#attribution(labels));
  }
}

function reason(what: string, appId: string | undefined): string {
  return appId === undefined ? "" : `the installed app "${appId}" ${what}`;
}

/** One spelling for all that name the same image; ids and what is no name stay as they are. */
function wholeName(text: string): string {
  if (text.startsWith("sha256:")) return text;
  try {
    const { tag, ...name } = parseImageReference(text);
    // A pull by tag and digest makes no tag: the engine knows the image by its digest alone.
    return formatImageReference(name.digest === undefined && tag !== undefined ? { ...name, tag } : name);
  } catch {
    return text;
  }
}
