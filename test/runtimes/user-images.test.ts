/** The local images that apps of regular users may use, and pulled images that cannot be read. */
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import test, { type ExecutionContext } from "ava";
import type { EngineListener } from "../../src/engine/events.ts";
import { SvcError, notFound } from "../../src/errors.ts";
import { AppImages, type AppImagesOptions } from "../../src/runtimes/docker/app-images.ts";
import { UserImages } from "../../src/runtimes/docker/user-images.ts";
import { migrations } from "../../src/store/migrations.ts";
import type { Store } from "../../src/store/store.ts";
import { openStore, temporaryDir, temporaryStore } from "../store/support/temporary-store.ts";
import { errorOf } from "../support/errors.ts";
import { manifestOf, startOfferingRegistry, type OfferingRegistry } from "./support/offering-registry.ts";

// The local images that apps of regular users may use.

const uid = 1000;

function imagesOver(store: Store, options: Partial<ConstructorParameters<typeof UserImages>[0]> = {}) {
  const listeners: EngineListener[] = [];
  const images = new UserImages({
    ...{ store, selfUid: 0, shared: [], registries: ["*"], needs: async () => new Map(), now: Date.now },
    events: {
      listen: (listener) => {
        listeners.push(listener);
        return { [Symbol.dispose]: () => undefined };
      },
    },
    ...options,
  });
  const allows = (reference: string, id: string, owner = uid): Promise<boolean> =>
    images.allows(owner, reference, id, async () => undefined);
  return { images, allows, listeners };
}

test("a recorded image counts under its name, its ID and only for its user", async (t) => {
  await using temporary = await temporaryStore();
  const { images, allows } = imagesOver(temporary.store);
  await images.record(uid, "nginx", "sha256:1");
  t.true(await allows("docker.io/library/nginx:latest", "sha256:1"));
  t.false(await allows("nginx", "sha256:2"));
  t.false(await allows("nginx:1", "sha256:1"));
  t.false(await allows("nginx", "sha256:1", 1001));
  t.true(await allows("nginx", "sha256:2", 0), "root is not restricted");
});

test("a user's own daemon does not restrict that user", async (t) => {
  await using temporary = await temporaryStore();
  const { allows } = imagesOver(temporary.store, { selfUid: uid });
  t.true(await allows("nginx", "sha256:1"));
});

for (const [pattern, reference, isShared] of [
  ["nginx", "nginx:latest", true],
  ["nginx", "nginx:1", false],
  ["nginx:*", "docker.io/library/nginx:1", true],
  ["nginx:*", "nginx-private:1", false],
  ["team/*", "team/web:1", true],
  ["team/*", "registry.example/team/web:1", false],
  ["registry.example:5000/*", "registry.example:5000/a/b@sha256:".padEnd(97, "0"), true],
  ["*", "registry.example/a:1", true],
] as const) {
  test(`the shared images ${pattern} ${isShared ? "" : "do not "}include ${reference}`, async (t) => {
    await using temporary = await temporaryStore();
    const { allows } = imagesOver(temporary.store, { shared: [pattern] });
    t.is(await allows(reference, "sha256:1"), isShared);
  });
}

for (const [entry, reference, isListed] of [
  ["docker.io", "nginx", true],
  ["docker.io", "index.docker.io/library/nginx:1", true],
  ["docker.io", "evil.docker.io/nginx", false],
  ["docker.io", "docker.io:5000/nginx", false],
  ["*.pkg.dev", "europe-docker.pkg.dev/a/b", true],
  ["*.pkg.dev", "pkg.dev/a", false],
  ["*.pkg.dev", "evilpkg.dev/a", false],
  ["*.pkg.dev", "europe-docker.pkg.dev.evil.example/a", false],
  ["registry.lan:5000", "registry.lan:5000/a", true],
  ["registry.lan:5000", "registry.lan/a", false],
  ["*", "127.0.0.1:5000/a", true],
] as const) {
  test(`the list ["${entry}"] ${isListed ? "includes" : "does not include"} the registry of ${reference}`, async (t) => {
    await using temporary = await temporaryStore();
    const { images } = imagesOver(temporary.store, { registries: [entry] });
    t.notThrows(() => images.requireRegistry(0, reference));
    if (isListed) t.notThrows(() => images.requireRegistry(uid, reference));
    else t.throws(() => images.requireRegistry(uid, reference), { message: /users_registries/ });
  });
}

