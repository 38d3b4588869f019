/** The host's figures from a real daemon, compared with other programs at the same time, and the guide's tour. */
import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { access, mkdtemp, rm, mkdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { MonitorService } from "../../../gen/svc/v1/monitor_pb.ts";
import { ProcessService } from "../../../gen/svc/v1/process_pb.ts";
import { SystemService } from "../../../gen/svc/v1/system_pb.ts";
import { parseStat, readProcess } from "../../../src/sys/process-table.mjs";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { isRoot, needsRoot, protocols, startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { readPage } from "../../support/docs.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import {
  assertBetween,
  rowsOfPorts,
  rowsOfProcesses,
  rowsOfPs,
  rowsOfSs,
} from "../../support/other-readers.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { sendRest } from "../../support/rest-transport.ts";
import { main } from "../../support/svc-main.ts";

// The host's figures from a real daemon, compared with other programs at the same time.

const emptyDaemon = sharedDaemon();

const run = promisify(execFile);
const rootTest = isRoot ? test : test.skip;
const userUid = 1;
const otherUid = 2;
const config = "[metrics]\ninterval_secs = 1\n";

function idler(): ChildProcess {
  return spawn("sleep", ["600"], { stdio: "ignore" });
}

function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error("it did not start");
  return child.pid;
}

test("metrics are not ready until the first sample exists, and then equal other programs' readings", async (t) => {
  await using daemon = await startDaemon({ config });
  const early = await sendRest({ socketPath: daemon.socketPath }, "GET", "/v1/metrics");
  if (early.status !== 200) {
    t.is(early.status, 503);
    t.like(JSON.parse(early.text), { reason: "not_ready" });
  }
  const sample = await eventually(() => daemon.client(MonitorService).getSystemMetrics({}));
  t.is(sample.cpuCount, availableParallelism());
  t.is(sample.cores.length, sample.cpuCount);
  const { cpu } = sample;
  if (cpu === undefined) return t.fail("no shares");
  const whole =
    cpu.userPercent +
    cpu.systemPercent +
    cpu.iowaitPercent +
    cpu.irqPercent +
    cpu.stealPercent +
    cpu.idlePercent;
  t.true(Math.abs(whole - 100) < 0.1, String(whole));

  const { stdout: free } = await run("free", ["-b"]);
  const [, total, , , , , available] = /^Mem:.*$/m.exec(free)?.[0].split(/\s+/).map(Number) ?? [];
  t.is(Number(sample.memoryTotalBytes), total ?? 0);
  t.true(Math.abs(Number(sample.memoryAvailableBytes) - (available ?? 0)) < 0.2 * (total ?? 0));

  const { stdout: df } = await run("df", ["-B1", "--output=size,avail,target", "/"]);
  const [, size, avail] = /^\s*(\d+)\s+(\d+)\s+\/$/m.exec(df) ?? [];
  const root = sample.filesystems.find(({ path }) => path === "/");
  t.is(String(root?.sizeBytes), size ?? "");
  t.true(Math.abs(Number(root?.availableBytes) - Number(avail)) < 0.05 * Number(size));
  t.true((sample.processes ?? 0) > 5);

  for (const protocol of protocols) {
    const client = daemon.client(MonitorService, protocol);
    t.true((await client.getSystemMetrics({})).uptimeSecs >= sample.uptimeSecs, protocol);
    const { samples, intervalSecs } = await client.getMetricsHistory({ limit: 2 });
    t.is(intervalSecs, 1);
    t.true(samples.length >= 1 && samples.length <= 2, protocol);
  }
});

test("the history is ordered from oldest to newest, survives the daemon, and streams continue from it", async (t) => {
  await using daemon = await startDaemon({ config });
  const history = () => daemon.client(MonitorService, "rest").getMetricsHistory({});
  const first = await eventually(async () => {
    const { samples } = await history();
    if (samples.length < 3) throw new Error("too few");
    return samples;
  });
  const times = first.map(({ sampledAt }) => (sampledAt ? timestampMs(sampledAt) : 0));
  t.deepEqual(times, times.toSorted());
  await daemon.restart();
  const [kept] = (await eventually(history)).samples;
  t.deepEqual(kept?.sampledAt, first[0]?.sampledAt);
  const streamed: number[] = [];
  for await (const { sampledAt } of daemon.client(MonitorService).streamSystemMetrics({})) {
    streamed.push(sampledAt ? timestampMs(sampledAt) : 0);
    if (streamed.length === 3) break;
  }
  t.deepEqual(streamed, [...new Set(streamed)].toSorted());
});

