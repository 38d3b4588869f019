/** Manifests that svc reads in a registry before the engine pulls an image for a regular user. */
import test from "ava";
import type { DockerEngine } from "../../src/engine/engine.ts";
import { findAmbiguousKey } from "../../src/lib/json.ts";
import { confirmImage, readOffer, type OfferedImage } from "../../src/runtimes/docker/offered-image.ts";
import { errorOf } from "../support/errors.ts";
import {
  configType,
  indexType,
  layerOf,
  manifestOf,
  manifestType,
  startOfferingRegistry,
  type OfferingRegistry,
} from "./support/offering-registry.ts";

const engine = {
  operate: (_what: string, work: (docker: undefined, signal: AbortSignal) => Promise<unknown>) =>
    work(undefined, new AbortController().signal),
} as unknown as Pick<DockerEngine, "operate">;

function read(registry: OfferingRegistry, architecture = "amd64"): Promise<OfferedImage> {
  const platform = { os: "linux", architecture };
  return readOffer(engine, `${registry.host}/app:1`, { platform, transport: { isInsecure: true } });
}

const mib = 2 ** 20;

for (const [what, fields, refused] of [
  ["127 layers", () => ({ layers: Array.from({ length: 127 }, (_, at) => layerOf(`${at}`)) }), undefined],
  [
    "128 layers",
    () => ({ layers: Array.from({ length: 128 }, (_, at) => layerOf(`${at}`)) }),
    /has 128 layers, more than 127/,
  ],
  [
    "a layer from another server",
    () => ({ layers: [layerOf("layer", { urls: ["https://example.org/layer"] })] }),
    /from another server/,
  ],
  [
    "a non-distributable layer without an address",
    () => ({
      layers: [layerOf("layer", { mediaType: "application/vnd.docker.image.rootfs.foreign.diff.tar" })],
    }),
    /has a layer of type "application\/vnd\.docker\.image\.rootfs\.foreign/,
  ],
  ["a negative size", () => ({ layers: [layerOf("layer", { size: -1 })] }), /the size -1/],
  ["a size that is not a number", () => ({ layers: [layerOf("layer", { size: "1" })] }), /the size "1"/],
  [
    "a digest that is not one",
    () => ({ layers: [layerOf("layer", { digest: "../a" })] }),
    /the digest "..\/a"/,
  ],
  [
    "a large configuration",
    (registry: OfferingRegistry) => {
      const size = mib + 1;
      return { config: { mediaType: configType, digest: registry.blob("app", " ".repeat(size)), size } };
    },
    /has a configuration of 1048577 bytes, more than 1048576/,
  ],
  [
    "a configuration that is larger than declared",
    (registry: OfferingRegistry) => ({
      config: { mediaType: configType, digest: registry.blob("app", " ".repeat(mib + 1)), size: 2 },
    }),
    /has a configuration of more than 1048576 bytes/,
  ],
  [
    "a configuration of another kind",
    () => ({ config: { ...layerOf("config"), mediaType: "application/vnd.docker.plugin.v1+json" } }),
    /has a configuration of type "application\/vnd\.docker\.plugin/,
  ],
  ["a manifest of the first version", () => ({ schemaVersion: 1 }), /a format that svc does not read/],
  ["manifests and layers", () => ({ manifests: [] }), /does not read|not for linux\/amd64/],
  ["layers in another spelling", () => ({ Layers: [layerOf("other")] }), /ambiguous field "Layers"/],
  [
    "annotations of any size",
    () => ({ annotations: { a: "a".repeat(128 * 1024) } }),
    /more than 131072 bytes/,
  ],
] as const) {
  const verb = refused === undefined ? "may be" : "is not";
  test(`an image with ${what} ${verb} pulled for a regular user`, async (t) => {
    await using registry = await startOfferingRegistry();
    const digest = registry.offer("app", "1", manifestOf(registry, "app", fields(registry)));
    if (refused === undefined) {
      t.is((await read(registry)).digest, digest);
      return;
    }
    const { message } = await errorOf(read(registry));
    t.regex(message, refused);
  });
}

test("the size of an image includes its configuration, and each layer once", async (t) => {
  await using registry = await startOfferingRegistry();
  const layers = [layerOf("12345"), layerOf("123"), layerOf("12345")];
  registry.offer("app", "1", manifestOf(registry, "app", { layers }));
  t.is((await read(registry)).downloadBytes, 5 + 3 + 2);
});

interface Entry {
  readonly platform?: object;
  readonly mediaType?: string;
  readonly layers: readonly object[];
}

