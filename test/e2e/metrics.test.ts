/** Metrics in the format of Prometheus, and the resource usage of apps over time. */
import assert from "node:assert/strict";
import { readFile, statfs } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot, protocols, type TestDaemon, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

// `GET /metrics` of a real daemon: as a Prometheus server reads it, only for root.

const emptyDaemon = sharedDaemon({ config: "[metrics]\ninterval_secs = 1\napp_interval_secs = 1\n" });

async function scrape(daemon: TestDaemon, token = daemon.token): Promise<Response> {
  return fetch(`http://127.0.0.1:${daemon.port}/metrics`, { headers: { authorization: `Bearer ${token}` } });
}

/** Samples by name and labels. @throws Error for a line that is not in the format */
function parse(text: string): Map<string, number> {
  const samples = new Map<string, number>();
  const typed = new Set<string>();
  for (const line of text.trimEnd().split("\n")) {
    const type = /^# TYPE (\w+) (counter|gauge|histogram)$/.exec(line)?.[1];
    if (type !== undefined) typed.add(type);
    if (line.startsWith("#")) continue;
    const [, name = "", labels = "", value = ""] =
      /^([a-z_]\w*)(\{\w+="(?:[^"\\\n]|\\.)*"(?:,\w+="(?:[^"\\\n]|\\.)*")*\})? (\S+)$/.exec(line) ?? [];
    const family = name.replace(/_(bucket|sum|count)$/, "");
    if (name === "" || !(typed.has(name) || typed.has(family))) throw new Error(`not a sample: ${line}`);
    if (samples.has(name + labels)) throw new Error(`twice: ${line}`);
    samples.set(name + labels, Number(value.replace("Inf", "Infinity")));
  }
  return samples;
}

test("the event-loop delay is measured from the first scrape on", async (t) => {
  const daemon = await emptyDaemon();
  const p99 = 'svc_event_loop_delay_seconds{quantile="0.99"}';
  const first = parse(await (await scrape(daemon)).text());
  t.false(first.has(p99));
  t.true(first.has("svc_event_loop_utilization_ratio"));
  await new Promise((resolve) => setTimeout(resolve, 300));
  t.true((parse(await (await scrape(daemon)).text()).get(p99) ?? -1) >= 0);
});

