/** A supervisor that exits without svc is replaced together with its app: no app runs without a supervisor. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import type { TestDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { noneLeft, processesIn, signal } from "../support/processes.ts";

const emptyDaemon = sharedDaemon();

/** Other tests keep the CPUs busy. */
const deadlineMs = 40_000;
const promisedMs = 5_000;

/** Leaves its session twice, so that only the cookie identifies it. */
const server = `
import { createServer } from "node:http";
import { spawn } from "node:child_process";
spawn("sh", ["-c", "setsid sleep 100000 & exit"], { detached: true, stdio: "ignore" });
createServer((request, response) => response.end(String(process.pid))).listen(Number(process.env.PORT), "127.0.0.1");
`;

const whiles: Record<string, (daemon: TestDaemon, strike: () => void) => Promise<void>> = {
  "while the daemon watches": async (_daemon, strike) => {
    strike();
    return Promise.resolve();
  },
  "while no daemon runs": async (daemon, strike) => {
    await daemon.kill();
    strike();
    await daemon.restart();
  },
  "while the daemon is paused": async (daemon, strike) => {
    signal(daemon.pid, "SIGSTOP");
    strike();
    signal(daemon.pid, "SIGCONT");
    return Promise.resolve();
  },
};

for (const name of ["SIGKILL", "SIGTERM"] as const) {
  for (const [when, around] of Object.entries(whiles)) {
    test(`a supervisor that exits by ${name} ${when} is replaced`, async (t) => {
      const daemon = await emptyDaemon();
      const apps = daemon.client(AppService);
      const port = await freePort();
      await writePackage(join(daemon.dir, "package"), port, { files: { "server.mjs": server } });
      await apps.installApp({ spec: join(daemon.dir, "package") });
      await apps.startApp({ id: "web" });
      const answer = async (): Promise<string> => (await fetch(`http://127.0.0.1:${port}`)).text();
      // The current duration of a start on this host.
      const restartedMs = performance.now();
      await apps.restartApp({ id: "web" });
      const before = await eventually(answer);
      const busyMs = performance.now() - restartedMs;
      const beforePids = processesIn(daemon.storeDir);
      const state = await readFile(join(daemon.storeDir, "run", "web", "state.json"), "utf8");
      const { supervisor } = JSON.parse(state) as { supervisor: { pid: number } };

      await around(daemon, () => signal(supervisor.pid, name));
      // The time from which a daemon can see it.
      const begunMs = performance.now();
      await eventually(async () => {
        assert.notEqual(await answer(), before);
        const { state: now, enabled } = await apps.getApp({ id: "web" });
        assert.deepEqual({ now, enabled }, { now: "RUNNING", enabled: true });
      }, deadlineMs);
      const tookMs = Math.round(performance.now() - begunMs);
      t.log(`replaced after ${tookMs} ms`);
      t.true(tookMs < promisedMs + 3 * busyMs, `${tookMs} ms, and a start takes ${Math.round(busyMs)} ms`);
      await noneLeft(daemon.storeDir, deadlineMs, beforePids);

      // A user's request has precedence.
      const again = JSON.parse(await readFile(join(daemon.storeDir, "run", "web", "state.json"), "utf8")) as {
        supervisor: { pid: number };
      };
      signal(again.supervisor.pid, name);
      await eventually(() => apps.stopApp({ id: "web" }), deadlineMs);
      t.like(await apps.getApp({ id: "web" }), { state: "STOPPED", enabled: false });
      await noneLeft(daemon.storeDir, deadlineMs);
    });
  }
}
