/** Requests to one repository of a registry (OCI distribution specification). */
import { maxStructure, SvcError, notFound } from "../errors.ts";
import { hasMoreStructure } from "../lib/json.ts";
import { formatImageReference, isLoopbackHost, type ImageReference } from "./image-reference.ts";
import { sendRequest, type RegistryTransport } from "./registry-transport.ts";
import {
  basicAuthorization,
  parseChallenge,
  type RegistryChallenge,
  type RegistryCredentials,
} from "./registry-auth.ts";

export interface RegistryAccess {
  /** Default: as an engine without any configuration. */
  transport?: RegistryTransport;
  /** Credentials for the registry. */
  credentials?: RegistryCredentials | undefined;
}

const maxTokenBytes = 256 * 1024;
const maxRedirects = 3;
export const indexTypes: readonly string[] = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
];
export const manifestTypes: readonly string[] = [
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
];

/** Requests about one image; the authorization is reused. */
export class RegistryRequests {
  readonly #image: ImageReference;
  readonly #name: string;
  readonly #transport: RegistryTransport;
  readonly #isInsecure: boolean;
  #origin: string;
  readonly #credentials: RegistryCredentials | undefined;
  readonly #signal: AbortSignal;
  #authorization: string | undefined;

  /** @param mirror URL of a mirror, which gets no credentials; default: the registry itself */
  constructor(
    image: ImageReference,
    { credentials, transport = {} }: RegistryAccess,
    signal: AbortSignal,
    mirror?: string,
  ) {
    this.#image = image;
    this.#name = formatImageReference(image);
    // The host of Docker's registry differs from the host in its image names.
    const host = image.host === "docker.io" ? "registry-1.docker.io" : image.host;
    // Over loopback, plain HTTP is as secure as TLS, and most local registries offer nothing else.
    const scheme = isLoopbackHost(image.host) ? "http" : "https";
    this.#origin = mirror === undefined ? `${scheme}://${host}` : new URL(mirror).origin;
    this.#transport = transport;
    this.#isInsecure = transport.isInsecure ?? isLoopbackHost(image.host);
    this.#credentials = mirror === undefined ? credentials : undefined;
    this.#signal = signal;
  }

  /** A manifest or index by its tag or digest. @throws SvcError `not_found`, `denied`, `unavailable` */
  manifest(method: "HEAD" | "GET", reference: string): Promise<Response> {
    return this.#authorized(method, `manifests/${reference}`, [...indexTypes, ...manifestTypes].join(", "));
  }

  /** A configuration or layer. @throws SvcError as {@link manifest} */
  blob(digest: string): Promise<Response> {
    return this.#authorized("GET", `blobs/${digest}`, "*/*");
  }

  async #authorized(method: "HEAD" | "GET", path: string, accept: string): Promise<Response> {
    const send = (): Promise<Response> =>
      this.#request(`${this.#origin}/v2/${this.#image.repository}/${path}`, method, { accept });
    let response = await send();
    if (response.status === 401 && this.#authorization === undefined) {
      await response.body?.cancel();
      this.#authorization = await this.#answer(
        parseChallenge(response.headers.get("www-authenticate") ?? ""),
      );
      response = await send();
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
    if (realm === null || !isSafe) throw this.unexpected("names an unsafe token server");
    if (challenge.service !== "") realm.searchParams.set("service", challenge.service);
    // The challenge's scope could ask for more than reading this image, so it is ignored.
    realm.searchParams.set("scope", `repository:${this.#image.repository}:pull`);
    const credentials = this.#credentials;
    const headers = credentials === undefined ? {} : { authorization: basicAuthorization(credentials) };
    const isOwn = realm.origin === this.#origin;
    const response = await this.#fetch(realm, { method: "GET", headers }, isOwn);
    if (response.status >= 300 && response.status < 400)
      throw this.unexpected("redirects its token requests");
    if (!response.ok) {
      await response.body?.cancel();
      throw this.#rejection(response.status);
    }
    const answer = parseJson(await readBounded(response, maxTokenBytes)) as Record<string, unknown>;
    const token = answer["token"] ?? answer["access_token"];
    if (typeof token !== "string" || !/^[\x21-\x7e]+$/.test(token))
      throw this.unexpected("returned no token");
    return token;
  }

  /** Follows redirects itself: the authorization is sent only to the registry, and never unencrypted. */
  async #request(url: string, method: string, headers: Record<string, string>): Promise<Response> {
    let target = new URL(url);
    for (let hop = 0; hop <= maxRedirects; hop++) {
      const isOwn = target.origin === this.#origin;
      if (!isOwn && target.protocol !== "https:") throw this.unexpected("redirects to an unsafe URL");
      const authorization = isOwn ? this.#authorization : undefined;
      const init = { method, headers: { ...headers, ...(authorization !== undefined && { authorization }) } };
      const response = await this.#fetch(target, init, isOwn);
      const location = response.headers.get("location");
      if (response.status < 300 || response.status > 399 || location === null) return response;
      await response.body?.cancel();
      target = new URL(location, target);
    }
    throw this.unexpected(`redirects more than ${maxRedirects} times`);
  }

  /** @param isOwn whether the URL is the registry's own, which the engine may be configured to treat as insecure */
  async #fetch(
    target: URL,
    init: { method: string; headers: Record<string, string> },
    isOwn: boolean,
  ): Promise<Response> {
    const signal = this.#signal;
    const transport = this.#transport;
    if (!isOwn || !this.#isInsecure || target.protocol === "http:")
      return sendRequest(target, { ...init, signal }, transport);
    try {
      return await sendRequest(target, { ...init, signal }, transport, true);
    } catch (error) {
      // Like the engine, fall back to plain HTTP for a server without TLS, as long as no credentials were sent.
      if (signal.aborted || this.#authorization !== undefined) throw error;
      this.#origin = this.#origin.replace(/^https:/, "http:");
      const clear = new URL(`${this.#origin}${target.pathname}${target.search}`);
      return sendRequest(clear, { ...init, signal }, transport);
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
    return this.unexpected(
      status === 429 ? "is rate-limiting requests; try again later" : `responded with status ${status}`,
    );
  }

  /** An error about the registry. @param what completes "the registry …" */
  unexpected(what: string): SvcError {
    return new SvcError("unavailable", `the registry ${this.#image.host} ${what}`);
  }
}

/** Parsing blocks the event loop, so the structure is limited. */
export function parseJson(bytes: Buffer): unknown {
  const json = bytes.toString();
  if (hasMoreStructure(json, maxStructure))
    throw new Error(`a response with more than ${maxStructure} brackets, commas, colons and quotes`);
  return JSON.parse(json);
}

export function contentType(response: Response): string {
  return (response.headers.get("content-type") ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
}

/** @param tooLong the error for a body above the limit */
export async function readBounded(
  response: Response,
  maxBytes: number,
  tooLong = (): Error => new Error(`a response of more than ${maxBytes} bytes`),
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  const body: AsyncIterable<Uint8Array> | null = response.body;
  for await (const chunk of body ?? []) {
    sizeBytes += chunk.length;
    if (sizeBytes > maxBytes) throw tooLong();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
