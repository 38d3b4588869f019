/**
 * Reads what a registry offers under the name of an image, before the engine pulls it for a regular user: the engine
 * does not limit what it reads. The engine then gets exactly this, by its digest.
 */
import { createHash } from "node:crypto";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EnginePlatform } from "../../engine/engine-platform.ts";
import { parseImageReference, type ImageReference } from "../../engine/image-reference.ts";
import { lookUp, type LookupOptions } from "../../engine/registry-client.ts";
import {
  manifestTypes,
  parseJson,
  readBounded,
  type RegistryRequests,
} from "../../engine/registry-requests.ts";
import { notFound, SvcError } from "../../errors.ts";
import { findAmbiguousKey } from "../../lib/json.ts";

export interface OfferedImage {
  /** Digest of what the name refers to: an index, for a multi-platform image. */
  readonly digest: string;
  /** Size of the configuration and all layers, as the manifest declares it. */
  readonly downloadBytes: number;
}

const timeoutMs = 60_000;
/** With 127 layers and annotations, a manifest has at most 64 KiB. */
const maxManifestBytes = 128 * 1024;
/** The most that overlay2 can mount. */
const maxLayers = 127;
/** Images with a long history of long commands have 100 KiB. */
const maxConfigBytes = 1024 * 1024;
/** Manifests of an index that the engine could choose; images for several variants of a platform have three. */
const maxCandidates = 16;

