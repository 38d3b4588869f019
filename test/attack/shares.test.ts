/** Shared limits retain a share per user and one for root, so that one user's flood blocks nobody. */
import assert from "node:assert/strict";
import { mkdir, writeFile, mkdtemp, rm } from "node:fs/promises";
import { Agent, request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep, setTimeout as wait } from "node:timers/promises";
import test from "ava";
import type Dockerode from "dockerode";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { AuditService } from "../../gen/svc/v1/audit_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { EventService } from "../../gen/svc/v1/event_pb.ts";
import { SessionService } from "../../gen/svc/v1/session_pb.ts";
import { createDockerEngine, type EngineWork } from "../../src/engine/engine.ts";
import { mapBounded } from "../../src/lib/map-bounded.ts";
import { rangesIn, SubordinateUids } from "../../src/server/http/subordinate-uids.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { openRunWorld } from "../scheduler/support/run-world.ts";
import { isRoot, needsRoot, startDaemon, type UserConnection } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { attackAs } from "./as-user.ts";

const [annUid, benUid] = [65534, 1];
const engineNow = sharedEngine();
const rootTest = isRoot ? test.serial : test.skip;
const userComposeTest = isRoot ? composeTest : test.skip;

test.before(async () => {
  if (whyNoDocker === undefined) await engineNow().images.build("svc/shell:1");
});

const sleeping = `image: "svc/shell:1", command: ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"], stop_grace_period: 1s`;
const simple = `services: { s: { ${sleeping} } }\n`;
/** Its second service waits for an hour until the first one is healthy. Reading it takes longer than most files. */
const waiting = `x-notes: [${Array.from({ length: 4_000 }, () => "a").join()}]
services:
  db: { ${sleeping}, healthcheck: { test: ["CMD", "false"], interval: 10s, retries: 360 } }
  app: { ${sleeping}, depends_on: { db: { condition: service_healthy } } }
`;
const networked = (count: number): string => {
  const names = Array.from({ length: count }, (_, n) => `n${n}`);
  return `services: { s: { ${sleeping}, networks: [${names.join()}] } }\nnetworks: { ${names.map((name) => `${name}: {}`).join()} }\n`;
};

type Caller = Pick<UserConnection, "client">;

async function install(caller: Caller, dir: string, name: string, compose: string): Promise<string> {
  const spec = join(dir, name);
  await mkdir(spec, { recursive: true });
  await writeFile(join(spec, "compose.yaml"), compose);
  await writeFile(
    join(spec, "svc.yaml"),
    `id: ${name}\nname: ${name}\nversion: 1.0.0\ncompose: { file: compose.yaml }\n`,
  );
  return (await caller.client(AppService).installApp({ spec })).id;
}

/** Milliseconds until the app runs. */
async function timeToStart(caller: Caller, id: string): Promise<number> {
  const beganMs = performance.now();
  assert.equal((await caller.client(AppService).startApp({ id })).state, "RUNNING");
  return performance.now() - beganMs;
}

userComposeTest(
  `33 starts of one user that wait for a health check delay nobody, and can be stopped${needsCompose}`,
  async (t) => {
    t.timeout(600_000);
    const engine = engineNow();
    await using daemon = await startDaemon({ config: engine.config });
    await using ann = await daemon.as(annUid);
    await using ben = await daemon.as(benUid);
    const bens = await install(ben, daemon.dir, "bens-small", simple);
    const roots = await install(daemon, daemon.dir, "roots-small", simple);
    const anns = await mapBounded(
      Array.from({ length: 33 }, (_, n) => `waits-${n}`),
      2,
      (name) => install(ann, daemon.dir, name, waiting),
    );
    // A new daemon has compose's results cached, so that all starts read their projects at the same time.
    await daemon.restart();
    const apps = ann.client(AppService);
    const starts = new Map(anns.map((id) => [id, errorOf(apps.startApp({ id }))]));
    const ended: unknown[] = [];
    for (const [id, start] of starts) void start.then((error) => ended.push({ id, ...error }));
    const stateOf = async (id: string) => (await apps.getApp({ id })).state;
    for (const id of anns)
      await eventually(async () => {
        const { state, stateReason } = await apps.getApp({ id });
        assert.equal(state, "STARTING", `${id} is ${state} instead of being started: ${stateReason}`);
      }, 60_000);
    t.deepEqual(ended, [], "every start continues");
    const times = [await timeToStart(ben, bens), await timeToStart(daemon, roots)];
    t.log(`ben's start ${times[0]} ms, root's ${times[1]} ms`);
    t.true(Math.max(...times) < 60_000);

    const [stopped = "", canceled = "", removed = "", queued = ""] = [...anns.slice(0, 3), anns[32]];
    await apps.stopApp({ id: stopped });
    t.is(await stateOf(stopped), "STOPPED");
    t.like(await starts.get(stopped), { reason: "canceled" });
    await apps.cancelAppOperation({ id: canceled });
    t.like(await starts.get(canceled), { reason: "canceled" });
    t.is(await stateOf(canceled), "STOPPED");
    await apps.removeApp({ id: removed });
    t.like(await errorOf(apps.getApp({ id: removed })), { reason: "not_found" });
    await apps.stopApp({ id: queued });
    t.is(await stateOf(queued), "STOPPED", "also of one that has not started yet");
    await Promise.all(anns.slice(3, 32).map((id) => apps.removeApp({ id })));
    t.deepEqual(
      (await apps.listApps({})).apps.map(({ id, state }) => [id, state]).toSorted(),
      [stopped, canceled, queued].map((id) => [id, "STOPPED"]).toSorted(),
      "the daemon starts none of them again",
    );
  },
);

