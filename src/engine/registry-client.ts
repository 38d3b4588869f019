/** Looks up an image in a registry without pulling it (OCI distribution specification). */
import { createHash } from "node:crypto";
import { maxStructure, SvcError, notFound } from "../errors.ts";
import { hasMoreStructure } from "../lib/json.ts";
import {
  formatImageReference,
  isLoopbackHost,
  parseImageReference,
  type ImageReference,
} from "./image-reference.ts";
import { unverifiedFetch } from "./unverified-request.ts";
import {
  basicAuthorization,
  parseChallenge,
  type RegistryChallenge,
  type RegistryCredentials,
} from "./registry-auth.ts";

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

export interface RemoteImageOptions {
  platform: ImagePlatform;
  /** Digests of a local image: if the name or the platform has one of these, the lookup ends early. */
  known?: readonly string[];
  /** Accepts any certificate, and falls back to plain HTTP for a registry without TLS. */
  isInsecure?: boolean;
  /** Credentials for the registry. */
  credentials?: RegistryCredentials | undefined;
  signal?: AbortSignal | undefined;
  /** For the whole lookup, in milliseconds. */
  timeoutMs?: number;
}

const defaultTimeoutMs = 15_000;
const maxManifestBytes = 4 * 1024 * 1024;
const maxTokenBytes = 256 * 1024;
const maxRedirects = 3;
const indexTypes = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
];
const manifestTypes = [
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
];

/**
 * Looks up `reference` in its registry.
 * @throws SvcError `not_found` when the registry has no such image, or none for the platform; `permission_denied`
 *   when it requires other credentials; `unavailable` when it cannot be reached, does not respond in time, or limits
 *   the request rate; `invalid_argument` for an invalid name; `canceled`
 */
export async function remoteImage(reference: string, options: RemoteImageOptions): Promise<RemoteImage> {
  const { platform, known = [], signal, timeoutMs = defaultTimeoutMs } = options;
  const image = parseImageReference(reference);
  const deadline = AbortSignal.timeout(timeoutMs);
  const ending = signal ? AbortSignal.any([signal, deadline]) : deadline;
  try {
    return await new ImageLookup(image, options, ending).ask(platform, known);
  } catch (error) {
    if (signal?.aborted === true) throw new SvcError("canceled", `the lookup of ${reference} was canceled`);
    if (error instanceof SvcError) throw error;
    const why = deadline.aborted ? `did not respond within ${timeoutMs / 1000} s` : "cannot be reached";
    throw new SvcError("unavailable", `the registry ${image.host} ${why}`, { cause: error });
  }
}

/** The requests for one image; the authorization is reused. */
class ImageLookup {
  readonly #image: ImageReference;
  readonly #name: string;
  readonly #isInsecure: boolean;
  #origin: string;
  readonly #credentials: RegistryCredentials | undefined;
  readonly #signal: AbortSignal;
  #authorization: string | undefined;

  constructor(
    image: ImageReference,
    { credentials, isInsecure = isLoopbackHost(image.host) }: RemoteImageOptions,
    signal: AbortSignal,
  ) {
    this.#image = image;
    this.#name = formatImageReference(image);
    // The host of Docker's registry differs from the host in its image names.
    const host = image.host === "docker.io" ? "registry-1.docker.io" : image.host;
    // Over loopback, plain HTTP is as secure as TLS, and most local registries offer nothing else.
    this.#origin = `${isLoopbackHost(image.host) ? "http" : "https"}://${host}`;
    this.#isInsecure = isInsecure;
    this.#credentials = credentials;
    this.#signal = signal;
  }

  async ask(platform: ImagePlatform, known: readonly string[]): Promise<RemoteImage> {
    const { tag, digest } = this.#image;
    const head = await this.#manifest("HEAD", digest ?? tag ?? "");
    const named = digest ?? head.headers.get("docker-content-digest");
    const type = contentType(head);
    // For a single-platform image, the digest in the header is enough.
    if (named !== null && manifestTypes.includes(type) && (known.length === 0 || known.includes(named))) {
      return { digest: named, platformDigest: named };
    }
    const response = await this.#manifest("GET", digest ?? tag ?? "");
    const bytes = await readBounded(response, maxManifestBytes);
    const found = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
    if (digest?.startsWith("sha256:") === true && digest !== found) {
      throw this.#unexpected("returned another image than requested");
    }
    if (!indexTypes.includes(contentType(response))) {
      return { digest: found, platformDigest: found, ...configOf(bytes) };
    }
    const platformDigest = this.#choose(bytes, platform);
    if (known.length === 0 || known.includes(found) || known.includes(platformDigest)) {
      return { digest: found, platformDigest };
    }
    const own = await readBounded(await this.#manifest("GET", platformDigest), maxManifestBytes);
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
    const wanted = [platform.os, platform.architecture, platform.variant].filter(Boolean).join("/");
    throw notFound("image", this.#name, `the registry has ${this.#name}, but not for ${wanted}`);
  }

  async #manifest(method: "HEAD" | "GET", reference: string): Promise<Response> {
    const url = `${this.#origin}/v2/${this.#image.repository}/manifests/${reference}`;
    const accept = [...indexTypes, ...manifestTypes].join(", ");
    let response = await this.#request(url, method, { accept });
    if (response.status === 401 && this.#authorization === undefined) {
      await response.body?.cancel();
      this.#authorization = await this.#answer(
        parseChallenge(response.headers.get("www-authenticate") ?? ""),
      );
      response = await this.#request(url, method, { accept });
    }
    if (response.ok) return response;
    await response.body?.cancel();
    throw this.#rejection(response.status);
  }

