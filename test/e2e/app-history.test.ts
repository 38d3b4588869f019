/** The resource usage of apps over time, visible only to their owners, and in Prometheus format. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { isRoot, needsRoot, protocols, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const rootTest = isRoot ? test : test.skip;
const config = "[metrics]\ninterval_secs = 1\napp_interval_secs = 1\n";
const deadlineMs = 60_000;
const [userUid, otherUid] = [1, 2];

test("an app's usage is stored in order, over a restart of the daemon, and aggregated for longer times", async (t) => {
  await using daemon = await startDaemon({ config });
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  t.deepEqual((await apps.getAppStatsHistory({ id: "web" })).samples, [], "it has not run yet");
  await apps.startApp({ id: "web" });
  const samples = await eventually(async () => {
    const { samples: found } = await apps.getAppStatsHistory({ id: "web" });
    assert.ok(found.length >= 3);
    return found;
  }, deadlineMs);
  const times = samples.map(({ sampledAt }) => (sampledAt ? timestampMs(sampledAt) : 0));
  t.deepEqual(times, times.toSorted());
  t.true(samples.every(({ id, processes }) => id === "web" && (processes ?? 0) >= 1));
  t.true(samples.every(({ memoryBytes }) => (memoryBytes ?? 0n) > 1_000_000n));

  await daemon.restart();
  for (const protocol of protocols) {
    const { samples: kept, intervalSecs } = await daemon
      .client(AppService, protocol)
      .getAppStatsHistory({ id: "web", limit: 1_000 });
    t.is(intervalSecs, 1);
    t.deepEqual(kept[0]?.sampledAt, samples[0]?.sampledAt, protocol);
  }
  const { samples: long, intervalSecs } = await apps.getAppStatsHistory({ id: "web", step: 86_400 });
  t.is(intervalSecs, 86_400);
  t.true(long.length >= 1 && long.length <= 2, "one day, or two around midnight");
  t.like(await errorOf(apps.getAppStatsHistory({ id: "web", limit: 0 })), { code: "InvalidArgument" });
});

rootTest(`an app's history belongs to its owner and is removed with the app${needsRoot}`, async (t) => {
  await using daemon = await startDaemon({ config });
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  await using user = await daemon.as(userUid);
  await using other = await daemon.as(otherUid);
  const own = user.client(AppService);
  await own.installApp({ spec: dir });
  await own.startApp({ id: "web" });
  const history = async (client = own) => (await client.getAppStatsHistory({ id: "web" })).samples;
  await eventually(async () => assert.ok((await history()).length >= 2), deadlineMs);
  t.like(await errorOf(history(other.client(AppService))), { code: "NotFound" });
  t.true((await history(daemon.client(AppService))).length >= 2, "root sees everything");
  await own.removeApp({ id: "web" });
  await other.client(AppService).installApp({ spec: dir });
  t.deepEqual(await history(other.client(AppService)), [], "a later app with the same ID has no history");
});
