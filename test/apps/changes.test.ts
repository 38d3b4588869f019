/** Changes of apps: the order of waiting installs, free ports, checks for updates, and restarts after a pull. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import test from "ava";
import type { AppsContext } from "../../src/apps/apps-context.ts";
import { AppUpdates } from "../../src/apps/changes/app-updates.ts";
import { InstallLimiter } from "../../src/apps/changes/install-limiter.ts";
import { Repuller } from "../../src/apps/changes/repull.ts";
import { Lifecycle } from "../../src/apps/lifecycle/lifecycle.ts";
import { openPortFor } from "../../src/apps/ports/privileged-ports.ts";
import { FreePorts, type FreePortsOptions } from "../../src/apps/ports/free-ports.ts";
import { type PortKey, PortReservations } from "../../src/apps/ports/port-reservations.ts";
import { type AppRecord, patchApp } from "../../src/apps/records/app-record.ts";
import { FoundUpdates } from "../../src/apps/records/found-updates.ts";
import { SvcError } from "../../src/errors.ts";
import type { RuntimeImage } from "../../src/runtimes/capabilities.ts";
import type { AppRuntime } from "../../src/runtimes/contract.ts";
import type { RuntimeStatus } from "../../src/runtimes/runtime-status.ts";
import { parseManifest } from "../packages/support/manifests.ts";
import { eventually } from "../support/eventually.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { storeWithApp } from "./support/store-with-app.ts";

// The order of waiting installs.

const bounds = { maxInstallsPerUser: 2, maxInstalls: 3, maxWaitingInstallsPerUser: 2 };
const root = { uid: 0, root: true, ownerUid: 0 };
const user = (uid: number) => ({ uid, root: false, ownerUid: uid });
const [ann, ben, cat] = [user(1), user(2), user(3)];

/** Waits for slots and records who gets one, in order. */
class Log {
  readonly limiter: InstallLimiter;
  readonly begun: string[] = [];
  readonly messages: string[] = [];

  constructor(sharedMs?: number) {
    this.limiter = new InstallLimiter(bounds, sharedMs);
  }

  take(name: string, caller: typeof ann, signal?: AbortSignal): Promise<Disposable> {
    const taken = this.limiter.take(caller, {
      onProgress: ({ message }) => this.messages.push(`${name}: ${String(message)}`),
      ...(signal && { signal }),
    });
    taken.then(
      () => this.begun.push(name),
      () => undefined,
    );
    return taken;
  }
}

test("installs are limited per user and in total; the others wait, report it, and run user by user", async (t) => {
  const log = new Log();
  const first = await log.take("ann 1", ann);
  const second = await log.take("ann 2", ann);
  const third = log.take("ann 3", ann);
  const fourth = log.take("ann 4", ann);
  const bens = await log.take("ben 1", ben);
  const cats = log.take("cat 1", cat);
  t.deepEqual(log.begun, ["ann 1", "ann 2", "ben 1"]);
  t.deepEqual(
    log.messages,
    ["ann 3", "ann 4", "cat 1"].map(
      (name) => `${name}: Waiting: at most 2 installs of a user and 3 of all users run at a time`,
    ),
  );
  bens[Symbol.dispose]();
  bens[Symbol.dispose]();
  const catsTurn = await cats;
  first[Symbol.dispose]();
  await third;
  catsTurn[Symbol.dispose]();
  second[Symbol.dispose]();
  await fourth;
  t.deepEqual(log.begun.slice(3), ["cat 1", "ann 3", "ann 4"]);
});

test("root's installs wait only for root's", async (t) => {
  const log = new Log();
  await Promise.all([log.take("ann 1", ann), log.take("ann 2", ann), log.take("ben 1", ben)]);
  const [first] = await Promise.all([log.take("root 1", root), log.take("root 2", root)]);
  const third = log.take("root 3", root);
  t.is(log.messages.length, 1);
  first[Symbol.dispose]();
  await third;
  t.is(log.begun.at(-1), "root 3");
});

test("two users with slow installs do not keep a third one waiting", async (t) => {
  const log = new Log(1);
  await Promise.all([log.take("ann 1", ann), log.take("ann 2", ann), log.take("ben 1", ben)]);
  await log.take("cat 1", cat);
  const anns = log.take("ann 3", ann);
  await log.take("cat 2", cat);
  t.deepEqual(log.begun, ["ann 1", "ann 2", "ben 1", "cat 1", "cat 2"], "ann has two already");
  void anns;
});