const configTypes = [
  "application/vnd.docker.container.image.v1+json",
  "application/vnd.oci.image.config.v1+json",
];
/** Neither layers that the engine gets from any URL, nor encrypted ones. */
const layerTypes = [
  "application/vnd.docker.image.rootfs.diff.tar",
  "application/vnd.docker.image.rootfs.diff.tar.gzip",
  "application/vnd.docker.image.rootfs.diff.tar.zstd",
  "application/vnd.oci.image.layer.v1.tar",
  "application/vnd.oci.image.layer.v1.tar+gzip",
  "application/vnd.oci.image.layer.v1.tar+zstd",
];
const fieldNames = [
  ...["schemaVersion", "mediaType", "manifests", "config", "layers"],
  ...["digest", "size", "urls", "platform", "os", "architecture", "variant"],
];
const digestPattern = /^(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$/;

/** Fields of a descriptor, as the registry sent them. */
interface Descriptor {
  readonly mediaType?: unknown;
  readonly digest?: unknown;
  readonly size?: unknown;
  readonly urls?: unknown;
  readonly platform?: {
    readonly os?: unknown;
    readonly architecture?: unknown;
    readonly variant?: unknown;
  } | null;
}

/**
 * Checks that the registry shows the image to these credentials, whether or not the image exists locally.
 * @returns the digest of the image
 * @throws SvcError `not_found`; `unavailable` if the registry cannot be reached
 */
export function confirmImage(
  engine: Pick<DockerEngine, "operate">,
  reference: string,
  options: LookupOptions,
): Promise<string> {
  return withOffer(engine, reference, options, (offer) => offer.digest());
}

/**
 * Reads every manifest that the engine could choose for its platform.
 * @throws SvcError as {@link confirmImage}; `denied` for an image that regular users may not pull
 */
export function readOffer(
  engine: Pick<DockerEngine, "operate">,
  reference: string,
  options: LookupOptions & { readonly platform: EnginePlatform },
): Promise<OfferedImage> {
  return withOffer(engine, reference, options, (offer) => offer.read(options.platform));
}

/** Counts as a pull of the user, which limits how many images are read at the same time. */
function withOffer<T>(
  engine: Pick<DockerEngine, "operate">,
  reference: string,
  options: LookupOptions,
  work: (offer: Offer) => Promise<T>,
): Promise<T> {
  const read = async (signal: AbortSignal): Promise<T> => {
    try {
      return await lookUp(reference, { ...options, signal, timeoutMs }, (requests, image) =>
        work(new Offer(reference, image, requests)),
      );
    } catch (error) {
      if (!(error instanceof SvcError) || error.reason !== "unavailable") throw error;
      const { host } = parseImageReference(reference);
      const message = `image ${reference} is not available: ${error.message}; try again when the registry ${host} can be reached`;
      throw new SvcError("source_failed", message, { cause: error });
    }
  };
  return engine.operate(`find ${reference} in its registry`, (_docker, signal) => read(signal), {
    ...{ timeoutMs: timeoutMs + 1_000, signal: options.signal, waitsFor: "pull" },
  });
}

class Offer {
  readonly #reference: string;
  readonly #image: ImageReference;
  readonly #requests: RegistryRequests;

  constructor(reference: string, image: ImageReference, requests: RegistryRequests) {
    this.#reference = reference;
    this.#image = image;
    this.#requests = requests;
  }

  async digest(): Promise<string> {
    const { tag, digest } = this.#image;
    const { headers } = await this.#available(() => this.#requests.manifest("HEAD", digest ?? tag ?? ""));
    const named = digest ?? headers.get("docker-content-digest");
    return named ?? (await this.#document(tag ?? "")).digest;
  }

  async read(platform: EnginePlatform): Promise<OfferedImage> {
    const { tag, digest: pinned } = this.#image;
    const { document, digest } = await this.#document(pinned ?? tag ?? "");
    if (!("manifests" in document)) return { digest, downloadBytes: await this.#readManifest(document) };
    const candidates = this.#candidates(document["manifests"], platform);
    let downloadBytes = 0;
    for (const candidate of candidates) {
      const { document: manifest } = await this.#document(candidate);
      downloadBytes = Math.max(downloadBytes, await this.#readManifest(manifest));
    }
    return { digest, downloadBytes };
  }

  /** @param name tag or digest; its content must match a digest */
  async #document(name: string): Promise<{ document: Readonly<Record<string, unknown>>; digest: string }> {
    const response = await this.#available(() => this.#requests.manifest("GET", name));
    const tooLarge = (): Error => this.#denied(`has a manifest of more than ${maxManifestBytes} bytes`);
    const bytes = await readBounded(response, maxManifestBytes, tooLarge);
    const isPinned = digestPattern.test(name);
    const algorithm = isPinned ? name.slice(0, name.indexOf(":")) : "sha256";
    const digest = `${algorithm}:${createHash(algorithm).update(bytes).digest("hex")}`;
    if (isPinned && digest !== name) throw this.#requests.unexpected("returned another image than requested");
    const document = parseJson(bytes);
    if (typeof document !== "object" || document === null || Array.isArray(document))
      throw this.#denied("has a manifest that is not a JSON object");
    const ambiguous = findAmbiguousKey(bytes.toString(), fieldNames);
    if (ambiguous !== undefined)
      throw this.#denied(`has a manifest with the ambiguous field ${JSON.stringify(ambiguous.slice(0, 64))}`);
    return { document: document as Record<string, unknown>, digest };
  }

  /** Digests of all manifests that the engine could choose. */
  #candidates(manifests: unknown, platform: EnginePlatform): readonly string[] {
    if (!Array.isArray(manifests)) throw this.#denied("has an index without a list of manifests");
    const entries = (manifests as (Descriptor | null)[]).map((entry) => entry ?? {});
    const needed = new Set<string>();
    for (const entry of fittingEntries(entries, platform)) {
      if (!manifestTypes.includes(textOf(entry.mediaType)))
        throw this.#denied(`has an index with an entry of type ${quoted(entry.mediaType)}`);
      needed.add(this.#descriptor(entry).digest);
    }
    if (needed.size === 0) {
      const { os, architecture } = platform;
      throw notFound(
        "image",
        this.#reference,
        `the registry has ${this.#reference}, but not for ${os}/${architecture}`,
      );
    }
    if (needed.size > maxCandidates) {
      throw this.#denied(`has ${needed.size} manifests for this platform, more than ${maxCandidates}`);
    }
    return [...needed];
  }

  /** @returns the declared size of everything to download */
  async #readManifest(manifest: Readonly<Record<string, unknown>>): Promise<number> {
    const { schemaVersion, config, layers, manifests } = manifest;
    if (schemaVersion !== 2 || manifests !== undefined || !isObject(config) || !Array.isArray(layers))
      throw this.#denied("has a manifest in a format that svc does not read");
    if (!configTypes.includes(textOf(config.mediaType)))
      throw this.#denied(`has a configuration of type ${quoted(config.mediaType)}`);
    if (layers.length > maxLayers) throw this.#denied(`has ${layers.length} layers, more than ${maxLayers}`);
    const described = this.#descriptor(config);
    if (described.size > maxConfigBytes)
      throw this.#denied(`has a configuration of ${described.size} bytes, more than ${maxConfigBytes}`);
    const sizes = new Map<string, number>();
    const shortIds = new Set<string>();
    for (const layer of layers as unknown[]) {
      if (!isObject(layer) || !layerTypes.includes(textOf(layer.mediaType)))
        throw this.#denied(`has a layer of type ${quoted(isObject(layer) ? layer.mediaType : undefined)}`);
      const { digest, size } = this.#descriptor(layer);
      sizes.set(digest, Math.max(size, sizes.get(digest) ?? 0));
      shortIds.add(digest.slice(digest.indexOf(":") + 1).slice(0, shortIdLength));
    }
    // The engine reports its progress by short IDs.
    if (shortIds.size < sizes.size) throw this.#denied("has two layers with the same short ID");
    await this.#requireBoundedConfig(described.digest);
    return described.size + [...sizes.values()].reduce((sum, size) => sum + size, 0);
  }

  /** The declared size may be wrong, and the engine reads the whole configuration into memory. */
  async #requireBoundedConfig(digest: string): Promise<void> {
    const response = await this.#available(() => this.#requests.blob(digest));
    let sizeBytes = 0;
    const body: AsyncIterable<Uint8Array> | null = response.body;
    for await (const chunk of body ?? []) {
      sizeBytes += chunk.length;
      if (sizeBytes > maxConfigBytes)
        throw this.#denied(`has a configuration of more than ${maxConfigBytes} bytes`);
    }
  }

  #descriptor({ digest, size, urls }: Descriptor): { digest: string; size: number } {
    if (typeof digest !== "string" || !digestPattern.test(digest))
      throw this.#denied(`has a manifest with the digest ${quoted(digest)}`);
    if (!Number.isSafeInteger(size) || (size as number) < 0)
      throw this.#denied(`has a manifest with the size ${quoted(size)}`);
    const hasUrls = urls !== undefined && urls !== null && !(Array.isArray(urls) && urls.length === 0);
    if (hasUrls) throw this.#denied("has a layer that the engine would get from another server");
    return { digest, size: size as number };
  }

  #denied(what: string): SvcError {
    return new SvcError(
      "denied",
      `the image ${this.#reference} ${what}; regular users may not pull it, but root can install the app`,
    );
  }

  /** The same error for a missing image and for one that the credentials do not show. */
  async #available(request: () => Promise<Response>): Promise<Response> {
    try {
      return await request();
    } catch (error) {
      if (!(error instanceof SvcError) || !["not_found", "permission_denied"].includes(error.code))
        throw error;
      const message = `image ${this.#reference} is not found: the registry has no such image that you may read; check the name, or add a login with: svc credential add --kind registry`;
      throw notFound("image", this.#reference, message);
    }
  }
}

