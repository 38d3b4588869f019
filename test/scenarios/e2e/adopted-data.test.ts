/** Data of adopted compose projects: backups, clones, removals and moves of their apps. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { runSvc } from "../../cli/support/run-svc.ts";
import { isRoot, startDaemon } from "../../support/daemon.ts";
import { needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { writeFiles } from "../../support/packages.ts";
import { createStack, slowMs, statesOf, volumeNames } from "../../support/unmanaged-stack.ts";

const run = promisify(execFile);
const engineNow = sharedEngine();
const needs = `${needsDocker}${isRoot ? "" : " (skipped: needs root)"}`;
const adoptTest = whyNoDocker === undefined && isRoot ? test.serial : test.skip;

adoptTest(`a backup of an adopted project contains its volume${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, compose, svc, served } = await createStack(engineNow(), "backed");
  await using _daemon = daemon;
  await compose("up", "--detach");
  const before = await served();
  await svc("adopt", "backed", "--remove-old", "--yes");
  t.deepEqual(await statesOf(engineNow(), "backed-web"), [], "the old container is removed");
  const backups = daemon.client(BackupService);
  const { results } = await backups.createBackup({ appId: "backed" });
  const [archive] = results;
  const apps = daemon.client(AppService);
  await apps.stopApp({ id: "backed" });
  await run(
    "docker",
    ["run", "--rm", "-v", "backed_data:/data", "busybox", "/bin/sh", "-c", "echo lost > /data/born"],
    {
      env: { ...process.env, DOCKER_HOST: `unix://${engineNow().socket}` },
    },
  );
  await backups.restoreBackup({
    appId: "backed",
    storage: archive?.storage ?? "",
    name: archive?.name ?? "",
  });
  await apps.startApp({ id: "backed" });
  t.deepEqual(await served(), before);
  await apps.removeApp({ id: "backed" });
  t.true((await volumeNames(engineNow())).includes("backed_data"));

  // The next app with this ID may belong to another user.
  const next = join(daemon.dir, "next");
  await writeFiles(next, { "compose.yaml": "services: { web: { image: busybox } }\n" });
  await svc("install", next, "--name", "backed", "--yes");
  await apps.removeApp({ id: "backed" });
  t.true((await volumeNames(engineNow())).includes("backed_data"), "it is not the next app's volume");
});

adoptTest(`a clone of an adopted project has copies of its volumes${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, svc, served } = await createStack(engineNow(), "source");
  await using _daemon = daemon;
  await compose("up", "--detach");
  const [data, , cache] = await served();
  await svc("adopt", "source", "--yes");
  const apps = daemon.client(AppService);
  const error = await errorOf(apps.cloneApp({ id: "source" }));
  t.is(error.reason, "volumes_shared");
  t.regex(error.message, new RegExp(`adopted paths \\(${join(dir, "site")}\\)`));
  const { id } = await apps.cloneApp({ id: "source", shareVolumes: true });
  await apps.startApp({ id });
  const { ports } = await apps.listAppPorts({ id });
  const read = async (path: string): Promise<string> => {
    let text = "";
    await eventually(async () => {
      text = await (await fetch(`http://127.0.0.1:${String(ports[0]?.port)}/${path}`)).text();
    }, slowMs);
    return text;
  };
  t.is(await read("data/born"), data ?? "");
  t.is(await read("cache/born"), cache ?? "");
  const before = await volumeNames(engineNow());
  await apps.removeApp({ id });
  const left = await volumeNames(engineNow());
  t.is(before.filter((name) => !left.includes(name)).length, 2, "the copies are removed with the clone");
  t.true(left.includes("source_data"));
});

adoptTest(`svc remove names the adopted data that stays${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, svc, served } = await createStack(engineNow(), "kept");
  await using _daemon = daemon;
  await compose("up", "--detach");
  await served();
  await svc("adopt", "kept", "--remove-old", "--yes");
  const apps = daemon.client(AppService);
  const { adopted } = await apps.getApp({ id: "kept" });
  t.deepEqual(adopted?.paths, [join(dir, "site")]);
  t.true(adopted?.volumes.includes("kept_data"));
  t.is(adopted?.volumes.length, 2, "the anonymous volume, too");

  const kept = `volumes ${adopted?.volumes.join(", ") ?? ""}; path ${dir}/site`;
  t.true((await svc("info", "kept")).includes(kept));
  const planned = await svc("rm", "kept", "--dry-run");
  t.regex(planned, /Would remove kept and free \d/);
  t.true(planned.includes(`adopted data would stay: ${kept}`), planned);
  const { size_bytes: size } = JSON.parse(await svc("rm", "kept", "--dry-run", "--json")) as {
    size_bytes: number;
  };
  const disk = await apps.getAppDisk({ id: "kept" });
  const volumeBytes = disk.volumes.reduce((sum, { sizeBytes }) => sum + Number(sizeBytes), 0);
  t.true(volumeBytes > 0);
  t.is(size, Number(disk.totalBytes) - volumeBytes);
  t.is(size, Number(disk.removableBytes));
  const error = await t.throwsAsync(svc("rm", "kept"));
  t.true(error.message.includes(`this deletes kept with all data, except adopted data (${kept})`));
  const removed = await svc("rm", "kept", "--yes");
  t.true(removed.includes(`adopted data stays: ${kept}`), removed);
});

adoptTest(`a move to another node asks first about adopted data that stays${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, svc, served } = await createStack(engineNow(), "moved");
  await using _daemon = daemon;
  await using attic = await startDaemon();
  await compose("up", "--detach");
  await served();
  await svc("adopt", "moved", "--remove-old", "--yes");
  const host = { home: daemon.dir, uid: 0 };
  const onNode = (...args: string[]) => runSvc(["--socket", daemon.socketPath, ...args], { host });
  await onNode("node", "add", "attic", `unix://${attic.socketPath}`);
  const { adopted } = await daemon.client(AppService).getApp({ id: "moved" });
  const unnamed = adopted?.volumes.find((name) => name !== "moved_data") ?? "";
  const stays = `adopted data of moved stays on this node: ${unnamed}, ${dir}/site`;

  const planned = await onNode("app", "move", "moved", "--to", "attic", "--dry-run");
  t.true(planned.stdout.includes(stays), planned.stdout + planned.stderr);
  for (const verb of ["move", "copy"]) {
    const { stderr, exitCode } = await onNode("app", verb, "moved", "--to", "attic");
    t.is(exitCode, 2);
    t.true(stderr.includes(`${stays}; pass --yes to confirm`), stderr);
  }
  t.deepEqual((await attic.client(AppService).listApps({})).apps, []);
  await daemon.client(AppService).removeApp({ id: "moved" });
});