test("a waiting install can be canceled, and too many of one user are rejected", async (t) => {
  const log = new Log();
  const turns = await Promise.all([log.take("1", ann), log.take("2", ann)]);
  const leaver = new AbortController();
  const left = log.take("3", ann, leaver.signal);
  const fourth = log.take("4", ann);
  const error = await t.throwsAsync(log.take("5", ann), { instanceOf: SvcError });
  t.like(error, { code: "resource_exhausted", reason: "too_many" });
  t.regex(error.message, /max_waiting_installs_per_user is 2/);
  leaver.abort();
  t.like(await t.throwsAsync(left, { instanceOf: SvcError }), { code: "canceled" });
  turns[0][Symbol.dispose]();
  await fourth;
  t.deepEqual(log.begun, ["1", "2", "4"]);
  const gone = new AbortController();
  gone.abort();
  t.like(await t.throwsAsync(log.take("6", ann, gone.signal), { instanceOf: SvcError }), {
    code: "canceled",
  });
});

// Free ports for apps that are being created.

const options = {
  registry: { revision: 0 },
  ports: {
    inUse: () => Promise.resolve(new Set<PortKey>(["tcp/8080"])),
    declared: () => new Set<PortKey>(),
    holderOf: () => Promise.resolve("alice"),
  },
  reservations: { reserve: () => Promise.resolve(true), retain: () => Promise.resolve() },
} as unknown as FreePortsOptions;

const owner = { ownerUid: 1000, uid: 1000 };

function manifest(bounds: string, port = 8080) {
  return parseManifest(`id: web
name: Web
version: "1"
process: { exec: [./server] }
settings: { properties: { port: { type: integer, default: ${port}, ${bounds} env: PORT } } }
ports: [{ name: http, setting: port }]
`);
}

test("two apps that are created at the same time get different ports", async (t) => {
  const free = new FreePorts(options);
  const web = await manifest("");
  const [first, second] = await Promise.all([free.choose(web, {}, owner), free.choose(web, {}, owner)]);
  t.deepEqual([first.settings["port"], second.settings["port"]], [8081, 8082]);
  t.deepEqual(first.notes, ['port "http" is 8081, because 8080 is in use by alice']);
  first[Symbol.dispose]();
  t.is((await free.choose(web, {}, owner)).settings["port"], 8081);
});

test("a port stays within the range of its setting, and a port that the user chose stays", async (t) => {
  const free = new FreePorts(options);
  const narrow = await manifest("minimum: 8079, maximum: 8080,");
  t.is((await free.choose(narrow, {}, owner)).settings["port"], 8079);
  t.is((await free.choose(narrow, {}, owner)).settings["port"], undefined, "no port is left");
  const chosen = { port: 8080 };
  const kept = await free.choose(await manifest(""), chosen, owner, new Set(["port"]));
  t.deepEqual(kept.settings, chosen);
  t.deepEqual(kept.notes, ['port 8080 ("http") is in use by alice, so the app cannot start']);
});

test("a note on a fixed port in use states where the author makes it a setting", async (t) => {
  const fixed = await parseManifest(`id: web
name: Web
version: "1"
compose: { file: compose.yaml }
ports: [{ name: http, default: 8080 }]
`);
  const { settings, notes } = await new FreePorts(options).choose(fixed, {}, owner);
  t.deepEqual(settings, {});
  t.deepEqual(notes, [
    'port 8080 ("http") is in use by alice, so the app cannot start; the package fixes the number; write ${PORT:-8080} in compose.yaml, and generate svc.yaml again',
  ]);
});

test("ports with one number and different protocols stay together if one setting gives both", async (t) => {
  const dns = await parseManifest(`id: dns
name: DNS
version: "1"
process: { exec: [./server] }
settings: { properties: { port: { type: integer, default: 8080, env: PORT } } }
ports: [{ name: udp, protocol: udp, setting: port }, { name: tcp, setting: port }]
`);
  const chosen = await new FreePorts(options).choose(dns, {}, owner);
  t.is(chosen.settings["port"], 8081);
  t.is(chosen.notes.length, 1);
});

