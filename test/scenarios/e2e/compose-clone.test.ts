/** A clone of a compose project gets a copy of the original's engine volumes, and does not share it. */
import assert from "node:assert/strict";
import { join } from "node:path";
import test from "ava";
import type { VolumeInspectInfo } from "dockerode";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { isCopied } from "../../../src/runtimes/compose/volume-copy.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { startDaemon } from "../../support/daemon.ts";
import { startEngine, type TestEngine } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { projectFiles, writeFiles } from "../../support/packages.ts";
import { ownershipOf } from "../../support/ownership.ts";

const nobody = 65534;
/** Prints the file's content, and creates it if it is missing. */
const script =
  "ls -lnR /state /more/deep | grep -v ^total | md5sum; cat /state/who /more/deep/who 2>/dev/null || { echo fresh; " +
  "for d in /state /more/deep; do echo $WHO > $d/who; chmod 600 $d/who; mkdir $d/dir; ln -s ../who $d/dir/link; done; }; " +
  "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

async function volumesOf(engine: TestEngine, id: string): Promise<string[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  const { Volumes: volumes } = (await engine.request("GET", `/volumes?filters=${filters}`)).expect(200) as {
    Volumes: { Name: string }[] | null;
  };
  return (volumes ?? []).map(({ Name }) => Name).sort();
}

async function containersOf(engine: TestEngine, id: string): Promise<string[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  const answer = await engine.request("GET", `/containers/json?all=1&filters=${filters}`);
  return (answer.expect(200) as { Id: string }[]).map(({ Id }) => Id);
}

composeTest(
  `a clone has its own copies of the original's volumes, even without the original's image${needsCompose}`,
  async (t) => {
    await using engine = await startEngine();
    const image = `${(await engine.registry()).host}/box:latest`;
    await engine.images.build(image);
    await engine.images.push(image);
    await using daemon = await startDaemon({ config: engine.config });
    await using user = await daemon.as(nobody);
    const apps = user.client(AppService, "grpc");
    const dir = join(daemon.dir, "keeper");
    const volumes = { state: "/state", more: "/more/deep" };
    const service = { image, environment: { WHO: "original" } };
    await writeFiles(dir, projectFiles({ id: "keeper", script, volumes, service }));
    await apps.installApp({ spec: dir });
    const said = async (id: string, tail = 2): Promise<string[]> => {
      const { lines } = await apps.getAppLogs({ id, tail });
      return lines.map(({ text }) => text.replace(/^web +\| /, ""));
    };
    await apps.startApp({ id: "keeper" });
    await eventually(async () => assert.equal((await said("keeper"))[1], "fresh"), 30_000);
    await apps.restartApp({ id: "keeper" });
    await eventually(async () => assert.deepEqual(await said("keeper"), ["original", "original"]), 30_000);
    const { id, copiedBytes } = await apps.cloneApp({ id: "keeper" });
    t.true(copiedBytes > 2_000n);
    t.deepEqual(
      await volumesOf(engine, id),
      ["more", "state"].map((key) => `${ownershipOf(daemon).projectOf(id)}_${key}`),
    );
    t.deepEqual(await containersOf(engine, id), [], "the container for the copy is gone");

    await apps.startApp({ id });
    await eventually(async () => {
      const lines = await said(id, 3);
      // The same modes, owners, sizes, links and contents.
      assert.deepEqual(lines, await said("keeper", 3));
      assert.equal(lines[2], "original");
    }, 30_000);
    await apps.removeApp({ id: "keeper" });
    t.deepEqual(await volumesOf(engine, "keeper"), []);
    await apps.restartApp({ id });
    await eventually(async () => assert.deepEqual(await said(id), ["original", "original"]), 30_000);

    await apps.stopApp({ id });
    for (const container of await containersOf(engine, id)) {
      (await engine.request("DELETE", `/containers/${container}?force=1`)).expect(204);
    }
    await engine.images.remove(image);
    const { id: third } = await apps.cloneApp({ id });
    await apps.startApp({ id: third });
    await eventually(async () => assert.deepEqual(await said(third), ["original", "original"]), 30_000);
    await apps.removeApp({ id: third });

    // A failed clone leaves nothing: the engine stops in the middle of it.
    await engine.stop();
    t.is((await errorOf(apps.cloneApp({ id }))).code, "Unavailable");
    await engine.start();
    await eventually(async () => {
      assert.deepEqual(
        (await apps.listApps({})).apps.map((app) => app.id),
        [id],
      );
      assert.deepEqual(await volumesOf(engine, `${id}-2`), []);
    }, 30_000);
  },
);

composeTest(`a clone asks before both apps use a volume${needsCompose}`, async (t) => {
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService, "grpc");
  const dir = join(daemon.dir, "sharer");
  const document = {
    services: {
      web: { image: "svc/box:latest", volumes: ["state:/state"] },
    },
    volumes: { state: { name: "its-own" } },
  };
  await writeFiles(dir, {
    "svc.yaml":
      'id: sharer\nname: Sharer\nversion: "1.0.0"\ncompose: { file: compose.yaml }\npermissions: [host_mounts]\n',
    "compose.yaml": JSON.stringify(document),
  });
  await apps.installApp({ spec: dir, permissionsAck: true });
  await apps.startApp({ id: "sharer" });
  const error = await errorOf(apps.cloneApp({ id: "sharer" }));
  t.is(error.reason, "volumes_shared");
  t.regex(error.message, /both use the volume its-own, /);
  const { apps: known } = await apps.listApps({});
  t.deepEqual(
    known.map(({ id }) => id),
    ["sharer"],
    "nothing of the copy is left",
  );
  const { id } = await apps.cloneApp({ id: "sharer", shareVolumes: true });
  t.is(id, "sharer-2");
  t.deepEqual(await volumesOf(engine, id), []);
});

const plain = {
  ...{ Name: "svc-keeper_state", Driver: "local", Options: null },
  Labels: { "com.docker.compose.volume": "state" },
};
for (const [what, more, expected] of [
  ["of the project", {}, true],
  ["without options", { Options: {} }, true],
  ["with a driver", { Driver: "rexray" }, false],
  ["on another host", { Options: { type: "nfs", device: ":/x" } }, false],
  ["with its own name", { Name: "keeper-data" }, false],
] as const) {
  test(`a volume ${what} is ${expected ? "copied" : "the same for both"}`, (t) => {
    t.is(isCopied({ ...plain, ...more } as unknown as VolumeInspectInfo, "svc-keeper"), expected);
  });
}
