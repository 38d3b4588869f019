/** Metrics in the format of Prometheus, resource usage over time, and alerts. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, statfs, writeFile } from "node:fs/promises";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { CallMetrics } from "../../../src/observability/metrics/call-metrics.ts";
import { Histogram, writeFamily, writeHistograms } from "../../../src/observability/metrics/exposition.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { type TestDaemon, isRoot, needsRoot, protocols, startDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";

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

// The daemon's metrics in the text format of Prometheus.

test("a family has its help, its type and a line for each sample", (t) => {
  t.is(
    writeFamily("n", "gauge", "What\\it\nis.", [
      { value: 1.5 },
      { labels: { name: 'a"b\\c\nd', code: 7 }, value: Infinity },
    ]),
    '# HELP n What\\\\it\\nis.\n# TYPE n gauge\nn 1.5\nn{name="a\\"b\\\\c\\nd",code="7"} +Inf\n',
  );
  t.is(writeFamily("n", "gauge", "Nothing.", []), "");
});

test("buckets of a histogram are cumulative and include their upper bound", (t) => {
  const histogram = new Histogram([0.1, 1]);
  for (const value of [0.05, 0.1, 0.5, 2]) histogram.observe(value);
  t.is(
    writeHistograms("d", "D.", [{ labels: { x: "y" }, histogram }]),
    [
      "# HELP d D.",
      "# TYPE d histogram",
      'd_bucket{x="y",le="0.1"} 2',
      'd_bucket{x="y",le="1"} 3',
      'd_bucket{x="y",le="+Inf"} 4',
      'd_sum{x="y"} 2.65',
      'd_count{x="y"} 4',
      "",
    ].join("\n"),
  );
});

test("counting a call has little overhead", (t) => {
  const metrics = new CallMetrics();
  const call = { method: "svc.v1.AppService/ListApps", protocolName: "rest", code: "ok", durationMs: 3 };
  const rounds = 100_000;
  for (let n = 0; n < rounds; n++) metrics.observe(call);
  const startMs = performance.now();
  for (let n = 0; n < rounds; n++) metrics.observe(call);
  const costUs = ((performance.now() - startMs) * 1000) / rounds;
  t.log(`${costUs.toFixed(3)} µs per call`);
  t.true(costUs < 5);
  t.regex(metrics.write(), /svc_calls_total\{method="svc.v1.AppService\/ListApps",code="ok"\} 200000\n/);
});

// Alerts of a real daemon: a file system that becomes full, and an app that crashes, sent to a command and to a
// server.

rootTest(`a full file system and its recovery are sent to a command${needsRoot}`, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-alert-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const [disk, notifiedFile] = [join(dir, "disk"), join(dir, "told")];
  await mkdir(disk);
  const config = `
[metrics]
interval_secs = 1
[[alerts]]
name = "disk"
when = "filesystem"
path = "${disk}"
above_percent = 80
for_secs = 1
command = "echo $SVC_ALERT $SVC_ALERT_STATE: $SVC_ALERT_MESSAGE >> ${notifiedFile}"
`;
  // Only the daemon sees it.
  const mount = `mount -t tmpfs -o size=8m tmpfs ${disk} && exec "$@"`;
  await using daemon = await startDaemon({
    config,
    launcher: ["unshare", "--mount", "sh", "-c", mount, "sh"],
  });
  const file = `/proc/${daemon.pid}/root${disk}/large`;
  const status = async () => (await daemon.client(DaemonService).getStatus({})).alerts;
  t.deepEqual(await status(), []);
  await writeFile(file, Buffer.alloc(7.5 * 1024 * 1024));
  const notifications = async () => (await readFile(notifiedFile, "utf8")).trim().split("\n");
  await eventually(async () => assert.equal((await notifications()).length, 1), deadlineMs);
  const [alert] = await status();
  t.like(alert, { name: "disk", subject: disk });
  t.regex(alert?.message ?? "", /is 9\d\.\d % full$/);
  // No alert is sent twice, also not by the next daemon: its disk is a different one, with space.
  await rm(file);
  await eventually(async () => assert.equal((await notifications()).length, 2), deadlineMs);
  t.deepEqual(
    (await notifications()).map((line) => line.replace(/:.*/, "")),
    ["disk firing", "disk resolved"],
  );
  t.deepEqual(await status(), []);
});