test("an image that the engine has deleted must be confirmed again", async (t) => {
  await using temporary = await temporaryStore();
  const { images, allows, listeners } = imagesOver(temporary.store);
  await images.record(uid, "nginx", "sha256:1");
  await images.record(uid, "redis", "sha256:2");
  const event = { type: "image", action: "delete", id: "sha256:1", attributes: {}, timeMs: 0 };
  for (const listener of listeners) listener.onEvent?.(event);
  // Writes are done in order.
  await images.record(uid, "redis", "sha256:2");
  t.false(await allows("nginx", "sha256:1"));
  t.true(await allows("redis", "sha256:2"));
});

test("each user has a bounded number of records, and the newest ones stay", async (t) => {
  await using temporary = await temporaryStore();
  let now = 0;
  const { images, allows } = imagesOver(temporary.store, { now: () => ++now });
  await images.record(1001, "nginx", "sha256:0");
  for (let id = 0; id < 1_001; id++) await images.record(uid, "nginx", `sha256:${id}`);
  t.false(await allows("nginx", "sha256:0"));
  t.true(await allows("nginx", "sha256:1"));
  t.true(await allows("nginx", "sha256:0", 1001));
});

test("the upgrade of the database marks the apps of users, whose images are recorded once", async (t) => {
  await using dir = await temporaryDir();
  const before = migrations.findIndex((sql) => sql.includes("CREATE TABLE user_images"));
  {
    await using old = await openStore({ dir: dir.path, migrations: migrations.slice(0, before) });
    for (const [id, owner] of [
      ["web", uid],
      ["gone", uid],
      ["own", 0],
    ] as const) {
      const sql = `INSERT INTO apps (id, owner_uid, name, runtime, package_id, record, state, created_at, updated_at)
                   VALUES (?, ?, ?, 'docker', ?, '{}', 'STOPPED', 0, 0)`;
      await old.write([{ sql, params: [id, owner, id, id] }]);
    }
  }
  await using store = await openStore({ dir: dir.path });
  await store.write([{ sql: "DELETE FROM apps WHERE id = 'gone'", params: [] }]);
  const needs = new Map([
    ["web", { images: ["nginx:1"] }],
    ["gone", { images: ["secret:1"] }],
    ["own", { images: ["secret:2"] }],
    ["later", { images: ["secret:3"] }],
  ]);
  const { images } = imagesOver(store, { needs: async () => needs });
  const find = async (reference: string): Promise<string> => `id of ${reference}`;
  t.true(await images.allows(uid, "nginx:1", "id of nginx:1", find));
  for (const secret of ["secret:1", "secret:2", "secret:3"])
    t.false(await images.allows(uid, secret, `id of ${secret}`, find), secret);
  needs.set("web", { images: ["secret:4"] });
  t.false(await images.allows(uid, "secret:4", "id of secret:4", find), "only once");
});

// Images that svc pulled for a regular user and cannot read.

const puller = 65_534;
const before = { Id: "before", RepoTags: [], RepoDigests: [], Config: {} };

/** A registry with one image, and an engine that can pull it and cannot inspect it. */
class FakeEngine implements AsyncDisposable {
  readonly names = new Map<string, string>();
  readonly recorded: string[] = [];
  /** Paths of requests to the registry. */
  readonly asked: string[] = [];
  /** How often a removal fails. */
  busy = 0;
  onPull: () => Promise<void> | void = () => undefined;
  rootDir = "/nonexistent";
  /** Ends pulls. */
  signal: AbortSignal | undefined;
  readonly #registry: OfferingRegistry;

  private constructor(registry: OfferingRegistry) {
    this.#registry = registry;
    this.asked = registry.asked;
  }

  static async start(): Promise<FakeEngine> {
    const registry = await startOfferingRegistry();
    registry.offer("app", "1", manifestOf(registry, "app"));
    return new FakeEngine(registry);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#registry[Symbol.asyncDispose]();
  }

  /** The image's name without a tag. */
  get name(): string {
    return `${this.#registry.host}/app`;
  }