userComposeTest(`one user's networks leave subnets and time to others${needsCompose}`, async (t) => {
  t.timeout(300_000);
  const engine = engineNow();
  await using daemon = await startDaemon({ config: engine.config });
  await using ann = await daemon.as(annUid);
  await using ben = await daemon.as(benUid);
  const apps = ann.client(AppService);
  // The test's pool has 256 of the smallest subnets; a user gets 64 of them.
  const [one, two, three] = [
    await install(ann, daemon.dir, "one", networked(30)),
    await install(ann, daemon.dir, "two", networked(30)),
    await install(ann, daemon.dir, "three", networked(30)),
  ];
  const bens = await install(ben, daemon.dir, "bens", simple);
  const roots = await install(daemon, daemon.dir, "roots", simple);
  await apps.startApp({ id: one });
  await apps.startApp({ id: two });
  t.like(await errorOf(apps.startApp({ id: three })), { reason: "too_many" });
  t.like(await errorOf(install(ann, daemon.dir, "four", networked(32))), { reason: "denied" });
  const times = [await timeToStart(ben, bens), await timeToStart(daemon, roots)];
  t.log(`ben's start ${times[0]} ms, root's ${times[1]} ms`);
  t.true(Math.max(...times) < 30_000);
});

dockerTest(
  `64 jobs of a user that wait for a health check do not delay root's start${needsDocker}`,
  async (t) => {
    await using engine = createDockerEngine({ socket: engineNow().socket });
    const id = await engineNow().run("hanging", { Image: "svc/shell:1", Cmd: ["sleep", "600"] });
    const start = (work: EngineWork<unknown>, signal: AbortSignal): Promise<unknown> =>
      engine.operate("start an app", work, { signal, waitsFor: "start" });
    let started = 0;
    const hanging = async (docker: Dockerode): Promise<unknown> => {
      started++;
      return docker.getContainer(id).wait();
    };
    await using world = await openRunWorld(
      async (_job, { signal }) => {
        await start(hanging, signal);
        return {};
      },
      { total: 200, reserved: 100, perKey: 100 },
    );
    const action = { type: "app_start", app: "web" } as const;
    for (let n = 0; n < 64; n++) {
      const job = await world.addJob(`start-${n}`, { action }, annUid);
      await world.runner.start(job, { trigger: "manual", attempt: 1 });
    }
    await eventually(() => assert.equal(started, 16), 20_000);
    const list = await start((docker) => docker.listContainers(), AbortSignal.timeout(10_000));
    t.true(
      (list as { Id: string }[]).some(({ Id }) => Id === id),
      "root's call runs in parallel",
    );
    t.is(started, 16, "the user's other starts wait");
    (await engineNow().request("POST", `/containers/${id}/kill`)).expect(204);
  },
);

rootTest(`2,000 calls of one user without effect are two audit records${needsRoot}`, async (t) => {
  t.timeout(120_000);
  await using daemon = await startDaemon();
  await using ann = await daemon.as(annUid);
  await using ben = await daemon.as(benUid);
  await ben.client(SessionService).issueSessionCode({});
  const agent = new Agent({ keepAlive: true, maxSockets: 16 });
  const end = (): Promise<number> =>
    new Promise((resolve, reject) => {
      const options = { agent, socketPath: ann.socketPath, path: "/v1/sessions", method: "DELETE" };
      httpRequest(options, (response) => {
        response.on("end", () => resolve(response.statusCode ?? 0)).resume();
      })
        .on("error", reject)
        .end();
    });
  const statuses = await mapBounded(
    Array.from({ length: 2_000 }, () => undefined),
    16,
    end,
  );
  agent.destroy();
  t.deepEqual([...new Set(statuses)], [200]);
  const audit = daemon.client(AuditService);
  t.is((await audit.listAudit({ uid: annUid })).records.length, 1);
  await daemon.restart();
  const { records } = await daemon.client(AuditService).listAudit({ uid: annUid });
  t.deepEqual(
    records.map(({ attempts }) => attempts),
    [1_999, 1],
    "the repeats are counted",
  );
  t.is((await daemon.client(AuditService).listAudit({ uid: benUid })).records.length, 1);
  t.like(await daemon.client(AuditService).verifyAudit({}), { valid: true });
});