/** Offers an index; each entry is an image with these layers. */
function offerIndex(registry: OfferingRegistry, entries: readonly Entry[]): string {
  const manifests = entries.map(({ platform, layers, mediaType = manifestType }) => {
    const manifest = manifestOf(registry, "app", { layers });
    const digest = registry.offer("app", "", manifest);
    return { mediaType, digest, size: manifest.length, ...(platform !== undefined && { platform }) };
  });
  const index = JSON.stringify({ schemaVersion: 2, mediaType: indexType, manifests });
  return registry.offer("app", "1", index, indexType);
}

const amd64 = { os: "linux", architecture: "amd64" };
const few = [layerOf("few")];
const many = Array.from({ length: 128 }, (_, at) => layerOf(`${at}`));

for (const [what, entries, isPulled] of [
  ["its own platform", [{ platform: amd64, layers: many }], false],
  [
    "other platforms only",
    [
      { platform: amd64, layers: few },
      { platform: { os: "linux", architecture: "s390x" }, layers: many },
      { platform: { os: "windows", architecture: "amd64" }, layers: many },
      { platform: { os: "unknown", architecture: "unknown" }, layers: many },
    ],
    true,
  ],
  ["no platform", [{ platform: amd64, layers: few }, { layers: many }], false],
  [
    "an empty platform",
    [
      { platform: amd64, layers: few },
      { platform: {}, layers: many },
    ],
    false,
  ],
  [
    "its platform in another spelling",
    [
      { platform: amd64, layers: few },
      { platform: { os: "Linux", architecture: "X86_64" }, layers: many },
    ],
    false,
  ],
  [
    "its platform's variant",
    [
      { platform: amd64, layers: few },
      { platform: { ...amd64, variant: "v3" }, layers: many },
    ],
    false,
  ],
  [
    "the platform that the engine falls back to",
    [
      { platform: { ...amd64, variant: "v3" }, layers: few },
      { platform: { os: "linux", architecture: "386" }, layers: many },
    ],
    false,
  ],
  [
    "a platform that the engine does not need",
    [
      { platform: amd64, layers: few },
      { platform: { os: "linux", architecture: "386" }, layers: many },
    ],
    true,
  ],
] as const) {
  const verb = isPulled ? "may be" : "is not";
  test(`an index whose entry for ${what} has too many layers ${verb} pulled`, async (t) => {
    await using registry = await startOfferingRegistry();
    const digest = offerIndex(registry, entries);
    if (isPulled) t.is((await read(registry)).digest, digest);
    else t.regex((await errorOf(read(registry))).message, /has 128 layers/);
  });
}

test("an index is not pulled if it contains an index, or too many manifests", async (t) => {
  await using registry = await startOfferingRegistry();
  offerIndex(registry, [{ platform: amd64, layers: few, mediaType: indexType }]);
  t.regex((await errorOf(read(registry))).message, /an entry of type "application\/vnd\.oci\.image\.index/);
  offerIndex(
    registry,
    Array.from({ length: 17 }, (_, at) => ({ platform: amd64, layers: [layerOf(`${at}`)] })),
  );
  t.regex((await errorOf(read(registry))).message, /has 17 manifests for this platform, more than 16/);
});

test("an index without this platform is not found", async (t) => {
  await using registry = await startOfferingRegistry();
  offerIndex(registry, [{ platform: amd64, layers: few }]);
  const error = await t.throwsAsync(read(registry, "riscv64"), { message: /but not for linux\/riscv64/ });
  t.like(error, { code: "not_found" });
});

test("a digest is confirmed with one request, which the registry's download limit does not count", async (t) => {
  await using registry = await startOfferingRegistry();
  const digest = registry.offer("app", "1", manifestOf(registry, "app"));
  const confirm = (name: string): Promise<string> =>
    confirmImage(engine, `${registry.host}/${name}`, { transport: { isInsecure: true } });
  t.is(await confirm("app:1"), digest);
  t.is(await confirm(`app@${digest}`), digest);
  t.deepEqual(registry.asked, ["HEAD /v2/app/manifests/1", `HEAD /v2/app/manifests/${digest}`]);
  t.regex((await errorOf(confirm("app:2"))).message, /no such image that you may read/);
});

for (const [json, found] of [
  ['{"size": 1, "digest": "size"}', undefined],
  ['[{"size": 1}, {"size": 2}]', undefined],
  ['{"a": {"b": 1}, "b": 2}', undefined],
  ['{"size": 1, "size": 2}', "size"],
  ['{"a": {}, "\\u0061": 1}', "a"],
  ['{"Size": 1}', "Size"],
  ['{"urlſ": []}', "urlſ"],
  ['{"a": 1, "A" : 2}', "A"],
  ['{"\\"}{": 1, "size": 2}', undefined],
] as const) {
  test(`parsers ${found === undefined ? "agree" : "disagree"} about ${json}`, (t) => {
    t.is(findAmbiguousKey(json, ["size", "digest", "urls"]), found);
  });
}