test("invalid requests are rejected by field", async (t) => {
  const daemon = await emptyDaemon();
  const client = daemon.client(MonitorService, "rest");
  for (const bad of [{ limit: 0 }, { limit: 1_001 }, { step: 0 }]) {
    t.like(await errorOf(client.getMetricsHistory(bad)), { code: "InvalidArgument" });
  }
  t.like(await errorOf(daemon.client(ProcessService).listProcesses({ sort: "size" })), {
    code: "InvalidArgument",
  });
});

test("listening ports equal those of ss, with their processes", async (t) => {
  const daemon = await emptyDaemon();
  const server = createServer().listen(0, "127.0.0.1");
  const six = createServer().listen(0, "::1");
  const datagrams = createSocket("udp4").bind(0, "127.0.0.1");
  await Promise.all([once(server, "listening"), once(six, "listening"), once(datagrams, "listening")]);
  t.teardown(() => {
    server.close();
    six.close();
    datagrams.close();
  });
  const own = [server.address(), six.address(), datagrams.address()].map((address) =>
    typeof address === "object" && address !== null ? address.port : 0,
  );
  const found = await eventually(async () => {
    const before = await rowsOfSs();
    const { ports } = await daemon.client(MonitorService).listListeningPorts({});
    assertBetween(before, rowsOfPorts(ports), await rowsOfSs());
    return ports;
  }, 60_000);
  for (const port of own) t.is(found.find((each) => each.port === port)?.pid, process.pid, String(port));
  t.like(
    found.find(({ port }) => port === own[1]),
    { protocol: "tcp", address: "::1" },
  );
  t.like(
    found.find(({ port }) => port === own[2]),
    { protocol: "udp", address: "127.0.0.1" },
  );
  t.is(found.find(({ port }) => port === daemon.port)?.pid, daemon.pid);
  t.deepEqual(
    found.map(({ port }) => port),
    found.map(({ port }) => port).toSorted((a, b) => a - b),
  );
});

test("a closed port is gone, and a port reopened by another process belongs to that process", async (t) => {
  const daemon = await emptyDaemon();
  const client = daemon.client(MonitorService);
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const holder = async () => (await client.listListeningPorts({})).ports.find((each) => each.port === port);
  t.is((await holder())?.pid, process.pid);
  server.close();
  await nextEvent(server, "close");
  t.is(await holder(), undefined);
  const listen = `require("net").createServer().listen(${port},"127.0.0.1",()=>console.log("up"))`;
  const other = spawn(process.execPath, ["-e", listen], { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => other.kill("SIGKILL"));
  await nextEvent(other.stdout, "data");
  t.is((await holder())?.pid, pidOf(other));
});

test("processes equal those of ps, and the busy one is busy", async (t) => {
  const daemon = await emptyDaemon();
  const client = daemon.client(ProcessService);
  const busy = spawn(process.execPath, ["-e", "for(;;);"], { stdio: "ignore" });
  t.teardown(() => busy.kill("SIGKILL"));
  // A zombie has no command line, and for Node only the name of its thread.
  const parent = spawn("sh", ["-c", `"${process.execPath}" -e 0 & echo $!; exec sleep 600`]);
  t.teardown(() => parent.kill("SIGKILL"));
  const [ended] = (await nextEvent(parent.stdout, "data")) as [Buffer];
  await eventually(() => {
    const stat = readFileSync(`/proc/${ended.toString().trim()}/stat`, "latin1");
    assert.equal(parseStat(stat).state, "Z");
  });
  const listed = await eventually(async () => {
    const before = await rowsOfPs();
    const { processes, total } = await client.listProcesses({ kernelThreads: true, limit: 10_000 });
    assert.equal(processes.length, total);
    assertBetween(before, rowsOfProcesses(processes), await rowsOfPs());
    return processes;
  }, 60_000);
  const own = listed.find(({ pid }) => pid === pidOf(busy));
  t.is(own?.command, `${process.execPath} -e for(;;);`);
  t.is(own?.parentPid, process.pid);
  t.is(Number(own?.startTicks), readProcess(pidOf(busy))?.startTicks ?? 0);
  t.true(Math.abs(Date.now() - (own?.startedAt ? timestampMs(own.startedAt) : 0)) < 60_000);
  await eventually(async () => {
    const { processes } = await client.listProcesses({ sort: "cpu" });
    assert.ok((processes.find(({ pid }) => pid === pidOf(busy))?.cpuPercent ?? 0) > 5);
    const percents = processes.map(({ cpuPercent }) => cpuPercent);
    assert.deepEqual(
      percents,
      percents.toSorted((a, b) => b - a),
    );
  }, 30_000);
  const page = await client.listProcesses({ sort: "pid", limit: 2, offset: 1 });
  t.is(page.processes.length, 2);
  t.true(page.total > 2);
});

test("an app's processes, including children, and its port show its ID", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const port = await freePort();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, port);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const listening = await eventually(async () => {
    const { ports } = await daemon.client(MonitorService).listListeningPorts({});
    const found = ports.find((each) => each.port === port);
    if (found === undefined) throw new Error("it does not listen yet");
    return found;
  });
  t.is(listening.appId, "web");
  const { processes } = await daemon.client(ProcessService).listProcesses({});
  t.true(processes.some(({ appId, pid }) => appId === "web" && pid === listening.pid));
  t.is(processes.find(({ pid }) => pid === daemon.pid)?.appId, undefined);
  await apps.removeApp({ id: "web" });
});

