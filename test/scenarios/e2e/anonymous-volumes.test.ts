/** Volumes that the engine names are removed with the containers that used them; volumes of others stay. */
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { startDaemon } from "../../support/daemon.ts";
import { sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { writeFiles } from "../../support/packages.ts";
import { volumeNames } from "../../support/unmanaged-stack.ts";

const engineNow = sharedEngine();

test.before(async () => {
  if (whyNoDocker === undefined) await engineNow().images.build("svc/shell:1");
});

/** @param mounts volumes of the service @param external name of a volume of somebody else, if the project uses it */
function projectOf(version: string, mounts: readonly string[], external = "", command = "sleep 3600") {
  const volumes = external === "" ? mounts : [...mounts, "theirs:/theirs"];
  return {
    "svc.yaml": `id: anonymous\nname: Anonymous\nversion: "${version}"\ncompose: { file: compose.yaml }\nrestart: { policy: never }\npermissions: [host_mounts]\n`,
    "compose.yaml": `services:
  web:
    image: svc/shell:1
    command: ["/bin/sh", "-c", "trap 'exit 0' TERM; ${command} & wait $$!"]
    environment: { VERSION: "${version}" }
    volumes: ${JSON.stringify(volumes)}
${external === "" ? "" : `volumes: { theirs: { external: true, name: "${external}" } }\n`}`,
  };
}

async function createVolume(): Promise<string> {
  const answer = await engineNow().request("POST", "/volumes/create", {});
  return (answer.expect(201) as { Name: string }).Name;
}

composeTest(
  `an upgrade and a removal of root's app remove its anonymous volumes${needsCompose}`,
  async (t) => {
    t.timeout(240_000);
    const engine = engineNow();
    await using daemon = await startDaemon({ config: engine.config });
    const dir = join(daemon.dir, "anonymous");
    const theirs = await createVolume();
    const before = await volumeNames(engine);
    await writeFiles(dir, projectOf("1", ["/cache"], theirs));
    const apps = daemon.client(AppService);
    const { id } = await apps.installApp({ spec: dir, permissionsAck: true });
    await apps.startApp({ id });
    const own = async (): Promise<string[]> =>
      (await volumeNames(engine)).filter((name) => !before.includes(name));
    const [first = ""] = await own();
    t.regex(first, /^[0-9a-f]{64}$/);

    await writeFiles(dir, projectOf("2", ["/cache"], theirs));
    await apps.upgradeApp({ id, stopApp: true, backup: false });
    t.deepEqual(await own(), [first], "a volume that the new version mounts is passed on");

    await writeFiles(dir, projectOf("3", ["/other"], "", "exit 3"));
    const error = await errorOf(apps.upgradeApp({ id, stopApp: true, backup: false }));
    t.is(error.reason, "start_failed");
    t.true((await own()).includes(first), "a failed upgrade leaves the data");

    const [second = ""] = (await own()).filter((name) => name !== first);
    await writeFiles(dir, projectOf("4", ["/other"]));
    await apps.upgradeApp({ id, stopApp: true, backup: false });
    t.false((await own()).includes(second), "the new version does not mount it");
    t.is((await own()).length, 2);
    await apps.removeApp({ id });
    t.deepEqual(await own(), [first]);
    t.true((await volumeNames(engine)).includes(theirs), "a volume of somebody else stays");
    for (const name of [first, theirs]) (await engine.request("DELETE", `/volumes/${name}`)).expect(204);
  },
);

composeTest(`a backup warns of data in volumes without a name${needsCompose}`, async (t) => {
  t.timeout(240_000);
  const engine = engineNow();
  await using daemon = await startDaemon({ config: engine.config });
  const dir = join(daemon.dir, "anonymous");
  const theirs = await createVolume();
  await writeFiles(dir, projectOf("1", ["/cache"], theirs));
  const apps = daemon.client(AppService);
  const { id } = await apps.installApp({ spec: dir, permissionsAck: true });
  await apps.startApp({ id });
  const { warnings } = await daemon.client(BackupService).createBackup({ appId: id });
  t.deepEqual(warnings, [
    `volume ${theirs} is not in the backup, because it has a custom driver or name`,
    '/cache of service "web" is not in the backup, because its volume has no name; mount a named volume there',
  ]);
  await apps.removeApp({ id });
  (await engine.request("DELETE", `/volumes/${theirs}`)).expect(204);
});