test("a port that another daemon has reserved is given only to its app, until the daemon stops", async (t) => {
  const [mine, others] = [new PortReservations(), new PortReservations()];
  using _ = mine;
  const key = "tcp/1" as const;
  {
    using other = others;
    t.true(await other.reserve(key));
    t.false(await mine.reserve(key));
    t.true((await mine.others()).has(key));
    t.false((await other.others()).has(key));
  }
  t.true(await mine.reserve(key));
  await mine.retain(new Set());
  using third = new PortReservations();
  t.true(await third.reserve(key), "a port that is not declared any more is released");
});

test("an app whose port another daemon reserves at the same moment gets the next port", async (t) => {
  using other = new PortReservations();
  using mine = new PortReservations();
  // Reservations hold on the whole host, so other tests must not use these ports.
  await other.reserve("tcp/2");
  const free = new FreePorts({ ...options, reservations: mine });
  t.is((await free.choose(await manifest(""), { port: 2 }, owner)).settings["port"], 3);
});

test("a process that squats on reserved names only makes new apps take other ports", async (t) => {
  const squatters = ["tcp/4", "tcp/5", "tcp/x", "tcp/6 "].map((name) =>
    createServer().listen({ path: `\0svc/port/${name}` }),
  );
  await Promise.all(squatters.map((squatter) => once(squatter, "listening")));
  using mine = new PortReservations();
  const others = await mine.others();
  t.deepEqual(
    ["tcp/4", "tcp/x", "tcp/6"].map((key) => others.has(key as PortKey)),
    [true, false, false],
  );
  const free = new FreePorts({ ...options, reservations: mine });
  t.is((await free.choose(await manifest(""), { port: 4 }, owner)).settings["port"], 6);
  const narrow = await manifest("minimum: 4, maximum: 5,", 4);
  t.deepEqual((await free.choose(narrow, {}, owner)).settings, {}, "the app is still created");
  for (const squatter of squatters) squatter.close();
});

// Automatic checks for updates.

const minuteMs = 60_000;

function appOf(id: string, commit = "c1"): AppRecord {
  return { id, ownerUid: 1000, version: "v1", origin: { kind: "git", commit } } as AppRecord;
}

test("updates are checked within an hour of the start and then daily, and a failure does not affect others", async (t) => {
  const clock = new FakeClock();
  const found = new FoundUpdates();
  const [gone, web] = [appOf("gone", "c0"), appOf("web")];
  const asked: string[] = [];
  let image = (): Promise<RuntimeImage> => Promise.resolve({});
  const turns: string[] = [];
  const updates = new AppUpdates({
    found,
    clock,
    log: { warn: () => undefined },
    random: () => 1,
    version: "1.0.0",
    packages: {
      newerSvc: () => Promise.resolve({ version: "1.1.0", url: "" }),
      newerVersion: ({ origin: { commit } }) => {
        asked.push(commit);
        if (commit === "c0") throw new SvcError("git_failed", "host not found");
        return Promise.resolve("v2");
      },
    },
    finder: {
      all: () => Promise.resolve([gone, web]),
      find: (id) => Promise.resolve(appOf(id)),
      visibleIds: () => new Set(["web"]),
    },
    reports: { image: () => image() },
    installLimiter: {
      take: () => {
        turns.push("taken");
        return Promise.resolve({ [Symbol.dispose]: () => turns.push("given back") });
      },
    },
  });
  updates.start();
  clock.pass(59 * minuteMs);
  t.deepEqual(asked, []);
  clock.pass(minuteMs);
  await eventually(() => assert.equal(found.of(web), "v2"));
  t.deepEqual(asked, ["c0", "c1"]);
  t.is(found.of(gone), undefined);
  // The next check is scheduled once this one has finished.
  await eventually(() => assert.ok(!clock.isIdle));
  clock.pass(25 * 60 * minuteMs - 1);
  t.is(asked.length, 2);
  clock.pass(1);
  await eventually(() => assert.equal(asked.length, 4));

  // A caller sees only their own apps.
  const caller = { uid: 1000, root: false, ownerUid: 1000 };
  const look = async () => (await updates.check(caller, new AbortController().signal)).apps;
  t.deepEqual(await look(), [{ id: "web", version: "v1", availableVersion: "v2", outdatedImages: [] }]);
  t.deepEqual(turns, ["taken", "given back"]);
  image = () => Promise.reject(new SvcError("unavailable", "the registry does not respond"));
  t.deepEqual(
    await look(),
    [
      {
        ...{ id: "web", version: "v1", availableVersion: "v2", outdatedImages: [] },
        problem: "the registry does not respond",
      },
    ],
    "the known updates stay",
  );
  const silent = { freshness: "unknown", isUnanswered: true, freshnessReason: "it hangs" } as const;
  const built = { freshness: "unknown", freshnessReason: "it was built here" } as const;
  image = () =>
    Promise.resolve({ services: [silent, built, silent].map((each) => ({ service: "s", image: each })) });
  t.like(await look(), [{ id: "web", availableVersion: "v2", problem: "it hangs" }]);
  await eventually(() => assert.ok(!clock.isIdle));
  updates[Symbol.dispose]();
  t.true(clock.isIdle);
});