  async #answer(challenge: RegistryChallenge | undefined): Promise<string> {
    const credentials = this.#credentials;
    if (challenge?.scheme === "bearer") return `Bearer ${await this.#token(challenge)}`;
    if (challenge?.scheme === "basic" && credentials !== undefined) return basicAuthorization(credentials);
    throw this.#rejection(401);
  }

  /** Gets a token from the token server that the registry names; without credentials, a token for public images. */
  async #token(challenge: RegistryChallenge & { scheme: "bearer" }): Promise<string> {
    const realm = URL.parse(challenge.realm);
    // A remote registry must not make svc send requests within this host, or a password unencrypted.
    const isSafe =
      realm?.protocol === "https:" ||
      (realm?.protocol === "http:" && isLoopbackHost(realm.host) && isLoopbackHost(this.#image.host)) ||
      (realm?.protocol === "http:" && realm.origin === this.#origin);
    if (realm === null || !isSafe) throw this.#unexpected("names an unsafe token server");
    if (challenge.service !== "") realm.searchParams.set("service", challenge.service);
    // Not the registry's scope: the token is for reading this image only.
    realm.searchParams.set("scope", `repository:${this.#image.repository}:pull`);
    const credentials = this.#credentials;
    const headers = credentials === undefined ? {} : { authorization: basicAuthorization(credentials) };
    const isOwn = realm.origin === this.#origin;
    const response = await this.#fetch(realm, { method: "GET", headers }, isOwn);
    if (response.status >= 300 && response.status < 400)
      throw this.#unexpected("redirects its token requests");
    if (!response.ok) {
      await response.body?.cancel();
      throw this.#rejection(response.status);
    }
    const answer = parseJson(await readBounded(response, maxTokenBytes)) as Record<string, unknown>;
    const token = answer["token"] ?? answer["access_token"];
    if (typeof token !== "string" || !/^[\x21-\x7e]+$/.test(token))
      throw this.#unexpected("returned no token");
    return token;
  }

  /** Follows redirects itself: the authorization is sent only to the registry, and never unencrypted. */
  async #request(url: string, method: string, headers: Record<string, string>): Promise<Response> {
    let target = new URL(url);
    for (let hop = 0; hop <= maxRedirects; hop++) {
      const isOwn = target.origin === this.#origin;
      if (!isOwn && target.protocol !== "https:") throw this.#unexpected("redirects to an unsafe URL");
      const authorization = isOwn ? this.#authorization : undefined;
      const init = { method, headers: { ...headers, ...(authorization !== undefined && { authorization }) } };
      const response = await this.#fetch(target, init, isOwn);
      const location = response.headers.get("location");
      if (response.status < 300 || response.status > 399 || location === null) return response;
      await response.body?.cancel();
      target = new URL(location, target);
    }
    throw this.#unexpected(`redirects more than ${maxRedirects} times`);
  }

  /** @param isOwn whether the URL is the registry's own, which the engine may be configured to treat as insecure */
  async #fetch(
    target: URL,
    init: { method: string; headers: Record<string, string> },
    isOwn: boolean,
  ): Promise<Response> {
    const signal = this.#signal;
    if (!isOwn || !this.#isInsecure || target.protocol === "http:") {
      return fetch(target, { ...init, redirect: "manual", signal });
    }
    try {
      return await unverifiedFetch(target, { ...init, signal });
    } catch (error) {
      // Like the engine, fall back to plain HTTP for a server without TLS, as long as no credentials were sent.
      if (signal.aborted || this.#authorization !== undefined) throw error;
      this.#origin = this.#origin.replace(/^https:/, "http:");
      const clear = new URL(`${this.#origin}${target.pathname}${target.search}`);
      return fetch(clear, { ...init, redirect: "manual", signal });
    }
  }

  #rejection(status: number): SvcError {
    const { host } = this.#image;
    if (status === 404) {
      return notFound("image", this.#name, `the registry has no image ${this.#name}`);
    }
    if (status === 401 || status === 403) {
      const who =
        this.#credentials === undefined
          ? "requires credentials for"
          : "does not allow these credentials to read";
      return new SvcError("denied", `the registry ${host} ${who} ${this.#image.repository}`);
    }
    return this.#unexpected(
      status === 429 ? "is rate-limiting requests; try again later" : `responded with status ${status}`,
    );
  }

  #unexpected(what: string): SvcError {
    return new SvcError("unavailable", `the registry ${this.#image.host} ${what}`);
  }
}

/** The manifest refers to the image's configuration. */
function configOf(manifest: Buffer): { configDigest?: string } {
  const { config } = parseJson(manifest) as { config?: { digest?: string } };
  return config?.digest === undefined ? {} : { configDigest: config.digest };
}

/** Parsing blocks the event loop, so the structure is limited. */
function parseJson(bytes: Buffer): unknown {
  const json = bytes.toString();
  if (hasMoreStructure(json, maxStructure))
    throw new Error(`a response with more than ${maxStructure} brackets, commas, colons and quotes`);
  return JSON.parse(json);
}

function contentType(response: Response): string {
  return (response.headers.get("content-type") ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
}

async function readBounded(response: Response, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  const body: AsyncIterable<Uint8Array> | null = response.body;
  for await (const chunk of body ?? []) {
    sizeBytes += chunk.length;
    if (sizeBytes > maxBytes) throw new Error(`a response of more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
