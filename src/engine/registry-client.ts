/** Looks up an image in a registry without pulling it (OCI distribution specification). */
import { createHash } from "node:crypto";
import { SvcError, notFound } from "../errors.ts";
import { formatImageReference, parseImageReference, type ImageReference } from "./image-reference.ts";
import {
  contentType,
  indexTypes,
  manifestTypes,
  parseJson,
  readBounded,
  RegistryRequests,
  type RegistryAccess,
} from "./registry-requests.ts";

/** With the engine's names: `linux`, `amd64`, `arm64` with variant `v8`. */
export interface ImagePlatform {
  readonly os: string;
  readonly architecture: string;
  /** Empty: any. */
  readonly variant: string;
}

export interface RemoteImage {
  /** Digest of what the name refers to: an index, for a multi-platform image. */
  readonly digest: string;
  /** Digest of the platform's image; the same as `digest` for a single-platform image. */
  readonly platformDigest: string;
  /**
   * Digest of the image's configuration, which is the engine's image ID; absent if `known` made the lookup
   * unnecessary.
   */
  readonly configDigest?: string;
}

export interface LookupOptions extends RegistryAccess {
  signal?: AbortSignal | undefined;
  /** For the whole lookup, in milliseconds. */
  timeoutMs?: number;
}

export interface RemoteImageOptions extends LookupOptions {
  platform: ImagePlatform;
  /** Digests of a local image: if the name or the platform has one of these, the lookup ends early. */
  known?: readonly string[];
}

const defaultTimeoutMs = 15_000;
const maxManifestBytes = 4 * 1024 * 1024;

/**
 * Looks up `reference` in its registry.
 * @throws SvcError `not_found` when the registry has no such image, or none for the platform; what
 *   {@link lookUp} throws
 */
export function remoteImage(reference: string, options: RemoteImageOptions): Promise<RemoteImage> {
  const { platform, known = [] } = options;
  return lookUp(reference, options, (requests, image) =>
    new ImageLookup(requests, image).ask(platform, known),
  );
}

/**
 * Runs requests about one image, with a deadline for all of them.
 * @throws SvcError `not_found`; `permission_denied` when the registry requires other credentials; `unavailable` when
 *   it cannot be reached, does not respond in time, or limits the request rate; `invalid_argument` for an invalid
 *   name; `canceled`
 */
export async function lookUp<T>(
  reference: string,
  options: LookupOptions,
  work: (requests: RegistryRequests, image: ImageReference) => Promise<T>,
): Promise<T> {
  const { signal, timeoutMs = defaultTimeoutMs } = options;
  const image = parseImageReference(reference);
  const deadline = AbortSignal.timeout(timeoutMs);
  const ending = signal ? AbortSignal.any([signal, deadline]) : deadline;
  try {
    for (const mirror of options.transport?.mirrors ?? []) {
      try {
        return await work(new RegistryRequests(image, options, ending, mirror), image);
      } catch {
        // The registry itself may have the image.
        ending.throwIfAborted();
      }
    }
    return await work(new RegistryRequests(image, options, ending), image);
  } catch (error) {
    if (signal?.aborted === true) throw new SvcError("canceled", `the lookup of ${reference} was canceled`);
    if (error instanceof SvcError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    const failure = typeof code === "string" ? `cannot be reached (${code})` : "cannot be reached";
    const why = deadline.aborted ? `did not respond within ${timeoutMs / 1000} s` : failure;
    throw new SvcError("unavailable", `the registry ${image.host} ${why}`, { cause: error });
  }
}

class ImageLookup {
  readonly #requests: RegistryRequests;
  readonly #image: ImageReference;

  constructor(requests: RegistryRequests, image: ImageReference) {
    this.#requests = requests;
    this.#image = image;
  }

  async ask(platform: ImagePlatform, known: readonly string[]): Promise<RemoteImage> {
    const { tag, digest } = this.#image;
    const head = await this.#requests.manifest("HEAD", digest ?? tag ?? "");
    const named = digest ?? head.headers.get("docker-content-digest");
    const type = contentType(head);
    // For a single-platform image, the digest in the header is enough.
    if (named !== null && manifestTypes.includes(type) && (known.length === 0 || known.includes(named))) {
      return { digest: named, platformDigest: named };
    }
    const response = await this.#requests.manifest("GET", digest ?? tag ?? "");
    const bytes = await readBounded(response, maxManifestBytes);
    const found = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
    if (digest?.startsWith("sha256:") === true && digest !== found) {
      throw this.#requests.unexpected("returned another image than requested");
    }
    if (!indexTypes.includes(contentType(response))) {
      return { digest: found, platformDigest: found, ...configOf(bytes) };
    }
    const platformDigest = this.#choose(bytes, platform);
    if (known.length === 0 || known.includes(found) || known.includes(platformDigest)) {
      return { digest: found, platformDigest };
    }
    const own = await readBounded(await this.#requests.manifest("GET", platformDigest), maxManifestBytes);
    return { digest: found, platformDigest, ...configOf(own) };
  }

  #choose(index: Buffer, platform: ImagePlatform): string {
    const { manifests = [] } = parseJson(index) as {
      manifests?: { digest?: string; platform?: Partial<ImagePlatform> }[];
    };
    const fitting = manifests.filter(
      ({ platform: other }) => other?.os === platform.os && other.architecture === platform.architecture,
    );
    const exact = fitting.find(({ platform: other }) => (other?.variant ?? "") === platform.variant);
    const { digest } = exact ?? fitting[0] ?? {};
    if (digest !== undefined) return digest;
    const name = formatImageReference(this.#image);
    const platformText = [platform.os, platform.architecture, platform.variant].filter(Boolean).join("/");
    throw notFound("image", name, `the registry has ${name}, but not for ${platformText}`);
  }
}

/** The manifest refers to the image's configuration. */
function configOf(manifest: Buffer): { configDigest?: string } {
  const { config } = parseJson(manifest) as { config?: { digest?: string } };
  return config?.digest === undefined ? {} : { configDigest: config.digest };
}