test("a found update is forgotten with the version that it was found for", (t) => {
  const found = new FoundUpdates();
  found.set(appOf("web"), "v2");
  t.is(found.of(appOf("web")), "v2");
  t.is(found.of(appOf("web", "c2")), undefined);
  t.is(found.of({ ...appOf("web"), version: "v2" }), undefined, "a directory always has the same commit");
  const { revision } = found;
  found.set(appOf("web"), "v2");
  found.set(appOf("other"), undefined);
  t.is(found.revision, revision, "nothing else changed");
  found.set(appOf("web"), "v3");
  t.true(found.revision > revision);
  found.retain(new Set());
  t.is(found.of(appOf("web")), undefined);
});

// Apps that restart after a pull of their image: those with a changed image, and those that svc was about to start
// anyway.

interface Case {
  readonly status: Partial<RuntimeStatus>;
  /** Whether the image changed. */
  readonly changed: boolean;
  readonly desired: AppRecord["desired"];
  readonly restarted: boolean;
}

const cases: Record<string, Case> = {
  "an app that runs on another image": {
    ...{ status: { state: "RUNNING" }, changed: true },
    ...{ desired: "running", restarted: true },
  },
  "an app that runs on the same image": {
    ...{ status: { state: "RUNNING" }, changed: false },
    ...{ desired: "running", restarted: false },
  },
  "a lost app": {
    ...{ status: { state: "STOPPED", isLost: true }, changed: false },
    ...{ desired: "running", restarted: true },
  },
  "an app whose engine was unavailable": {
    ...{ status: { state: "UNKNOWN" }, changed: false },
    ...{ desired: "running", restarted: true },
  },
  "an app that exited by itself": {
    ...{ status: { state: "CRASHED" }, changed: true },
    ...{ desired: "running", restarted: false },
  },
  "an app that its user stopped": {
    ...{ status: { state: "STOPPED", isLost: true }, changed: true },
    ...{ desired: "stopped", restarted: false },
  },
};

for (const [name, { status, changed, desired, restarted }] of Object.entries(cases)) {
  test(`after a pull of its image, ${name} ${restarted ? "restarts" : "stays unchanged"}`, async (t) => {
    await using made = await storeWithApp();
    const { store, registry, operations } = made;
    await store.write([patchApp("web", { desired })]);
    const done: string[] = [];
    let now = status;
    const runtime = {
      status: () => now,
      check: () => Promise.resolve(),
      settle: () => Promise.resolve(),
      stop: () => {
        done.push("stop");
        now = { state: "STOPPED" };
        return Promise.resolve();
      },
      start: () => Promise.resolve(void done.push("start")),
      images: { pull: () => Promise.resolve({ changed, digest: "", replaced: [], services: [] }) },
    } as unknown as AppRuntime;
    const context = {
      ...{ store, registry, operations, log: { warn: () => undefined } },
      runtimeOf: () => runtime,
      runnable: (app: AppRecord) => app,
      ports: { requireFree: () => Promise.resolve() },
      userHelpers: {},
      userName: () => Promise.resolve("ann"),
    } as unknown as AppsContext;
    const repuller = new Repuller({ ...context, lifecycle: new Lifecycle(context) });
    t.like(await repuller.repull(registry.get("web")!, {}), { restarted, changed });
    t.deepEqual(done, restarted ? ["stop", "start"] : []);
    t.is(registry.get("web")?.desired, desired);
    t.deepEqual(operations.all(), []);
  });
}

test("the port that is suggested for a rejected one is open to users", (t) => {
  t.deepEqual([openPortFor(80, 1_024), openPortFor(443, 1_024)], [8_080, 8_443]);
  t.is(openPortFor(80, 10_000), 10_000);
  t.is(openPortFor(59_999, 60_000), 60_000);
});
