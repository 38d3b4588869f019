/**
 * The owner of an app replaces its supervisor by a program that claims to be a process of root, or kills the helpers
 * that stop the app.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { ProcessService } from "../../gen/svc/v1/process_pb.ts";
import { readProcessIdentity } from "../../src/sys/process-identity.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { eventually, nextEvent } from "../support/eventually.ts";

const rootTest = isRoot ? test : test.skip;
const annUid = 65534;
const endKiller = fileURLToPath(new URL("./end-killer.mjs", import.meta.url));
const program = fileURLToPath(new URL("./false-supervisor.mjs", import.meta.url));

rootTest(
  `an app that claims a process of root protects nothing, and can be removed${needsRoot}`,
  async (t) => {
    t.timeout(180_000);
    await using daemon = await startDaemon();
    await using ann = await daemon.as(annUid);
    const apps = ann.client(AppService);
    const dir = join(daemon.dir, "liar");
    await mkdir(dir);
    await chmod(dir, 0o755);
    await writeFile(
      join(dir, "svc.yaml"),
      'id: liar\nname: liar\nversion: "1"\nprocess: { exec: [sleep, "3600"] }\nrestart: { policy: never }\n',
    );
    const { id } = await apps.installApp({ spec: dir });
    await apps.startApp({ id });
    const script = 'trap "echo signaled" USR1; echo ready; while :; do sleep 1; done';
    const victim = spawn("sh", ["-c", script], { stdio: ["ignore", "pipe", "inherit"] });
    t.teardown(() => victim.kill("SIGKILL"));
    await nextEvent(victim.stdout, "data");
    const pid = victim.pid ?? 0;
    const asAnn = ["--reuid", String(annUid), "--regid", String(annUid), "--clear-groups"];
    const liar = spawn(
      "setpriv",
      [...asAnn, process.execPath, program, join(daemon.storeDir, "run", id), String(pid)],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    t.teardown(() => liar.kill("SIGKILL"));
    // It has sent a hello with the claimed state.
    await nextEvent(liar.stdout, "data");
    await eventually(async () => assert.equal((await apps.getApp({ id })).state, "RUNNING"));

    const signaled = once(victim.stdout, "data");
    await daemon.client(ProcessService).signalProcess({ pid, signal: "usr1" });
    t.is(String((await signaled)[0]), "signaled\n");
    liar.kill("SIGKILL");
    await nextEvent(liar, "exit");
    const root = daemon.client(AppService);
    await root.removeApp({ id });
    t.deepEqual((await root.listApps({})).apps, []);
    t.is(victim.exitCode ?? victim.signalCode, null);
  },
);

for (const [what, helpers, isKilled] of [
  ["each process that ends their app", 0, "killed a sweep"],
  // One may be idle. The others fail three attempts to stop the app, and some to remove its files.
  ["their next seven helpers", 7, "killed a helper"],
] as const)
  rootTest(
    `an owner who kills ${what} does not prevent root from removing the app${needsRoot}`,
    async (t) => {
      t.timeout(180_000);
      await using daemon = await startDaemon();
      await using ann = await daemon.as(annUid);
      const apps = ann.client(AppService);
      const dir = join(daemon.dir, "tough");
      await mkdir(dir);
      await chmod(dir, 0o755);
      await writeFile(
        join(dir, "svc.yaml"),
        'id: tough\nname: tough\nversion: "1"\nprocess: { exec: [sleep, "3600"] }\nrestart: { policy: never }\n',
      );
      const { id } = await apps.installApp({ spec: dir });
      await apps.startApp({ id });
      const runDir = join(daemon.storeDir, "run", id);
      const stateText = await readFile(join(runDir, "state.json"), "utf8");
      const { supervisor, app } = JSON.parse(stateText) as Record<"supervisor" | "app", { pid: number }>;
      const asAnn = ["--reuid", String(annUid), "--regid", String(annUid), "--clear-groups"];
      const killer = spawn(
        "setpriv",
        [...asAnn, process.execPath, endKiller, runDir, String(daemon.pid), String(helpers)],
        { stdio: ["ignore", "pipe", "inherit"] },
      );
      t.teardown(() => killer.kill("SIGKILL"));
      const said: string[] = [];
      killer.stdout.on("data", (text: Buffer) => said.push(...text.toString().trim().split("\n")));
      await once(killer.stdout, "data");
      // From now on only a helper can stop the app, and its owner can kill helpers.
      process.kill(supervisor.pid, "SIGKILL");
      const root = daemon.client(AppService);
      await root.removeApp({ id });
      t.deepEqual((await root.listApps({})).apps, []);
      t.is(await readProcessIdentity(app.pid), undefined);
      t.true(said.includes(isKilled), said.join());
      t.is(said.filter((line) => line === "killed a helper").length, helpers);
    },
  );