test("an overdue backup and its completion are sent to a command", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-alert-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const notifiedFile = join(dir, "told");
  await using daemon = await startDaemon({
    config: `
[metrics]
interval_secs = 1
[[alerts]]
name = "old"
when = "backup_overdue"
for_secs = 0
command = "echo $SVC_ALERT $SVC_ALERT_STATE: $SVC_ALERT_MESSAGE >> ${notifiedFile}"
`,
  });
  await writePackage(join(daemon.dir, "web"), await freePort());
  await daemon.client(AppService).installApp({ spec: join(daemon.dir, "web") });
  const backups = daemon.client(BackupService);
  // Half a day from now, so that it does not fire during the test.
  const hour = (new Date().getHours() + 12) % 24;
  await backups.setBackupPolicy({ appId: "web", trigger: `${String(hour).padStart(2, "0")}:30`, keep: 2 });
  const status = async () => (await daemon.client(DaemonService).getStatus({})).alerts;
  t.deepEqual(await status(), []);

  await daemon.kill();
  const store = new DatabaseSync(join(daemon.storeDir, "svc.db"));
  store.prepare("UPDATE backup_policies SET set_at = set_at - 2 * 24 * 3600 * 1000").run();
  store.close();
  await daemon.restart();
  const notifications = async () => (await readFile(notifiedFile, "utf8")).trim().split("\n");
  await eventually(async () => assert.equal((await notifications()).length, 1), deadlineMs);
  const [alert] = await status();
  t.like(alert, { name: "old", subject: "web" });
  t.like((await daemon.client(DaemonService).getStatus({})).apps, { backupsOverdue: 1 });

  await backups.createBackup({ appId: "web" });
  await eventually(async () => assert.equal((await notifications()).length, 2), deadlineMs);
  t.deepEqual(
    (await notifications()).map((line) => line.replace(/:.*/, "")),
    ["old firing", "old resolved"],
  );
  t.deepEqual(await status(), []);
});

test("an app's crash is sent to a server once, also over a restart, and is visible to users who may see the app", async (t) => {
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => (body += chunk.toString()));
    request.on("end", () => {
      bodies.push(body);
      response.end();
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const config = `
[metrics]
interval_secs = 1
[[alerts]]
name = "crashed"
when = "app_crashed"
url = "http://127.0.0.1:${port}/"
`;
  await using daemon = await startDaemon({ config });
  const dir = join(daemon.dir, "web");
  const webPort = await freePort();
  await writePackage(dir, webPort, { manifest: "restart: { policy: never }" });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  await eventually(() => fetch(`http://127.0.0.1:${webPort}/`), deadlineMs);
  await fetch(`http://127.0.0.1:${webPort}/exit`).catch(() => undefined);
  await eventually(() => assert.equal(bodies.length, 1), deadlineMs);
  t.deepEqual(JSON.parse(bodies[0] ?? ""), {
    alert: "crashed",
    state: "firing",
    subjects: [{ subject: "web", message: 'app "web" is CRASHED' }],
  });
  const alerts = async () => (await daemon.client(DaemonService, "rest").getStatus({})).alerts;
  t.deepEqual(
    (await alerts()).map(({ name, subject }) => [name, subject]),
    [["crashed", "web"]],
  );
  if (isRoot) {
    await using other = await daemon.as(2);
    t.deepEqual(
      (await other.client(DaemonService).getStatus({})).alerts,
      [],
      "another user's app is not named",
    );
  }
  await daemon.restart();
  await apps.stopApp({ id: "web" });
  await eventually(() => assert.equal(bodies.length, 2), deadlineMs);
  t.like(JSON.parse(bodies[1] ?? ""), { alert: "crashed", state: "resolved" });
  t.deepEqual(await alerts(), []);
});
