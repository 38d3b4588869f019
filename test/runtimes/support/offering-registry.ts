/** A registry that serves any bytes as manifests and blobs, also ones that a real registry rejects. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export const manifestType = "application/vnd.oci.image.manifest.v1+json";
export const indexType = "application/vnd.oci.image.index.v1+json";
export const configType = "application/vnd.oci.image.config.v1+json";
export const layerType = "application/vnd.oci.image.layer.v1.tar";

export interface OfferingRegistry extends AsyncDisposable {
  readonly host: string;
  /** Method and path of each request. */
  readonly asked: string[];
  /** Serves a manifest under its digest, and under `tag` unless it is empty; returns the digest. */
  offer(repository: string, tag: string, manifest: string, type?: string): string;
  /** Serves a blob; returns its digest. */
  blob(repository: string, bytes: string): string;
}

export async function startOfferingRegistry(): Promise<OfferingRegistry> {
  const asked: string[] = [];
  const served = new Map<string, { readonly bytes: string; readonly type: string }>();
  const server = createServer(({ method = "", url = "" }, response) => {
    asked.push(`${method} ${url}`);
    const found = served.get(url);
    if (found === undefined) {
      response.writeHead(404).end();
      return;
    }
    const { bytes, type } = found;
    response.writeHead(200, { "content-type": type, "docker-content-digest": digestOf(bytes) });
    response.end(method === "HEAD" ? undefined : bytes);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    offer: (repository, tag, bytes, type = manifestType) => {
      const digest = digestOf(bytes);
      for (const name of [tag, digest]) served.set(`/v2/${repository}/manifests/${name}`, { bytes, type });
      return digest;
    },
    blob: (repository, bytes) => {
      const digest = digestOf(bytes);
      served.set(`/v2/${repository}/blobs/${digest}`, { bytes, type: "application/octet-stream" });
      return digest;
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** A manifest with an empty configuration, changed by `fields`. */
export function manifestOf(
  registry: OfferingRegistry,
  repository: string,
  fields: Readonly<Record<string, unknown>> = {},
): string {
  const config = { mediaType: configType, digest: registry.blob(repository, "{}"), size: 2 };
  return JSON.stringify({
    ...{ schemaVersion: 2, mediaType: manifestType, config, layers: [layerOf("layer")] },
    ...fields,
  });
}

/** A layer's descriptor, changed by `fields`. */
export function layerOf(content: string, fields: Readonly<Record<string, unknown>> = {}): object {
  return { mediaType: layerType, digest: digestOf(content), size: content.length, ...fields };
}

function digestOf(bytes: string): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}
