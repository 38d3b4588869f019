/** Apps that are being created: the order of waiting installs, and free ports. */
import { once } from "node:events";
import { createServer } from "node:net";
import test from "ava";
import { InstallLimiter } from "../../src/apps/changes/install-limiter.ts";
import { FreePorts, type FreePortsOptions } from "../../src/apps/ports/free-ports.ts";
import { PortReservations, type PortKey } from "../../src/apps/ports/port-reservations.ts";
import { SvcError } from "../../src/errors.ts";
import { parseManifest } from "../packages/support/manifests.ts";

// The order of waiting installs.

const bounds = { maxInstallsPerUser: 2, maxInstalls: 3, maxWaitingInstallsPerUser: 2 };
const root = { uid: 0, root: true, ownerUid: 0 };
const user = (uid: number) => ({ uid, root: false, ownerUid: uid });
const [ann, ben, cat] = [user(1), user(2), user(3)];

/** Waits for slots and records who gets one, in order. */
class Log {
  readonly limiter: InstallLimiter;
  readonly begun: string[] = [];
  readonly said: string[] = [];

  constructor(sharedMs?: number) {
    this.limiter = new InstallLimiter(bounds, sharedMs);
  }

  take(name: string, caller: typeof ann, signal?: AbortSignal): Promise<Disposable> {
    const taken = this.limiter.take(caller, {
      onProgress: ({ message }) => this.said.push(`${name}: ${String(message)}`),
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
    log.said,
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
  t.is(log.said.length, 1);
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
  t.deepEqual(first.notes, ["http: port 8081 (8080 is in use by alice)"]);
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
  t.deepEqual(kept.notes, ["http: port 8080 is in use by alice; the app cannot start while it is"]);
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
    "http: port 8080 is in use by alice; the app cannot start while it is; its package fixes the number; write ${PORT:-8080} in compose.yaml, and generate svc.yaml again",
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
  // The reservations are real: numbers that no other test uses.
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
