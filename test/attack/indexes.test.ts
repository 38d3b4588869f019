/** Attacks of a user who publishes images by hand in a registry that regular users may use. */
import { createHash, randomBytes } from "node:crypto";
import { join } from "node:path";
import type { ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { indexType, manifestType } from "../runtimes/support/offering-registry.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { hostArchitecture } from "../support/docker-images.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { errorOf } from "../support/errors.ts";
import { writeFiles } from "../support/packages.ts";

const attacker = 65_534;
const engineNow = sharedEngine();

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

interface Manifest {
  readonly schemaVersion: 2;
  readonly mediaType: string;
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
}

/** A repository of a real registry, filled by hand. */
class Repository {
  readonly name: string;
  readonly #url: string;

  constructor(host: string, repository: string) {
    this.name = `${host}/${repository}`;
    this.#url = `http://${host}/v2/${repository}`;
  }

  /** The manifest of an image that the engine pushed. */
  async pushed(): Promise<Manifest> {
    const tag = `${this.name}:base`;
    await engineNow().images.build(tag);
    await engineNow().images.push(tag);
    await engineNow().images.remove(tag);
    const accept = "application/vnd.docker.distribution.manifest.v2+json";
    const response = await fetch(`${this.#url}/manifests/base`, { headers: { accept } });
    return (await response.json()) as Manifest;
  }

  async blob(bytes: Buffer): Promise<string> {
    const digest = `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
    const begun = await fetch(`${this.#url}/blobs/uploads/`, { method: "POST" });
    const target = new URL(begun.headers.get("location") ?? "", this.#url);
    target.searchParams.set("digest", digest);
    const sent = await fetch(target, { method: "PUT", body: new Uint8Array(bytes) });
    if (!sent.ok) throw new Error(`the registry rejects a blob: ${await sent.text()}`);
    return digest;
  }

  /** @param name a tag, or empty for the digest; returns the manifest's descriptor */
  async put(name: string, manifest: object, mediaType: string): Promise<Descriptor> {
    const body = JSON.stringify(manifest);
    const digest = `sha256:${createHash("sha256").update(body).digest("hex")}`;
    const headers = { "content-type": mediaType };
    const sent = await fetch(`${this.#url}/manifests/${name || digest}`, { method: "PUT", headers, body });
    if (!sent.ok) throw new Error(`the registry rejects a manifest: ${await sent.text()}`);
    return { mediaType, digest, size: Buffer.byteLength(body) };
  }

  /** Publishes an index whose entry for this platform is `manifest`. */
  async publish(tag: string, manifest: Manifest): Promise<Descriptor> {
    const own = await this.put("", manifest, manifest.mediaType);
    const platform = { os: "linux", architecture: hostArchitecture };
    const index = { schemaVersion: 2, mediaType: indexType, manifests: [{ ...own, platform }] };
    return this.put(tag, index, indexType);
  }
}

async function repository(name: string): Promise<Repository> {
  return new Repository((await engineNow().registry()).host, name);
}

/** Installs an app of the attacker that runs the image. */
async function install(daemon: TestDaemon, id: string, image: string): Promise<void> {
  await using user = await daemon.as(attacker);
  const dir = join(daemon.dir, id);
  const head = `id: ${id}\nname: ${id}\nversion: "1"\nstop: { grace: 1s }\n`;
  await writeFiles(dir, { "svc.yaml": `${head}docker: { image: "${image}" }\n` });
  await user.client(AppService).installApp({ spec: dir });
}

async function requireRejected(t: ExecutionContext, image: string, reason: RegExp): Promise<void> {
  await using daemon = await startDaemon({ config: engineNow().config });
  const { code, message } = await errorOf(install(daemon, "hostile", image));
  t.is(code, "PermissionDenied", message);
  t.regex(message, reason);
  const listed = (await engineNow().request("GET", "/images/json")).expect(200) as {
    RepoTags: string[] | null;
    RepoDigests: string[] | null;
  }[];
  const names = listed.flatMap(({ RepoTags, RepoDigests }) => [...(RepoTags ?? []), ...(RepoDigests ?? [])]);
  t.deepEqual(
    names.filter((name) => name.startsWith(image.replace(/:\w+$/, ""))),
    [],
  );
}

dockerTest(`an index whose manifest has hundreds of layers is not pulled${needsDocker}`, async (t) => {
  const hostile = await repository("hostile/layers");
  const { layers, ...base } = await hostile.pushed();
  const repeated = Array.from({ length: 500 }, () => layers).flat();
  await hostile.publish("1", { ...base, layers: repeated });
  await requireRejected(t, `${hostile.name}:1`, /has 500 layers, more than 127/);
});

dockerTest(`an index whose manifest has thousands of layers is not pulled${needsDocker}`, async (t) => {
  const hostile = await repository("hostile/thousands");
  const { layers, ...base } = await hostile.pushed();
  const repeated = Array.from({ length: 5_000 }, () => layers).flat();
  await hostile.publish("1", { ...base, layers: repeated });
  await requireRejected(t, `${hostile.name}:1`, /a manifest of more than 131072 bytes/);
});

dockerTest(
  `a configuration that is larger than its manifest declares is not read${needsDocker}`,
  async (t) => {
    const hostile = await repository("hostile/configuration");
    const { config, ...base } = await hostile.pushed();
    const digest = await hostile.blob(Buffer.alloc(32 * 2 ** 20, " "));
    await hostile.publish("1", { ...base, config: { ...config, digest } });
    await requireRejected(t, `${hostile.name}:1`, /a configuration of more than 1048576 bytes/);
  },
);

dockerTest(`a layer that is larger than its manifest declares is not downloaded${needsDocker}`, async (t) => {
  const hostile = await repository("hostile/layer");
  const { layers, ...base } = await hostile.pushed();
  const digest = await hostile.blob(randomBytes(64 * 2 ** 20));
  await hostile.publish("1", { ...base, layers: layers.map((layer) => ({ ...layer, digest, size: 1_000 })) });
  await requireRejected(t, `${hostile.name}:1`, /more than the \d+ bytes that its manifest declares/);
});

dockerTest(`a layer that the engine would get from another server is not pulled${needsDocker}`, async (t) => {
  const hostile = await repository("hostile/foreign");
  const { layers, ...base } = await hostile.pushed();
  const urls = ["http://127.0.0.1:1/layer"];
  const foreign = layers.map((layer) => ({ ...layer, urls }));
  const manifest = { ...base, mediaType: manifestType, layers: foreign };
  await hostile.publish("1", manifest);
  await requireRejected(t, `${hostile.name}:1`, /from another server/);
});

dockerTest(
  `an index for this platform is pulled by tag and by digest, and runs under its name${needsDocker}`,
  async (t) => {
    const honest = await repository("honest/index");
    const { digest } = await honest.publish("1", await honest.pushed());
    await using daemon = await startDaemon({ config: engineNow().config });
    for (const [id, image] of [
      ["tagged", `${honest.name}:1`],
      ["pinned", `${honest.name}@${digest}`],
      ["both", `${honest.name}:2@${digest}`],
    ] as const) {
      await install(daemon, id, image);
      await using user = await daemon.as(attacker);
      t.is((await user.client(AppService).startApp({ id })).state, "RUNNING");
      const { localDigest, freshness } = await user.client(AppService).getAppImage({ id, checkRemote: true });
      t.is(localDigest, digest);
      t.is(freshness, "current");
      await user.client(AppService).stopApp({ id });
      await user.client(AppService).removeApp({ id });
    }
    const named = await engineNow().request("GET", `/images/${honest.name}:2/json`);
    t.is(named.status, 404, "a digest gets no tag");
  },
);

dockerTest(`an image above the user's share of disk space is not pulled${needsDocker}`, async (t) => {
  const large = await repository("hostile/large");
  const { layers, ...base } = await large.pushed();
  const size = 2 ** 40;
  await large.publish("1", { ...base, layers: layers.map((layer) => ({ ...layer, size })) });
  await using daemon = await startDaemon({ config: engineNow().config });
  const { code, message } = await errorOf(install(daemon, "large", `${large.name}:1`));
  t.is(code, "ResourceExhausted", message);
  t.regex(message, /has 109951\d+ bytes, .* max_image_bytes_per_user is 68719476736/);
});
