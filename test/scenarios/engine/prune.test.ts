/** Prunes against a real engine and builder: nothing protected or in use is removed. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import type { ExecutionContext } from "ava";
import { DiskMeter, type DiskUsage } from "../../../src/engine/disk-usage.ts";
import { DockerHost } from "../../../src/engine/docker-host.ts";
import { EngineState } from "../../../src/engine/engine-state.ts";
import { createDockerEngine } from "../../../src/engine/engine.ts";
import { EngineEvents } from "../../../src/engine/events.ts";
import { createAttribution } from "../../../src/engine/ownership.ts";
import { type EngineNeeds, Protection } from "../../../src/engine/protection.ts";
import { Pruner, type PruneRequest, type PruneResult } from "../../../src/engine/pruner.ts";
import { WatchedEngine, type EngineOperations } from "../../../src/engine/watched-engine.ts";
import { engineRequest } from "../../support/docker-request.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import type { TestEngine } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { ownershipIn } from "../../support/ownership.ts";

// Pruning against a real engine: on random hosts, nothing protected or in use is ever removed.

const shared = sharedEngine();
const ownership = ownershipIn("ours");
const rounds = 100;
const seed = 20_261;

/** The expected state of an item, chosen at its creation and independent of the code under test. */
interface Known {
  readonly name: string;
  isNamed: boolean;
  /** Belongs to an installed app by its labels, as long as the app is installed. */
  isLabelled: boolean;
  isProtected: boolean;
  users: number;
}

dockerTest(
  `${rounds} random prunes remove everything unused and nothing needed; a dry run reports the same${needsDocker}`,
  async (t) => {
    const engine = shared();
    await using world = await RandomHost.create(engine, mulberry(seed));
    for (let round = 0; round < rounds; round++) {
      await world.change();
      await world.prune(t, round);
    }
    t.log(`seed ${seed}: ${world.summary()}`);
    t.true(world.removed > rounds / 2, world.summary());
    t.true(world.skipped > rounds / 2, world.summary());
  },
);

