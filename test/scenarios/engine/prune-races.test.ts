/** Changes during a prune, and images named only by digest, against a real engine. */
import { createAttribution } from "../../../src/engine/ownership.ts";
import { DiskMeter, type DiskUsage } from "../../../src/engine/disk-usage.ts";
import { createDockerEngine } from "../../../src/engine/engine.ts";
import { EngineEvents } from "../../../src/engine/events.ts";
import { Protection, type EngineNeeds } from "../../../src/engine/protection.ts";
import { Pruner, type PruneRequest, type PruneResult } from "../../../src/engine/pruner.ts";
import { WatchedEngine, type EngineOperations } from "../../../src/engine/watched-engine.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import type { TestEngine } from "../../support/docker.ts";
import { ownershipIn } from "../../support/ownership.ts";

const shared = sharedEngine();

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