test("signals reach only the intended process", async (t) => {
  const daemon = await emptyDaemon();
  const client = daemon.client(ProcessService);
  const child = idler();
  t.teardown(() => child.kill("SIGKILL"));
  const pid = pidOf(child);
  const startTicks = await eventually(() => {
    const found = readProcess(pid);
    if (found === undefined) throw new Error("not yet");
    return found.startTicks;
  });
  const expectedStartTicks = BigInt(startTicks);
  t.like(
    await errorOf(client.signalProcess({ pid, signal: "kill", expectedStartTicks: expectedStartTicks + 1n })),
    { code: "FailedPrecondition", reason: "pid_reused" },
  );
  t.is(child.exitCode, null);
  t.like(await client.signalProcess({ pid, signal: "stop", expectedStartTicks }), { pid, signal: "stop" });
  await eventually(() => assert.equal(readProcess(pid)?.state, "T"));
  await client.signalProcess({ pid, signal: "cont" });
  await eventually(() => assert.equal(readProcess(pid)?.state, "S"));
  const exited = once(child, "exit");
  await client.signalProcess({ pid, signal: "term", expectedStartTicks });
  t.deepEqual(await exited, [null, "SIGTERM"]);
  t.like(await errorOf(client.signalProcess({ pid, signal: "term" })), { code: "NotFound" });
  for (const bad of [
    { pid, signal: "segv" },
    { pid: 0, signal: "term" },
    { pid: 2 ** 32 - 1, signal: "term" },
  ])
    t.like(await errorOf(client.signalProcess(bad)), { code: "InvalidArgument" });
});

test("essential processes of svc and the host get no signal", async (t) => {
  await using daemon = await startDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const { processes } = await daemon.client(ProcessService).listProcesses({ kernelThreads: true });
  const supervisor = processes.find(
    ({ command }) => /supervisor\.[cm]js/.test(command) && command.includes(daemon.dir),
  );
  const web = processes.find(({ appId }) => appId === "web");
  const helper = processes.find(({ parentPid }) => parentPid === daemon.pid);
  const kernelThread = processes.find((each) => each.kernelThread);
  const spared = [
    ["process 1", 1],
    ["the daemon", daemon.pid],
    ["a helper", helper?.pid],
    ["a supervisor", supervisor?.pid ?? web?.parentPid],
    ...(kernelThread === undefined ? [] : [["a kernel thread", kernelThread.pid] as const]),
  ] as const;
  for (const [what, pid] of spared) {
    if (pid === undefined) {
      t.fail(`${what} does not exist`);
      continue;
    }
    const refusal = await errorOf(daemon.client(ProcessService).signalProcess({ pid, signal: "kill" }));
    t.like(refusal, { code: "PermissionDenied", reason: "denied" }, what);
    t.not(readProcess(pid), undefined, what);
  }
  // It keeps running without the daemon that started it, and is not a child of the next one.
  await daemon.restart();
  const pid = supervisor?.pid ?? web?.parentPid ?? 0;
  const refusal = await errorOf(daemon.client(ProcessService).signalProcess({ pid, signal: "kill" }));
  t.like(refusal, { code: "PermissionDenied", reason: "denied" });
  t.regex(refusal.message, /supervisor of an app/);
  t.not(readProcess(pid), undefined);
  await daemon.client(AppService).removeApp({ id: "web" });
});

