/** The streaming variants: progress with a result at the end, followed logs, statistics. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import type { TestDaemon } from "../support/daemon.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { addVersion, freePort, writeFiles, writePackage, writeRepository } from "../support/packages.ts";

const emptyDaemon = sharedDaemon();

const streaming = ["connect", "grpc", "grpc-web"] as const;

for (const protocol of streaming) {
  test(`install, upgrade and clone report progress and end with their result (${protocol})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService, protocol);
    const port = await freePort();
    const build = "  build:\n    - exec: [sh, -c, 'echo one; echo two']\n";
    const repository = join(daemon.dir, "web.git");
    const options = (version: string) => ({
      version,
      manifest: "",
      files: {
        "svc.yaml": `id: web\nname: Web\nversion: "${version}"\nprocess:\n  exec: [node, server.mjs]\n${build}`,
      },
    });
    const spec = await writeRepository(repository, port, [options("1.0.0")]);

    const installs = await Array.fromAsync(apps.installAppStream({ spec }));
    const last = installs.at(-1)?.event;
    t.true(last?.case === "app" && last.value.state === "STOPPED");
    const lines = installs.flatMap(({ event }) =>
      event.case === "progress" && event.value.step === "build" ? [event.value.message] : [],
    );
    t.deepEqual(lines.slice(1), ["one", "two"]);

    await addVersion(repository, port, options("1.1.0"));
    const upgrades = await Array.fromAsync(apps.upgradeAppStream({ id: "web" }));
    const upgraded = upgrades.at(-1)?.event;
    t.true(upgraded?.case === "result" && upgraded.value.to === "v1.1.0");

    const clones = await Array.fromAsync(apps.cloneAppStream({ id: "web" }));
    const cloned = clones.at(-1)?.event;
    t.true(cloned?.case === "result" && cloned.value.id === "web-2");
    t.true(clones.some(({ event }) => event.case === "progress" && event.value.step === "copy"));

    t.like(await errorOf(apps.cloneAppStream({ id: "nothing" })), { code: "NotFound" });
  });

  test(`a followed log starts with its tail and continues across a restart (${protocol})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService, protocol);
    const dir = join(daemon.dir, "package");
    await writePackage(dir, await freePort(), {
      files: {
        "server.mjs": `let n = 0; setInterval(() => console.log("line " + ++n + " of " + process.pid), 50);`,
      },
    });
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "web" });
    await eventually(async () => assert.ok((await apps.getAppLogs({ id: "web" })).lines.length > 5));
    const stop = new AbortController();
    const pids = new Set<string>();
    let lines = 0;
    const followed = (async () => {
      for await (const chunk of apps.streamAppLogs({ id: "web", tail: 3 }, { signal: stop.signal })) {
        for (const { text, stream } of chunk.lines) {
          if (stream !== "stdout") continue;
          lines++;
          pids.add(text.split(" of ")[1] ?? "");
        }
      }
    })();
    await eventually(() => assert.ok(lines > 10));
    await apps.restartApp({ id: "web" });
    await eventually(() => assert.equal(pids.size, 2), 20_000);
    stop.abort();
    await t.throwsAsync(followed);
    await apps.removeApp({ id: "web" });
  });

  test(`statistics are pushed until the client disconnects (${protocol})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService, protocol);
    const dir = join(daemon.dir, "package");
    await writePackage(dir, await freePort());
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "web" });
    const sampledMs: number[] = [];
    for await (const { stats } of apps.streamAppStats({ minIntervalSecs: 0 })) {
      t.deepEqual(
        stats.map(({ id }) => id),
        ["web"],
      );
      const sampledAt = stats[0]?.sampledAt;
      sampledMs.push(sampledAt === undefined ? 0 : timestampMs(sampledAt));
      if (sampledMs.length === 3) break;
    }
    // The server's minimum interval is one second; without it, a frame would follow each window of 500 ms.
    t.true((sampledMs[2] ?? 0) - (sampledMs[0] ?? 0) > 1_400);
    await apps.removeApp({ id: "web" });
  });
}

/** An app with an operation in progress until it is canceled; `begin` starts it. */
interface Canceled {
  readonly manifest: string;
  readonly isThereBefore: boolean;
  readonly begin: (daemon: TestDaemon, spec: string) => Promise<unknown>;
}

const forever = 'exec: [sleep, "3600"]';
const canceled: Readonly<Record<string, Canceled>> = {
  install: {
    manifest: `process: { exec: [node, server.mjs], build: [{ ${forever} }] }`,
    isThereBefore: false,
    begin: (daemon, spec) => daemon.client(AppService).installApp({ spec }),
  },
  upgrade: {
    manifest: `process: { exec: [node, server.mjs] }\nmigrate: { ${forever} }`,
    isThereBefore: true,
    begin: (daemon) => daemon.client(AppService).upgradeApp({ id: "web" }),
  },
  backup: {
    manifest: `process: { exec: [node, server.mjs] }\nbackup: { dump: { ${forever} } }`,
    isThereBefore: true,
    begin: (daemon) => daemon.client(BackupService).createBackup({ appId: "web" }),
  },
};

for (const [kind, { manifest, isThereBefore, begin }] of Object.entries(canceled)) {
  test(`an operation that another caller cancels ends and is rolled back (${kind})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService);
    const spec = join(daemon.dir, "package");
    await writeFiles(spec, {
      "svc.yaml": `id: web\nname: Web\nversion: "1.0.0"\n${manifest}\n`,
      "server.mjs": "",
    });
    if (isThereBefore) await apps.installApp({ spec });
    const begun = errorOf(begin(daemon, spec));
    await eventually(async () =>
      assert.deepEqual(
        (await apps.listApps({})).apps.map(({ operation }) => [operation?.kind, operation?.cancelable]),
        [[kind, true]],
      ),
    );
    const { operation } = await apps.cancelAppOperation({ id: "web" });
    t.is(operation?.kind, kind, "the app is unchanged");
    t.like(await begun, { reason: "canceled" });
    const left = (await apps.listApps({})).apps;
    t.deepEqual(
      left.map(({ state, version, operation: other }) => ({ state, version, other })),
      isThereBefore ? [{ state: "STOPPED", version: "1.0.0", other: undefined }] : [],
    );
    const again = errorOf(apps.cancelAppOperation({ id: "web" }));
    t.like(await again, { reason: isThereBefore ? "not_possible" : "not_found" });
  });
}
