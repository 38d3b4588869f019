/** Sends requests to registries as the engine does: its proxy, its mirrors, its and the system's certificates. */
import { readdir, readFile } from "node:fs/promises";
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { join } from "node:path";
import { Readable } from "node:stream";
import { getCACertificates } from "node:tls";
import { isLoopbackHost } from "./image-reference.ts";
import { isInsecureRegistry, type RegistryConfig } from "./registry-security.ts";

export interface RegistryTransport {
  /** Accepts any certificate, and falls back to plain HTTP for a registry without TLS. */
  readonly isInsecure?: boolean;
  /** URLs of servers with the same images. svc tries them first, without credentials. */
  readonly mirrors?: readonly string[];
  /** Proxies, by the names of their environment variables. */
  readonly proxies?: Readonly<Partial<Record<"HTTP_PROXY" | "HTTPS_PROXY" | "NO_PROXY", string>>>;
  /** The directory with the certificates of the registry's authorities, `*.crt`. */
  readonly certificatesDir?: string;
}

/** Fields of `GET /info`; engines omit empty fields or set them to null. */
export interface EngineNetwork {
  readonly RegistryConfig?: RegistryConfig | null;
  /** Passwords are masked. */
  readonly HttpProxy?: string;
  readonly HttpsProxy?: string;
  readonly NoProxy?: string;
}

export interface RegistryRequest {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

const maxCertificateBytes = 1024 * 1024;
/** Errors of a certificate that none of Node's own authorities signed. */
const unknownAuthority =
  /^(?:UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER_CERT(?:_LOCALLY)?|(?:DEPTH_ZERO_SELF_SIGNED|SELF_SIGNED)_CERT(?:_IN_CHAIN)?)$/;

/** @param host with its port, as in image names */
export async function transportFor(
  host: string,
  engine: EngineNetwork,
  certificatesDir = "/etc/docker/certs.d",
): Promise<RegistryTransport> {
  const { RegistryConfig, HttpProxy, HttpsProxy, NoProxy } = engine;
  const config = RegistryConfig ?? {};
  const proxies = {
    ...(HttpProxy && { HTTP_PROXY: HttpProxy }),
    ...(HttpsProxy && { HTTPS_PROXY: HttpsProxy }),
    ...(NoProxy && { NO_PROXY: NoProxy }),
  };
  return {
    isInsecure: await isInsecureRegistry(host, config),
    mirrors: config.IndexConfigs?.[host]?.Mirrors ?? [],
    certificatesDir: join(certificatesDir, host),
    ...(isLoopbackHost(host) ? {} : { proxies }),
  };
}

/** Does not follow redirects. @param isUnverified accepts any certificate */
export async function sendRequest(
  url: URL,
  request: RegistryRequest,
  { proxies, certificatesDir }: RegistryTransport,
  isUnverified = false,
): Promise<Response> {
  const send = (tls: object): Promise<Response> => sendOnce(url, request, { ...tls, proxyEnv: proxies });
  if (isUnverified) return send({ rejectUnauthorized: false });
  try {
    return await send({});
  } catch (error) {
    if (!unknownAuthority.test((error as NodeJS.ErrnoException).code ?? "")) throw error;
    return send({ ca: await authorities(certificatesDir) });
  }
}

function sendOnce(url: URL, options: RegistryRequest, agentOptions: object): Promise<Response> {
  const { promise, resolve, reject } = Promise.withResolvers<Response>();
  const isSecure = url.protocol === "https:";
  const agent = isSecure ? new HttpsAgent(agentOptions) : new HttpAgent(agentOptions);
  const start = isSecure ? httpsRequest : httpRequest;
  start(url, { ...options, headers: { ...options.headers }, agent }, (message) => {
    try {
      resolve(responseOf(message, options.method === "HEAD"));
    } catch (error) {
      // A status that the standard does not have.
      message.destroy();
      reject(error);
    }
  })
    .on("error", reject)
    .end();
  return promise;
}

/** @throws Error for a status that `Response` rejects */
function responseOf(message: IncomingMessage, isHead: boolean): Response {
  const { statusCode: status = 502, headers } = message;
  const pairs = Object.entries(headers).flatMap(([name, value]) =>
    [value ?? []].flat().map((text): [string, string] => [name, text]),
  );
  const isEmpty = isHead || [204, 205, 304].includes(status);
  if (isEmpty) message.resume();
  const body = isEmpty ? null : (Readable.toWeb(message) as ReadableStream<Uint8Array>);
  return new Response(body, { status, headers: pairs });
}

/** The engine trusts the system's authorities and those of the registry's directory. */
async function authorities(dir: string | undefined): Promise<string[]> {
  const own: string[] = [];
  for (const name of dir === undefined ? [] : await readdir(dir).catch(() => [])) {
    if (!name.endsWith(".crt")) continue;
    const text = await readFile(join(dir ?? "", name), "utf8");
    if (text.length <= maxCertificateBytes) own.push(text);
  }
  return [...getCACertificates("default"), ...getCACertificates("system"), ...own];
}