rootTest(
  `a user sees what the kernel shows, only their own apps, and cannot send signals${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    await using user = await daemon.as(userUid);
    await using other = await daemon.as(otherUid);
    const port = await freePort();
    const dir = join(daemon.dir, "package");
    await writePackage(dir, port);
    await user.client(AppService).installApp({ spec: dir });
    await user.client(AppService).startApp({ id: "web" });
    const holderFor = (connection: typeof user) =>
      eventually(async () => {
        const { ports } = await connection.client(MonitorService).listListeningPorts({});
        const found = ports.find((each) => each.port === port);
        if (found === undefined) throw new Error("it does not listen yet");
        return found;
      });
    const seen = await holderFor(user);
    t.is(seen.appId, "web");
    t.not(seen.pid, undefined);
    const hidden = await holderFor(other);
    t.like(hidden, { appId: undefined, pid: undefined, process: undefined, user: "daemon" });
    const { processes } = await other.client(ProcessService).listProcesses({});
    t.true(
      processes.some(({ pid }) => pid === seen.pid),
      "the kernel shows it to all users",
    );
    t.true(processes.every(({ appId }) => appId === undefined));
    const pid = seen.pid ?? 0;
    t.like(await errorOf(user.client(ProcessService).signalProcess({ pid, signal: "cont" })), {
      code: "PermissionDenied",
      reason: "root_required",
    });
    t.like(await errorOf(user.client(SystemService).rebootSystem({})), { code: "PermissionDenied" });
    await user.client(AppService).removeApp({ id: "web" });
  },
);

test("a reboot is acknowledged first, and happens once, however often it is requested", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-reboot-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const record = join(dir, "rebooted");
  // Fails if it exists already.
  await using daemon = await startDaemon({ config: `[system]\nreboot_command = ["mkdir", "${record}"]` });
  for (let n = 0; n < 3; n++) t.is((await daemon.client(SystemService).rebootSystem({})).delaySecs, 3);
  await t.throwsAsync(access(record), undefined, "not yet");
  await eventually(() => access(record));
  t.false(daemon.log().includes("failed to reboot the host"));
});

// The commands of the guide about the host and its alert, as a new user would type them.

const deadlineMs = 60_000;
/** Endless commands are stopped after this many samples. */
const framesToSee = 2;
const watchMs = 60_000;

/** The commands in the text's first block, without their comments. */
function linesOf(text: string): string[] {
  const block = /^```sh\n(.*?)^```/ms.exec(text)?.[1] ?? "";
  return block
    .trimEnd()
    .split("\n")
    .map((line) => line.replace(/ +# .*$/, ""));
}

function shellOf(daemon: TestDaemon, line: string): { script: string; options: object } {
  const svc = `svc() { "${process.execPath}" "${main}" "$@" --socket "${daemon.socketPath}"; }`;
  const own = `sudo() { "$@"; }\n${svc}\n${line.replaceAll("/run/svc/svc.sock", daemon.socketPath)}`;
  return { script: own, options: { env: { PATH: process.env["PATH"] ?? "", HOME: daemon.dir } } };
}

function type(daemon: TestDaemon, line: string): Promise<string> {
  const { script, options } = shellOf(daemon, line);
  return new Promise((resolve, reject) => {
    execFile("sh", ["-c", script], options, (error, out, err) => {
      if (error === null) resolve(out);
      else reject(new Error(`${line}: ${err}${out}`));
    });
  });
}

/** Until this much output has arrived; then Ctrl-C. */
async function watch(daemon: TestDaemon, line: string, pattern: RegExp): Promise<string> {
  const { script, options } = shellOf(daemon, line);
  const child = spawn("sh", ["-c", script], {
    ...options,
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  const timer = setTimeout(() => process.kill(-(child.pid ?? 0), "SIGKILL"), watchMs);
  let out = "";
  for await (const chunk of child.stdout.setEncoding("utf8")) {
    out += chunk as string;
    if ((out.match(pattern)?.length ?? 0) >= framesToSee) break;
  }
  const ended = child.exitCode === null ? once(child, "exit") : undefined;
  process.kill(-(child.pid ?? 0), "SIGINT");
  await ended;
  clearTimeout(timer);
  return out;
}

(isRoot ? test : test.skip)(`the guide's tour of the host works as it is written${needsRoot}`, async (t) => {
  t.timeout(5 * 60_000);
  const text = await readPage("docs/monitoring.md");
  const dir = await mkdtemp(join(tmpdir(), "svc-tour-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const rebooted = join(dir, "rebooted");
  const config = `[metrics]\ninterval_secs = 1\napp_interval_secs = 1\n[system]\nreboot_command = ["mkdir", "${rebooted}"]`;
  await using daemon = await startDaemon({ config });
  const apps = daemon.client(AppService);
  const port = await freePort();
  await apps.installApp({ spec: "hello", settings: { port } });
  await apps.startApp({ id: "hello" });
  await eventually(
    async () => assert.equal((await apps.getApp({ id: "hello" })).health, "healthy"),
    deadlineMs,
  );
  await eventually(() => type(daemon, "svc host"), deadlineMs);
  const listening = await type(daemon, `svc listening ${port} --json`);
  const { ports } = JSON.parse(listening) as { ports: { pid: number }[] };
  const pid = ports[0]?.pid ?? 0;

  const asserted = new Set<string>();
  const expect = async (line: string, isIt: boolean, check: () => Promise<void>): Promise<void> => {
    if (!isIt) return;
    asserted.add(line);
    await check();
  };
  for (const line of linesOf(text)) {
    const real = line
      .replace("listening 8080", `listening ${port}`)
      .replace("kill 4711", `kill ${pid}`)
      .replace("svc reboot", "svc reboot --yes");
    await expect(line, line.endsWith("--watch"), async () => {
      t.regex(await watch(daemon, real, /\bmemory\b/gi), /[▁▂▃▄▅▆▇█]/, "with sparklines");
    });
    await expect(line, line === "svc host", async () => {
      t.regex(await type(daemon, real), /^Memory: .* of .*%/m);
    });
    await expect(line, line === "svc top", async () => {
      t.regex(await type(daemon, real), new RegExp(`^ *${pid} .*\\bhello\\b`, "m"));
    });
    await expect(line, line.startsWith("svc listening"), async () => {
      t.regex(await type(daemon, real), new RegExp(`^ *${port} +tcp .*\\bhello\\b.*\\b${pid}\\b`, "m"));
    });
    await expect(line, line.includes("/history"), async () => {
      // At first there is no usage of an app.
      await eventually(async () => {
        const { samples } = JSON.parse(await type(daemon, real)) as { samples: unknown[] };
        assert.ok(samples.length >= 1 && samples.length <= 300, line);
      }, deadlineMs);
    });
    await expect(line, line.endsWith("/metrics"), async () => {
      await eventually(async () => {
        const series = await type(daemon, real);
        assert.match(series, /^node_memory_MemAvailable_bytes \d+$/m);
        assert.match(series, /^svc_app_\w+\{app="hello"\} /m);
      }, deadlineMs);
    });
    await expect(line, line.startsWith("sudo svc kill"), async () => {
      t.is(await type(daemon, real), `Sent term to ${pid}\n`);
      await eventually(async () => {
        const { state, restarts } = await apps.getApp({ id: "hello" });
        assert.ok(state !== "RUNNING" || restarts > 0);
      }, deadlineMs);
    });
    await expect(line, line === "sudo svc reboot", async () => {
      await type(daemon, real);
      await eventually(() => access(rebooted), deadlineMs);
    });
  }
  t.deepEqual([...asserted], linesOf(text), "each command is covered");
  await apps.removeApp({ id: "hello" });
});

(isRoot ? test : test.skip)(
  `the guide's alert is sent when a file system becomes full${needsRoot}`,
  async (t) => {
    t.timeout(5 * 60_000);
    const dir = await mkdtemp(join(tmpdir(), "svc-tour-"));
    t.teardown(() => rm(dir, { recursive: true, force: true }));
    const [disk, sentFile, mail] = [join(dir, "disk"), join(dir, "told"), join(dir, "mail")];
    await mkdir(disk);
    await writeFile(mail, `#!/bin/sh\n{ echo "$@"; cat; } >> ${sentFile}\n`, { mode: 0o755 });
    const alert = /^```toml\n(.*?)^```/ms.exec(await readPage("docs/monitoring.md"))?.[1] ?? "";
    t.regex(alert, /^\[\[alerts\]\]\n/);
    const config = alert
      .replace(/^when = .*$/m, (line) => `${line}\npath = "${disk}"`)
      .replace("for_secs = 300", "for_secs = 1")
      .replace("| mail ", `| ${mail} `);
    await using daemon = await startDaemon({
      config: `[metrics]\ninterval_secs = 1\n${config}`,
      launcher: [
        "unshare",
        "--mount",
        "sh",
        "-c",
        `mount -t tmpfs -o size=8m tmpfs ${disk} && exec "$@"`,
        "sh",
      ],
    });
    const mailText = async (): Promise<string> => readFile(sentFile, "utf8");
    const file = `/proc/${daemon.pid}/root${disk}/large`;
    await writeFile(file, Buffer.alloc(7.5 * 1024 * 1024));
    await eventually(
      async () => assert.match(await mailText(), /^-s disk firing ops@example\.org\n.* full\n$/),
      deadlineMs,
    );
    t.regex(await type(daemon, "svc status"), /\bdisk\b.* full/);
    await rm(file);
    await eventually(async () => assert.match(await mailText(), /-s disk resolved /), deadlineMs);
    t.notRegex(await type(daemon, "svc status"), /disk.* full/);
  },
);
