/** One user opens as many connections as possible, including all of loopback's. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep, setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { attackAs } from "./as-user.ts";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { EventService } from "../../gen/svc/v1/event_pb.ts";
import { rangesIn, SubordinateUids } from "../../src/server/http/subordinate-uids.ts";
import { errorOf } from "../support/errors.ts";

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
      t.is(await flood.said(), "held");
      await using door = await daemon.as(other);
      for (let round = 0; round < 3; round++) {
        for (const client of [
          daemon.client(DaemonService),
          daemon.tokenClient(DaemonService),
          door.client(DaemonService),
        ])
          t.not((await client.getStatus({})).version, "");
        await wait(100);
      }
    },
  );
}

// A user with subordinate uids (subuid(5)) has one share of the daemon, not one for each of them.

const rootTest = isRoot ? test : test.skip;
const [annsFirst, benUid] = [200_000, 1];

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
  await using doors = new AsyncDisposableStack();
  const streams: Promise<unknown>[] = [];
  for (let n = 0; n < 4; n++) {
    const ann = doors.use(await daemon.as(annsFirst + n));
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
  const ben = doors.use(await daemon.as(benUid));
  const answer = ben.client(AppService).listApps({});
  const outcome = await Promise.race([answer, sleep(20_000, "nothing", { ref: false })]);
  t.like(outcome, { apps: [] });
  ended.abort();
  t.truthy(
    await errorOf(
      doors
        .use(await daemon.as(annsFirst + 65_535))
        .client(AppService)
        .listApps({}),
    ),
  );
  t.like(
    await doors
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
