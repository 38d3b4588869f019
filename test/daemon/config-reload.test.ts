/** `svc daemon reload` and SIGHUP: what a running daemon takes over of a changed configuration, and what it leaves as it was. */
import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { startDaemon } from "../support/daemon.ts";
import type { TestDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { errorOf } from "../support/errors.ts";

async function sourcesOf(daemon: TestDaemon): Promise<string[]> {
  const { sources } = await daemon.client(SourceService).listSources({});
  return sources.map(({ name }) => name);
}

test("what can be taken over is, a restart is named for the rest, and a wrong file changes nothing", async (t) => {
  await using daemon = await startDaemon();
  const service = daemon.client(DaemonService);
  const before = await readFile(daemon.configFile, "utf8");
  const index = join(daemon.dir, "index");
  await mkdir(index);
  const more = `
[[sources]]
name = "fresh"
url = ${JSON.stringify(index)}
[[alerts]]
name = "full"
when = "filesystem"
above_percent = 1
for_secs = 0
[limits]
max_apps_per_user = 7
`;
  t.like(await service.reloadConfig({}), { applied: [], needsRestart: [] });
  await writeFile(daemon.configFile, before + more);
  t.like(await service.reloadConfig({}), {
    applied: ["alerts", "sources"],
    needsRestart: ["limits.max_apps_per_user"],
  });
  t.true((await sourcesOf(daemon)).includes("fresh"));
  // It waits still, and what was taken over is nothing new any more.
  const told = await runSvc(["daemon", "reload"], { host: { sockets: socketsOf(daemon) } });
  t.is(told.stdout, "After a restart of the daemon: limits.max_apps_per_user\n", told.stderr);
  await eventually(async () => {
    const { alerts } = await service.getStatus({});
    assert.ok(
      alerts.some(({ name }) => name === "full"),
      JSON.stringify(alerts.map(({ name }) => name)),
    );
  }, 60_000);

  await writeFile(daemon.configFile, `${before}nonsense = 1\n`);
  t.like(await errorOf(service.reloadConfig({})), { reason: "invalid_request" });
  t.true((await sourcesOf(daemon)).includes("fresh"));

  // A hang-up does the same, and the daemon goes on.
  const { pid } = daemon;
  await writeFile(daemon.configFile, before);
  process.kill(pid, "SIGHUP");
  await eventually(async () => {
    assert.ok(!(await sourcesOf(daemon)).includes("fresh"), daemon.log());
  }, 40_000);
  t.is(daemon.pid, pid);
  // What it writes to its log comes through a pipe.
  await eventually(() => assert.match(daemon.log(), /svc has read its configuration again/), 40_000);
});

function socketsOf({ socketPath }: TestDaemon): { checkoutDir: undefined; system: string; user: string } {
  return { checkoutDir: undefined, system: socketPath, user: socketPath };
}
