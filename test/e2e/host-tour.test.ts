/** The commands of the guide about the host and its alert, as a new user would type them. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { access, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { readPage } from "../support/docs.ts";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";

const deadlineMs = 60_000;
/** Endless commands are stopped after this many samples. */
const framesToSee = 2;
const watchMs = 60_000;

/** The commands of its first block, without their comments. */
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
  const text = await readPage("docs/host.md");
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
    const [disk, told, mail] = [join(dir, "disk"), join(dir, "told"), join(dir, "mail")];
    await mkdir(disk);
    await writeFile(mail, `#!/bin/sh\n{ echo "$@"; cat; } >> ${told}\n`, { mode: 0o755 });
    const alert = /^```toml\n(.*?)^```/ms.exec(await readPage("docs/host.md"))?.[1] ?? "";
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
    const said = async (): Promise<string> => readFile(told, "utf8");
    const file = `/proc/${daemon.pid}/root${disk}/large`;
    await writeFile(file, Buffer.alloc(7.5 * 1024 * 1024));
    await eventually(
      async () => assert.match(await said(), /^-s disk firing ops@example\.org\n.* full\n$/),
      deadlineMs,
    );
    t.regex(await type(daemon, "svc status"), /\bdisk\b.* full/);
    await rm(file);
    await eventually(async () => assert.match(await said(), /-s disk resolved /), deadlineMs);
    t.notRegex(await type(daemon, "svc status"), /disk.* full/);
  },
);
