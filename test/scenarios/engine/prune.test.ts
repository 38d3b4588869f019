/** Pruning against a real engine: on random hosts, nothing protected or in use is ever removed. */
import { execFile } from "node:child_process";
import { Readable } from "node:stream";
import { promisify } from "node:util";
import type { ExecutionContext } from "ava";
import { DiskMeter } from "../../../src/engine/disk-usage.ts";
import { DockerHost } from "../../../src/engine/docker-host.ts";
import { EngineEvents } from "../../../src/engine/events.ts";
import { EngineState } from "../../../src/engine/engine-state.ts";
import { createDockerEngine } from "../../../src/engine/engine.ts";
import { WatchedEngine } from "../../../src/engine/watched-engine.ts";
import type { EngineNeeds } from "../../../src/engine/protection.ts";
import { engineRequest } from "../../support/docker-request.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import type { TestEngine } from "../../support/docker.ts";
import { ownershipIn } from "../../support/ownership.ts";

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