// One user opens as many connections as possible, including all of loopback's.

const attacker = 4001;
const other = 4002;

const requestHead =
  "POST /svc.v1.AppService/StartApp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{";

for (const [name, first] of [
  ["send nothing", ""],
  ["send half a request", requestHead],
] as const) {
  const test_ = isRoot ? test.serial : test.skip;
  test_(
    `root, tokens and other users connect despite 4,095 connections that ${name}${needsRoot}`,
    async (t) => {
      await using daemon = await startDaemon();
      const { socketPath: path, port } = daemon;
      const local = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"];
      await using flood = attackAs(attacker, "hold-connections.mjs", {
        targets: [
          { path, count: 1_023 },
          ...local.map((localAddress) => ({ host: "127.0.0.1", port, localAddress, count: 768 })),
        ],
        first,
      });
      t.is(await flood.nextLine(), "held");
      await using connection = await daemon.as(other);
      for (let round = 0; round < 3; round++) {
        for (const client of [
          daemon.client(DaemonService),
          daemon.tokenClient(DaemonService),
          connection.client(DaemonService),
        ])
          t.not((await client.getStatus({})).version, "");
        await wait(100);
      }
    },
  );
}
const [annsFirst, otherUid] = [200_000, 1];

rootTest(`a user with many subordinate uids takes no connections from others${needsRoot}`, async (t) => {
  t.timeout(120_000);
  const dir = await mkdtemp(join(tmpdir(), "svc-subuid-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const file = join(dir, "subuid");
  await writeFile(file, `ann:${annsFirst}:65536\n`);
  await using daemon = await startDaemon({
    config: "[api.limits]\nmax_connections = 4\nmax_connections_per_peer = 2\n",
    launcher: [
      ...["unshare", "--mount", "--propagation=slave", "sh", "-c"],
      ...[`mount --bind ${file} /etc/subuid && exec "$@"`, "sh"],
    ],
  });
  const ended = new AbortController();
  await using connections = new AsyncDisposableStack();
  const streams: Promise<unknown>[] = [];
  for (let n = 0; n < 4; n++) {
    const ann = connections.use(await daemon.as(annsFirst + n));
    const events = ann.client(EventService).streamEvents({}, { signal: ended.signal });
    const iterator = events[Symbol.asyncIterator]();
    streams.push(
      iterator.next().then(
        () => "accepted",
        () => "rejected",
      ),
    );
    void streams
      .at(-1)
      ?.then(() => iterator.next())
      .catch(() => undefined);
  }
  t.deepEqual(await Promise.all(streams), ["rejected", "rejected", "rejected", "rejected"]);
  const ben = connections.use(await daemon.as(otherUid));
  const answer = ben.client(AppService).listApps({});
  const outcome = await Promise.race([answer, sleep(20_000, "nothing", { ref: false })]);
  t.like(outcome, { apps: [] });
  ended.abort();
  t.truthy(
    await errorOf(
      connections
        .use(await daemon.as(annsFirst + 65_535))
        .client(AppService)
        .listApps({}),
    ),
  );
  t.like(
    await connections
      .use(await daemon.as(annsFirst + 65_536))
      .client(AppService)
      .listApps({}),
    { apps: [] },
  );
});

test("ranges of subordinate uids are read again when the file changes, and damaged lines are ignored", async (t) => {
  t.deepEqual(rangesIn("ann:100000:65536\n# no\n\nben:x:1\n1001:200000:10\ncy:300000\n"), [
    { first: 100_000, count: 65_536 },
    { first: 200_000, count: 10 },
  ]);
  const dir = await mkdtemp(join(tmpdir(), "svc-subuid-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const file = join(dir, "subuid");
  const uids = new SubordinateUids(file);
  t.false(uids.has(100_000));
  await writeFile(file, "ann:100000:65536\n");
  t.true(uids.has(100_000));
  t.true(uids.has(165_535));
  t.false(uids.has(165_536));
  t.false(uids.has(99_999));
  await rm(file);
  assert.ok(!uids.has(100_000));
});