class RandomHost implements AsyncDisposable {
  readonly #engine: TestEngine;
  readonly #random: () => number;
  readonly #tar: Buffer;
  readonly #images = new Map<string, Known>();
  readonly #volumes = new Map<string, Known>();
  readonly #containers = new Map<string, { image: string; volumes: string[] }>();
  readonly #needs = new Map<string, { images: string[]; volumes: string[] }>([
    ["app-a", { images: [], volumes: [] }],
    ["app-b", { images: [], volumes: [] }],
  ]);
  readonly #resources = new AsyncDisposableStack();
  readonly #host: DockerHost;
  #count = 0;
  removed = 0;
  skipped = 0;

  private constructor(engine: TestEngine, random: () => number, tar: Buffer) {
    this.#engine = engine;
    this.#random = random;
    this.#tar = tar;
    const plain = this.#resources.use(createDockerEngine({ socket: engine.socket }));
    const events = this.#resources.use(new EngineEvents({ engine: plain }));
    const client = new WatchedEngine(plain, events);
    const state = this.#resources.use(new EngineState({ engine: client, events }));
    const needs = this.#needs as ReadonlyMap<string, EngineNeeds>;
    const disk = new DiskMeter(client);
    this.#host = new DockerHost({
      ...{ engine: client, events, state, disk, ownership },
      apps: { revision: 1, ids: () => [...needs.keys()], engineNeeds: () => Promise.resolve(needs) },
    });
  }

  static async create(engine: TestEngine, random: () => number): Promise<RandomHost> {
    const { stdout } = await promisify(execFile)("tar", ["-c", "-C", "/etc", "hostname"], {
      encoding: "buffer",
    });
    return new RandomHost(engine, random, stdout);
  }

  summary(): string {
    return `removed ${this.removed}, passed over ${this.skipped}, ${this.#images.size} images and ${this.#volumes.size} volumes left`;
  }

  /** Items are added, a container may be removed, and sometimes the apps' needs change. */
  async change(): Promise<void> {
    for (let n = this.#pick(2); n >= 0; n--) await (this.#chance(0.5) ? this.#addImage() : this.#addVolume());
    if (this.#chance(0.3)) await this.#addContainer();
    if (this.#chance(0.3)) await this.#removeContainer();
    if (this.#chance(0.05)) this.#forgetNeeds();
  }

  #forgetNeeds(): void {
    for (const id of this.#needs.keys()) this.#needs.set(id, { images: [], volumes: [] });
    for (const known of [...this.#images.values(), ...this.#volumes.values()]) {
      known.isProtected = known.isLabelled;
    }
  }

  async prune(t: ExecutionContext, round: number): Promise<void> {
    const target = this.#chance(0.5) ? "images" : "volumes";
    const danglingOnly = this.#chance(0.5);
    const known = target === "images" ? this.#images : this.#volumes;
    const what = `round ${round}, ${target}, danglingOnly ${String(danglingOnly)}`;
    const unused = [...known].filter(([, each]) => each.users === 0 && !(danglingOnly && each.isNamed));
    const expected = unused.filter(([, each]) => !each.isProtected).map(([id]) => id);
    const kept = unused.filter(([, each]) => each.isProtected).map(([id]) => id);

    const signal = AbortSignal.timeout(60_000);
    const plan = await this.#host.prune({ target, danglingOnly, dryRun: true }, signal);
    t.deepEqual(
      await this.#present(target),
      [...known.keys()].toSorted(),
      `${what}: a dry run removes nothing`,
    );
    const done = await this.#host.prune({ target, danglingOnly, dryRun: false }, signal);

    t.deepEqual(done, plan, `${what}: the run does what the dry run reports`);
    t.deepEqual(done.removed.map(({ id }) => id).toSorted(), expected.toSorted(), what);
    t.deepEqual(done.skipped.map(({ id }) => id).toSorted(), kept.toSorted(), what);
    t.true(
      done.skipped.every(({ reason }) => /the installed app "app-[ab]" /.test(reason)),
      what,
    );
    for (const id of expected) known.delete(id);
    t.deepEqual(await this.#present(target), [...known.keys()].toSorted(), `${what}: the remaining items`);
    this.removed += expected.length;
    this.skipped += kept.length;
  }

  async #present(target: "images" | "volumes"): Promise<string[]> {
    if (target === "images") {
      const images = (await this.#engine.request("GET", "/images/json")).expect(200) as { Id: string }[];
      return images.map(({ Id }) => Id).toSorted();
    }
    const { Volumes } = (await this.#engine.request("GET", "/volumes")).expect(200) as {
      Volumes: { Name: string }[] | null;
    };
    return (Volumes ?? []).map(({ Name }) => Name).toSorted();
  }

  async #addImage(): Promise<void> {
    const n = ++this.#count;
    const isNamed = this.#chance(0.6);
    const labels = this.#chance(0.05) ? ownership.labels("image", "app-a") : {};
    const changes = Object.entries({ ...labels, n: String(n) }).map(
      ([key, value]) => `LABEL ${key}=${value}`,
    );
    const query = new URLSearchParams({ fromSrc: "-", ...(isNamed && { repo: `prune/${n}`, tag: "1" }) });
    for (const change of changes) query.append("changes", change);
    const body = Readable.from([this.#tar]);
    const answer = await engineRequest(
      this.#engine.socket,
      "POST",
      `/images/create?${query.toString()}`,
      body,
    );
    const id = /"status":"(sha256:[0-9a-f]{64})"/.exec(answer.text)?.[1];
    if (id === undefined) throw new Error(answer.text);
    const isLabelled = "svc.app" in labels;
    const known = { name: `prune/${n}:1`, isNamed, isLabelled, isProtected: isLabelled, users: 0 };
    this.#images.set(id, known);
    if (isNamed && this.#chance(0.3)) await this.#engine.images.tag(id, `prune/also-${n}:2`);
    if (!this.#chance(0.2)) return;
    const spellings = isNamed ? [id, known.name, `docker.io/${known.name}`] : [id];
    this.#needs.get(this.#someApp())?.images.push(spellings[this.#pick(spellings.length)] ?? id);
    known.isProtected = true;
  }

  async #addVolume(): Promise<void> {
    const n = ++this.#count;
    const isNamed = this.#chance(0.5);
    const roll = this.#random();
    const labels = this.#labels(roll);
    const body = { ...(isNamed && { Name: `volume-${n}` }), Labels: labels };
    const made = await this.#engine.request("POST", "/volumes/create", body);
    const { Name: name } = made.expect(201) as { Name: string };
    const isLabelled = roll < 0.2;
    const known = { name, isNamed, isLabelled, isProtected: isLabelled, users: 0 };
    this.#volumes.set(name, known);
    if (!this.#chance(0.2)) return;
    this.#needs.get(this.#someApp())?.volumes.push(name);
    known.isProtected = true;
  }

  /** Below 0.2 the item belongs to an installed app. */
  #labels(roll: number): Record<string, string> {
    if (roll < 0.2) return ownership.labels("volume", "app-b");
    if (roll < 0.25) return { "com.docker.compose.project": ownership.projectOf("app-a") };
    if (roll < 0.3) return ownershipIn("theirs").labels("volume", "app-a");
    if (roll < 0.35) return ownership.labels("image", "app-a");
    return roll < 0.4 ? ownership.labels("volume", "app-gone") : {};
  }

  async #addContainer(): Promise<void> {
    const ids = [...this.#images.keys()];
    const image = ids[this.#pick(ids.length)];
    if (image === undefined) return;
    const volumes = [...this.#volumes.keys()].filter(() => this.#chance(0.2)).slice(0, 3);
    const roll = this.#random();
    const answer = await this.#engine.request("POST", "/containers/create", {
      Image: image,
      Cmd: ["/nothing"],
      Labels: this.#labels(roll),
      HostConfig: { Mounts: volumes.map((Source, at) => ({ Type: "volume", Source, Target: `/v${at}` })) },
    });
    const { Id: id } = answer.expect(201) as { Id: string };
    this.#containers.set(id, { image, volumes });
    this.#countUsers(image, volumes, 1);
  }

  async #removeContainer(): Promise<void> {
    const ids = [...this.#containers.keys()];
    const id = ids[this.#pick(ids.length)];
    const container = id === undefined ? undefined : this.#containers.get(id);
    if (id === undefined || container === undefined) return;
    (await this.#engine.request("DELETE", `/containers/${id}`)).expect(204);
    this.#containers.delete(id);
    this.#countUsers(container.image, container.volumes, -1);
  }

  #countUsers(image: string, volumes: readonly string[], change: number): void {
    for (const known of [this.#images.get(image), ...volumes.map((name) => this.#volumes.get(name))]) {
      if (known !== undefined) known.users += change;
    }
  }

  #someApp(): string {
    return this.#chance(0.5) ? "app-a" : "app-b";
  }

  #pick(count: number): number {
    return Math.floor(this.#random() * count);
  }

  #chance(probability: number): boolean {
    return this.#random() < probability;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#resources.disposeAsync();
  }
}

/** A small random number generator from 0 to 1 (mulberry32), the same for the same seed. */
function mulberry(start: number): () => number {
  let state = start;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

// Changes during a prune, and images named only by digest, against a real engine.

/** A pruner of an engine, with apps that the test adds and removes. */
class PrunedHost implements AsyncDisposable {
  readonly #resources = new AsyncDisposableStack();
  readonly #needs = new Map<string, EngineNeeds>();
  readonly #pruner: Pruner;
  /** How often the needs of the apps were requested. */
  protections = 0;
  #revision = 1;
  /** The removal requests to the engine, in order. */
  readonly removals: string[] = [];
  /** Called once the plan is ready, and after each removal. */
  onPlan: () => Promise<void> = () => Promise.resolve();
  onRemoved: () => void = () => undefined;

  constructor(engine: TestEngine) {
    const client = this.#resources.use(createDockerEngine({ socket: engine.socket }));
    const events = this.#resources.use(new EngineEvents({ engine: client }));
    const watched = new WatchedEngine(client, events);
    const seen: EngineOperations = {
      operate: async (what, work, options) => {
        const answer = await watched.operate(what, work, options);
        if (what.startsWith("remove ")) {
          this.removals.push(what.slice("remove ".length));
          this.onRemoved();
        }
        return answer;
      },
    };
    this.#pruner = new Pruner({
      engine: seen,
      disk: new DiskMeter(watched),
      protect: (disk) => this.#protect(disk),
      appsRevision: () => this.#revision,
    });
  }

  install(id: string, needs: Partial<EngineNeeds>): void {
    this.#needs.set(id, { images: [], volumes: [], ...needs });
    this.#revision++;
  }

  async #protect({ containers }: DiskUsage): Promise<Protection> {
    if (++this.protections === 1) await this.onPlan();
    const attribution = createAttribution({ ownership: ownershipIn("ours"), appIds: this.#needs.keys() });
    return new Protection({ needs: this.#needs, containers, attribution });
  }

  async prune(
    target: PruneRequest["target"],
    options: Partial<PruneRequest> = {},
  ): Promise<{ removed: string[]; skipped: PruneResult["skipped"] }> {
    const request = { target, danglingOnly: false, dryRun: false, ...options };
    const { removed, skipped } = await this.#pruner.prune(request, AbortSignal.timeout(60_000));
    return { removed: removed.map(({ id }) => id), skipped };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#resources.disposeAsync();
  }
}

async function namesOf(engine: TestEngine, image: string): Promise<string[]> {
  const answer = await engine.request("GET", `/images/${image}/json`);
  const { RepoTags, RepoDigests } = answer.expect(200) as { RepoTags: string[]; RepoDigests: string[] };
  return [...RepoTags, ...RepoDigests];
}

async function isThere(engine: TestEngine, path: string): Promise<boolean> {
  return (await engine.request("GET", path)).status === 200;
}

dockerTest(
  `an image that an app names by digest is retained, with or without a tag before the digest${needsDocker}`,
  async (t) => {
    const engine = shared();
    const { host } = await engine.registry();
    const name = `${host}/team/pinned`;
    const id = await engine.images.build(`${name}:1`, { labels: { n: "pinned" } });
    const digest = await engine.images.push(`${name}:1`);
    await engine.images.remove(`${name}:1`);
    const query = new URLSearchParams({ fromImage: `${name}:1@${digest}` });
    (await engine.request("POST", `/images/create?${query.toString()}`)).expect(200);
    t.deepEqual(await namesOf(engine, id), [`${name}@${digest}`]);
    for (const danglingOnly of [true, false]) {
      for (const reference of [`${name}:1@${digest}`, `${name}@${digest}`]) {
        await using pruned = new PrunedHost(engine);
        pruned.install("pinned", { images: [reference] });
        const reason = 'the installed app "pinned" runs it';
        t.deepEqual(await pruned.prune("images", { danglingOnly }), {
          removed: [],
          skipped: [{ id, name: "", reason }],
        });
      }
    }
    await using pruned = new PrunedHost(engine);
    pruned.install("other", { images: [`${name}:1@sha256:${"0".repeat(64)}`] });
    t.deepEqual(await pruned.prune("images"), { removed: [id], skipped: [] });
    t.false(await isThere(engine, `/images/${id}/json`));
  },
);

dockerTest(
  `an untagged image with the names of two repositories is removed, as the dry run reports${needsDocker}`,
  async (t) => {
    const engine = shared();
    const { host } = await engine.registry();
    const tags = [`${host}/a/web:1`, `${host}/b/web:1`];
    const old = await engine.images.build(`${host}/a/web:1`, { labels: { n: "old" } });
    await engine.images.tag(old, `${host}/b/web:1`);
    for (const tag of tags) await engine.images.push(tag);
    const fresh = await engine.images.build(`${host}/a/web:1`, { labels: { n: "new" } });
    await engine.images.tag(fresh, `${host}/b/web:1`);
    t.regex((await namesOf(engine, old)).join(" "), /^\S+\/a\/web@sha256:\S+ \S+\/b\/web@sha256:\S+$/);

    await using pruned = new PrunedHost(engine);
    const plan = await pruned.prune("images", { danglingOnly: true, dryRun: true });
    t.deepEqual(plan, { removed: [old], skipped: [] });
    t.deepEqual(await pruned.prune("images", { danglingOnly: true }), plan);
    t.false(await isThere(engine, `/images/${old}/json`));
    t.deepEqual((await namesOf(engine, fresh)).toSorted(), tags);
    t.deepEqual(await pruned.prune("images"), { removed: [fresh], skipped: [] });
  },
);

dockerTest(`an app that is installed during a prune keeps its image${needsDocker}`, async (t) => {
  const engine = shared();
  const ids = new Map<string, string>();
  for (const n of ["1", "2", "3"]) {
    ids.set(`late/app:${n}`, await engine.images.build(`late/app:${n}`, { labels: { n } }));
  }
  await using pruned = new PrunedHost(engine);
  const installed: string[] = [];
  pruned.onRemoved = () => {
    if (installed.length > 0) return;
    const left = [...ids.keys()].filter((name) => !pruned.removals.includes(name));
    installed.push(...left.slice(-1));
    pruned.install("late", { images: installed });
  };
  const done = await pruned.prune("images");

  const [name = ""] = installed;
  const id = ids.get(name) ?? "";
  t.deepEqual(done.skipped, [{ id, name, reason: 'the installed app "late" runs it' }]);
  t.is(done.removed.length, 2);
  t.deepEqual(await namesOf(engine, id), [name]);
  t.is(pruned.protections, 2, "nothing is requested again without a new app");
  await engine.images.remove(name);
});

dockerTest(`an app that is installed during a prune keeps its volume${needsDocker}`, async (t) => {
  const engine = shared();
  const names = ["late-1", "late-2", "late-3"];
  for (const Name of names) (await engine.request("POST", "/volumes/create", { Name })).expect(201);
  await using pruned = new PrunedHost(engine);
  pruned.onRemoved = () => {
    if (pruned.removals.length === 1) pruned.install("late", { volumes: ["late-3"] });
  };

  t.deepEqual(await pruned.prune("volumes"), {
    removed: ["late-1", "late-2"],
    skipped: [{ id: "late-3", name: "late-3", reason: 'the installed app "late" keeps data in it' }],
  });
  t.true(await isThere(engine, "/volumes/late-3"));
  t.is(pruned.protections, 2, "nothing is requested again without a new app");
  (await engine.request("DELETE", "/volumes/late-3")).expect(204);
});

dockerTest(
  `an image used by a container that is created during a prune keeps all its names${needsDocker}`,
  async (t) => {
    const engine = shared();
    const names = ["used/also:2", "used/web:1"];
    const id = await engine.images.build("used/web:1", { labels: { n: "used" } });
    await engine.images.tag(id, "used/also:2");
    await using pruned = new PrunedHost(engine);
    let container = "";
    pruned.onPlan = async () => {
      const made = await engine.request("POST", "/containers/create", { Image: id });
      container = (made.expect(201) as { Id: string }).Id;
    };
    const reason = "a container was created from it meanwhile";
    t.deepEqual(await pruned.prune("images"), {
      removed: [],
      skipped: [{ id, name: "used/also:2", reason }],
    });
    t.deepEqual((await namesOf(engine, id)).toSorted(), names);

    (await engine.request("DELETE", `/containers/${container}`)).expect(204);
    t.deepEqual(await pruned.prune("images"), { removed: [id], skipped: [] });
  },
);

// The build cache of a real builder: measured, planned, pruned.

/** Builds an image of two layers with BuildKit; its cache remains. */
async function build(engine: TestEngine, name: string): Promise<void> {
  const dir = await mkdtemp(join(engine.dir, "context-"));
  await writeFile(join(dir, "Dockerfile"), "FROM scratch\nCOPY a /a\nCOPY b /b\n");
  await writeFile(join(dir, "a"), name);
  await writeFile(join(dir, "b"), `${name} too`);
  const { stdout } = await promisify(execFile)("tar", ["-c", "-C", dir, "."], { encoding: "buffer" });
  const uploadPath = `/build?version=2&buildid=upload-request:${name}`;
  const query = new URLSearchParams({
    version: "2",
    t: `${name}:1`,
    remote: "upload-request",
    buildid: name,
  });
  const [, built] = await Promise.all([
    engineRequest(engine.socket, "POST", uploadPath, Readable.from([stdout])),
    engine.request("POST", `/build?${query.toString()}`),
  ]);
  built.expect(200);
}

async function cacheIds(engine: TestEngine): Promise<string[]> {
  const { BuildCache } = (await engine.request("GET", "/system/df")).expect(200) as {
    BuildCache: { ID: string }[] | null;
  };
  return (BuildCache ?? []).map(({ ID }) => ID).toSorted();
}

/** The builder reorders its records for a moment after a build: waits until two listings in a row are equal. */
async function settledCacheIds(engine: TestEngine): Promise<string[]> {
  let seen = await cacheIds(engine);
  return eventually(async () => {
    await sleep(500);
    const before = seen;
    seen = await cacheIds(engine);
    assert.deepEqual(seen, before);
    return seen;
  }, 60_000);
}

for (const danglingOnly of [true, false]) {
  const what = danglingOnly ? "unshared records" : "all records";
  dockerTest(
    `a prune of the build cache removes ${what}, as its dry run reports${needsDocker}`,
    async (t) => {
      const engine = shared();
      await using resources = new AsyncDisposableStack();
      const client = resources.use(createDockerEngine({ socket: engine.socket }));
      const events = resources.use(new EngineEvents({ engine: client }));
      const state = resources.use(new EngineState({ engine: client, events }));
      const apps = { revision: 1, ids: () => [], engineNeeds: () => Promise.resolve(new Map()) };
      const disk = new DiskMeter(new WatchedEngine(client, events));
      const host = new DockerHost({
        engine: client,
        events,
        state,
        disk,
        ownership: ownershipIn("ours"),
        apps,
      });
      const signal = AbortSignal.timeout(60_000);

      await build(engine, danglingOnly ? "one" : "two");
      const before = await settledCacheIds(engine);
      t.true(before.length >= 3);
      const usage = await host.diskUsage(signal);
      t.is(usage.buildCache?.count, before.length);
      const plan = await host.prune({ target: "build_cache", danglingOnly, dryRun: true }, signal);
      t.deepEqual(await cacheIds(engine), before, "a dry run removes nothing");
      const done = await host.prune({ target: "build_cache", danglingOnly, dryRun: false }, signal);
      t.deepEqual(done, plan);
      t.deepEqual(done.skipped, []);
      t.true(done.removed.length > 0);
      const gone = new Set(done.removed.map(({ id }) => id));
      t.deepEqual(
        await cacheIds(engine),
        before.filter((id) => !gone.has(id)),
      );
      if (!danglingOnly) t.is(gone.size, before.length);
      t.true(done.removed.every(({ sizeBytes }) => sizeBytes >= 0));
    },
  );
}