  readonly #docker = {
    version: async () => ({ Os: "linux", Arch: "amd64" }),
    info: async () => ({ DockerRootDir: this.rootDir }),
    listImages: async () => [],
    getImage: (reference: string) => ({
      inspect: async () => this.#inspect(reference),
      remove: async () => this.#remove(reference),
      tag: async ({ repo, tag }: { repo: string; tag: string }) =>
        void this.names.set(`${repo}:${tag}`, reference),
    }),
    createImage: async ({ fromImage }: { fromImage: string }) => {
      this.names.set(fromImage, "new");
      await this.onPull();
      return Readable.from([]);
    },
  };

  #inspect(reference: string): object {
    const id = this.names.get(reference);
    if (id === undefined) throw notFound("image", reference);
    if (id === "new") throw new SvcError("unavailable", "an answer of more than 64 MiB");
    return before;
  }

  #remove(reference: string): void {
    if (this.busy-- > 0) throw new SvcError("unavailable", "the engine is slow");
    this.names.delete(reference);
  }

  images(): AppImages {
    const run = (
      _what: string,
      work: (docker: unknown, signal: AbortSignal) => Promise<unknown>,
      options?: { signal?: AbortSignal },
    ): Promise<unknown> => {
      this.signal = options?.signal;
      return work(this.#docker, new AbortController().signal);
    };
    const options = {
      engine: { call: run, operate: run },
      credentialsOf: async () => undefined,
      transportOf: async () => ({ isInsecure: true }),
      userImages: {
        restricts: () => true,
        requireRegistry: () => undefined,
        allows: async () => false,
        record: async (_uid: number, reference: string) => void this.recorded.push(reference),
      },
      userObjects: { requireImages: async () => undefined, requireImageSpace: async () => 16 * 2 ** 20 },
    };
    return new AppImages(options as unknown as AppImagesOptions);
  }
}

test("svc asks the registry about an image that must be local, whether or not it exists", async (t) => {
  await using withImage = await FakeEngine.start();
  await using without = await FakeEngine.start();
  withImage.names.set(`${withImage.name}:1`, "before");
  for (const engine of [withImage, without])
    t.is(await engine.images().existing(puller, `${engine.name}:1`, {}), undefined);
  t.deepEqual(without.asked, ["HEAD /v2/app/manifests/1"]);
  t.deepEqual(withImage.asked, without.asked);
});

async function pull(t: ExecutionContext, engine: FakeEngine, signal?: AbortSignal): Promise<void> {
  await errorOf(engine.images().pull(puller, `${engine.name}:1`, { signal }));
  t.deepEqual(engine.recorded, []);
}

test("a pulled image that cannot be read is removed", async (t) => {
  await using engine = await FakeEngine.start();
  await pull(t, engine);
  t.deepEqual([...engine.names], []);
});

test("a pulled image that cannot be read is removed by an engine that fails at first", async (t) => {
  await using engine = await FakeEngine.start();
  engine.busy = 2;
  await pull(t, engine);
  t.deepEqual([...engine.names], []);
});

test("a pulled image that cannot be read does not get the name of the image before", async (t) => {
  await using engine = await FakeEngine.start();
  engine.names.set(`${engine.name}:1`, "before");
  await pull(t, engine);
  t.deepEqual([...engine.names], [[`${engine.name}:1`, "before"]]);
});

test("an image that cannot be read is removed when its pull is canceled at the end", async (t) => {
  await using engine = await FakeEngine.start();
  const controller = new AbortController();
  engine.onPull = () => {
    controller.abort();
    throw new SvcError("canceled", "the client disconnected");
  };
  await pull(t, engine, controller.signal);
  t.deepEqual([...engine.names], []);
});

test("the pull of an image that unpacks to more than the user's share is canceled, and the image removed", async (t) => {
  await using dir = await temporaryDir();
  await using engine = await FakeEngine.start();
  engine.rootDir = dir.path;
  engine.onPull = async () => {
    await writeFile(join(dir.path, "layer"), Buffer.alloc(64 * 2 ** 20, 1), { flush: true });
    const signal = engine.signal ?? AbortSignal.abort();
    if (!signal.aborted) await once(signal, "abort", { signal: AbortSignal.timeout(30_000) });
    t.regex((signal.reason as Error).message, /unpacks to more than 16777216 bytes/);
    signal.throwIfAborted();
  };
  t.plan(3);
  await pull(t, engine);
  t.deepEqual([...engine.names], []);
});
