/** The local images that apps of regular users may use. */
import test from "ava";
import type { EngineListener } from "../../src/engine/events.ts";
import { UserImages } from "../../src/runtimes/docker/user-images.ts";
import { migrations } from "../../src/store/migrations.ts";
import type { Store } from "../../src/store/store.ts";
import { openStore, temporaryDir, temporaryStore } from "../store/support/temporary-store.ts";

const uid = 1000;

function imagesOver(store: Store, options: Partial<ConstructorParameters<typeof UserImages>[0]> = {}) {
  const listeners: EngineListener[] = [];
  const images = new UserImages({
    ...{ store, selfUid: 0, shared: [], needs: async () => new Map(), now: Date.now },
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
