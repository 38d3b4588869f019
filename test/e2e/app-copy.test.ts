/** Copying an app with its data between two nodes: two daemons with their own stores. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import anyTest from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { runSvc, type SvcRun } from "../cli/support/run-svc.ts";
import { startDaemon } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { needsSsh, startSshServer } from "../support/ssh-server.ts";

const sshTest = needsSsh === "" ? anyTest : anyTest.skip;

sshTest(`an app is copied from one node to another, over ssh, with its data${needsSsh}`, async (t) => {
  await using here = await startDaemon();
  await using there = await startDaemon();
  await using server = await startSshServer();
  const home = await mkdtemp(join(tmpdir(), "svc-copy-"));
  t.teardown(() => rm(home, { recursive: true }));
  const svc = (...args: string[]): Promise<SvcRun> =>
    runSvc(args, { host: { home, uid: process.getuid?.() ?? 0, env: { SVC_SSH: server.ssh } } });
  await svc("node", "add", "near", `unix://${here.socketPath}`);
  await svc("node", "add", "attic", `ssh://root@127.0.0.1:${server.port}${there.socketPath}`);
  await svc("node", "use", "near");
  const dir = join(here.dir, "package");
  await writePackage(dir, await freePort());
  const apps = here.client(AppService);
  await apps.installApp({ spec: dir, settings: { greeting: "moin" } });
  await apps.startApp({ id: "web" });
  const written = await svc(
    "app",
    "shell",
    "web",
    "--",
    "sh",
    "-c",
    "echo precious > ../data/notes.txt || echo precious > data/notes.txt",
  );
  t.is(written.exitCode, 0, written.stderr);

  const plan = await svc("app", "copy", "web", "--to", "attic", "--dry-run");
  t.is(plan.exitCode, 0, plan.stderr);
  t.regex(plan.stdout, /^web would be copied to attic \(.* are free there\); its owner there is root$/m);
  t.deepEqual((await there.client(AppService).listApps({})).apps, []);

  const accepts = "--accept-permissions";
  const copied = await svc("app", "copy", "web", "--to", "attic", accepts);
  t.is(copied.exitCode, 0, copied.stderr);
  t.regex(copied.stdout, /^Copied web to attic as web \(.*\)\. Start it: svc -N attic start web$/m);
  t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
  t.is((await there.client(AppService).getApp({ id: "web" })).state, "STOPPED");
  t.is((await svc("-N", "attic", "file", "cat", "web:data/notes.txt")).stdout, "precious\n");
  const { values } = await there.client(AppService).getAppSettings({ id: "web" });
  t.is(values?.["greeting"], "moin");

  const again = await svc("app", "copy", "web", "--to", "attic", "--json", accepts);
  t.is(again.exitCode, 0, again.stderr);
  t.like(JSON.parse(again.stdout), { id: "web-2", node: "attic" });
  for (const daemon of [here, there]) {
    const { backups } = await daemon.client(BackupService).listBackups({});
    t.deepEqual(backups, [], "no archive is left");
  }
  t.regex(
    (await svc("app", "copy", "web", "--to", "near")).stderr,
    /web is already on near; .* svc clone web/,
  );
  t.regex(
    (await svc("app", "copy", "web", "--to", "nobody")).stderr,
    /no node "nobody"; list them with: svc node list/,
  );
  t.is((await svc("app", "copy", "nope", "--to", "attic")).exitCode, 3);

  await there.stop();
  const lost = await svc("app", "copy", "web", "--to", "attic");
  t.is(lost.exitCode, 6, lost.stderr);
  t.deepEqual((await here.client(BackupService).listBackups({})).backups, []);
  t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
});