/** Digits of a layer's digest in the engine's messages. */
const shortIdLength = 12;

/** Names of architectures that the engine accepts. */
const architectureNames: Readonly<Record<string, readonly string[]>> = {
  amd64: ["amd64", "x86_64", "x86-64"],
  386: ["386", "i386"],
  arm64: ["arm64", "aarch64"],
  arm: ["arm", "armhf", "armel"],
};
/** The architecture that the engine chooses if an index does not have its own. */
const fallbacks: Readonly<Record<string, string>> = { amd64: "386", arm64: "arm" };

/** The entries of an index that the engine could choose. It also takes one without a platform. */
function fittingEntries(
  entries: readonly Descriptor[],
  { os, architecture }: EnginePlatform,
): readonly Descriptor[] {
  const isNamed = (name: string, { platform }: Descriptor): boolean =>
    (architectureNames[name] ?? [name]).includes(textOf(platform?.architecture).toLowerCase());
  const isAny = (entry: Descriptor): boolean => textOf(entry.platform?.architecture) === "";
  const ofSystem = entries.filter(
    (entry) => isAny(entry) || ["", os].includes(textOf(entry.platform?.os).toLowerCase()),
  );
  const own = ofSystem.filter((entry) => isAny(entry) || isNamed(architecture, entry));
  // With an entry for the plain architecture, the engine never needs the fallback.
  const plain = JSON.stringify({ architecture, os });
  const hasPlain = own.some(({ platform }) => {
    return isObject(platform) && JSON.stringify(platform, Object.keys(platform).sort()) === plain;
  });
  const fallback = fallbacks[architecture];
  if (hasPlain || fallback === undefined) return own;
  return [...own, ...ofSystem.filter((entry) => isNamed(fallback, entry))];
}

function isObject(value: unknown): value is Descriptor {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function quoted(value: unknown): string {
  return JSON.stringify(value ?? null).slice(0, 100);
}