test("calls are counted by method and code, and measured by method and protocol", async (t) => {
  const daemon = await emptyDaemon();
  const settled = (): Promise<Map<string, number>> =>
    eventually(async () => {
      const response = await scrape(daemon);
      assert.equal(response.status, 200);
      assert.equal(response.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
      const found = parse(await response.text());
      // A call ends in the daemon a moment after its client has the response.
      assert.equal(found.get("svc_calls_in_flight"), 1);
      return found;
    });
  const before = await settled();
  for (const protocol of protocols) {
    await daemon.client(AppService, protocol).listApps({});
    await errorOf(daemon.client(AppService, protocol).stopApp({ id: "missing" }));
  }
  const samples = await eventually(async () => {
    const found = await settled();
    // The record of a call is written later still.
    const written = "svc_store_write_duration_seconds_count";
    assert.ok((found.get(written) ?? 0) > (before.get(written) ?? 0));
    return found;
  });
  const more = (name: string): number => (samples.get(name) ?? 0) - (before.get(name) ?? 0);
  const calls = (method: string, code: string) =>
    more(`svc_calls_total{method="svc.v1.AppService/${method}",code="${code}"}`);
  t.is(calls("ListApps", "ok"), protocols.length);
  t.is(calls("StopApp", "not_found"), protocols.length);
  for (const protocol of protocols) {
    const labels = `{method="svc.v1.AppService/ListApps",protocol="${protocol}"}`;
    t.is(more(`svc_call_duration_seconds_count${labels}`), 1, protocol);
  }
  t.is(samples.get('svc_apps{state="RUNNING"}'), 0);
  t.true((samples.get("process_resident_memory_bytes") ?? 0) > 10e6);
  t.true((samples.get("process_open_fds") ?? 0) > 5);
  t.true((samples.get("process_cpu_user_seconds_total") ?? 0) > 0);
  t.is(samples.get("svc_audit_records_lost_total"), 0);
});

test("the host and each app are included, as the kernel reports them", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const samples = await eventually(async () => {
    const found = parse(await (await scrape(daemon)).text());
    assert.ok(found.has('svc_app_memory_bytes{app="web"}') && found.has("node_load1"));
    return found;
  }, 60_000);
  t.is(samples.get('svc_app_up{app="web"}'), 1);
  t.is(samples.get('svc_app_up{app="web-2"}'), 0);
  t.false(samples.has('svc_app_memory_bytes{app="web-2"}'));
  t.true((samples.get('svc_app_processes{app="web"}') ?? 0) >= 1);
  const meminfo = await readFile("/proc/meminfo", "utf8");
  const total = Number(/^MemTotal:\s+(\d+) kB$/m.exec(meminfo)?.[1]) * 1024;
  t.is(samples.get("node_memory_MemTotal_bytes"), total);
  const stat = await readFile("/proc/stat", "utf8");
  const idle = Number(/^cpu0 \d+ \d+ \d+ (\d+)/m.exec(stat)?.[1]) / 100;
  const shown = samples.get('node_cpu_seconds_total{cpu="0",mode="idle"}') ?? 0;
  t.true(shown <= idle && shown > idle - 120, `${shown} and ${idle}`);
  const { bsize, blocks } = await statfs("/");
  const size = [...samples].find(([key]) => /^node_filesystem_size_bytes\{.*mountpoint="\/"/.test(key));
  t.is(size?.[1], bsize * blocks);
});

test("paths, IDs and names that clients invent add no series", async (t) => {
  const daemon = await emptyDaemon();
  const headers = { authorization: `Bearer ${daemon.token}` };
  const count = async () =>
    parse(await (await scrape(daemon)).text())
      .keys()
      .filter((key) => /^svc_call/.test(key))
      .toArray().length;
  await count();
  for (const path of ["/v1/apps/x", "/v1/x"])
    await fetch(`http://127.0.0.1:${daemon.port}${path}`, { headers });
  const before = await count();
  for (let n = 0; n < 50; n++) {
    await fetch(`http://127.0.0.1:${daemon.port}/v1/apps/made-up-${n}`, { headers });
    await fetch(`http://127.0.0.1:${daemon.port}/v1/made-up-${n}`, { headers });
    await fetch(`http://127.0.0.1:${daemon.port}/svc.v1.MadeUp/M${n}`, { method: "POST", headers });
  }
  t.is(await count(), before);
});

test("the metrics are served on the socket and over gRPC, only with a token, and only to GET and HEAD", async (t) => {
  const daemon = await emptyDaemon();
  const url = `http://127.0.0.1:${daemon.port}/metrics`;
  t.is((await fetch(url)).status, 401);
  t.is((await scrape(daemon, "svcp_wrong")).status, 401);
  const headers = { authorization: `Bearer ${daemon.token}` };
  const post = await fetch(url, { method: "POST", headers });
  t.deepEqual([post.status, post.headers.get("allow")], [405, "GET, HEAD"]);
  t.is((await fetch(url, { method: "HEAD", headers })).status, 200);
  t.is((await fetch(`${url}?x=1`, { headers })).status, 400);
  t.is((await fetch(`${url}/x`, { headers })).status, 404);
  const overSocket = await new Promise<number | undefined>((resolve, reject) => {
    request({ socketPath: daemon.socketPath, path: "/metrics" }, (response) => {
      response.resume();
      resolve(response.statusCode);
    })
      .on("error", reject)
      .end();
  });
  t.is(overSocket, 200);
  const body = await daemon.client(DaemonService, "grpc").getDaemonMetrics({});
  t.regex(Buffer.from(body.data).toString(), /^# HELP svc_info /m);
  t.true((await daemon.client(DaemonService).getStatus({})).capabilities.includes("metrics.daemon"));
});

const rootTest = isRoot ? test : test.skip;
rootTest(`a regular user is denied${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using nobody = await daemon.as(65_534);
  for (const protocol of protocols) {
    const { reason } = await errorOf(nobody.client(DaemonService, protocol).getDaemonMetrics({}));
    t.is(reason, "root_required", protocol);
  }
});

// The resource usage of apps over time, visible only to their owners, and in Prometheus format.

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
