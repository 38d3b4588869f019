/** An engine that hangs: every call to svc returns in time, and only the engine's own data is missing. */
import assert from "node:assert/strict";
import { join } from "node:path";
import type { Client } from "@connectrpc/connect";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { MonitorService } from "../../gen/svc/v1/monitor_pb.ts";
import { ProcessService } from "../../gen/svc/v1/process_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { startEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, projectFiles, writeFiles, writePackage } from "../support/packages.ts";

type Apps = Client<typeof AppService>;
type Call = () => Promise<unknown> | AsyncIterable<unknown>;

/** The deadline of each call, and the margin of a busy host. */
const promisedMs = 3_000;
const badMomentMs = 2_500;
const forever = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

async function installAll(daemon: TestDaemon): Promise<void> {
  const apps = daemon.client(AppService);
  await writePackage(join(daemon.dir, "hello"), await freePort(), { id: "hello" });
  const box = `docker: { image: "svc/box:latest", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(forever)}] }`;
  await writeFiles(join(daemon.dir, "box"), { "svc.yaml": `id: box\nname: Box\nversion: "1.0.0"\n${box}\n` });
  const stack = { id: "stack", script: forever, volumes: { state: "/state" } };
  await writeFiles(join(daemon.dir, "stack"), projectFiles(stack));
  for (const id of ["hello", "box", "stack"]) {
    await apps.installApp({ spec: join(daemon.dir, id) });
    await apps.startApp({ id });
  }
}

/** Calls about all apps or none: they succeed. */
function ofAll(daemon: TestDaemon): Record<string, Call> {
  const apps = daemon.client(AppService, "grpc");
  return {
    listApps: () => apps.listApps({}),
    getDiskReport: () => apps.getDiskReport({}),
    getPortReport: () => apps.getPortReport({}),
    getAppStats: () => apps.getAppStats({}),
    listUpdates: () => apps.listUpdates({}),
    listStatus: () => daemon.client(DaemonService).getStatus({}),
    listProcesses: () => daemon.client(ProcessService).listProcesses({}),
    listListeningPorts: () => daemon.client(MonitorService).listListeningPorts({}),
    systemMetrics: () => daemon.client(MonitorService).getSystemMetrics({}),
    backups: () => daemon.client(BackupService).listBackups({}),
  };
}

/** Calls about an app, in this order; they may fail, in time. */
function ofOne(apps: Apps, daemon: TestDaemon, id: string): Record<string, Call> {
  const once = async function* <T>(value: T): AsyncGenerator<T, void> {
    yield await Promise.resolve(value);
  };
  return {
    getApp: () => apps.getApp({ id }),
    getAppDisk: () => apps.getAppDisk({ id }),
    getAppImage: () => apps.getAppImage({ id, checkRemote: true }),
    listStacks: () => apps.listStacks({}),
    listAppPorts: () => apps.listAppPorts({ id }),
    getAppLogs: () => apps.getAppLogs({ id }),
    streamAppLogs: () => apps.streamAppLogs({ id }),
    getAppSettings: () => apps.getAppSettings({ id }),
    updateAppSettings: () => apps.updateAppSettings({ id, values: {} }),
    attachConsole: () => apps.attachConsole(once({ appId: id, session: "shell", command: ["true"] })),
    cloneApp: () => apps.cloneApp({ id }),
    createBackup: () => daemon.client(BackupService, "grpc").createBackup({ appId: id, storages: ["local"] }),
    exportApp: () => apps.exportApp({ id, to: "compose" }),
    scaleApp: () => apps.scaleApp({ id, replicas: 1 }),
    cancelAppOperation: () => apps.cancelAppOperation({ id }),
    placeApp: () => apps.placeApp({ id, placement: { on: "swarm" } }),
    repullApp: () => apps.repullApp({ id }),
    restartApp: () => apps.restartApp({ id }),
    stopApp: () => apps.stopApp({ id }),
    startApp: () => apps.startApp({ id }),
    upgradeApp: () => apps.upgradeApp({ id }),
    installApp: () => apps.installApp({ spec: join(daemon.dir, id) }),
    removeApp: () => apps.removeApp({ id }),
  };
}

/** Variants of the above, endless streams, and calls without the engine. */
const elsewhere = new Set([
  ...["installAppStream", "upgradeAppStream", "cloneAppStream", "streamAppStats", "awaitAppStream"],
  ...["issueConsoleToken", "getAppStatsHistory"],
]);

interface Outcome {
  readonly call: string;
  readonly tookMs: number;
  readonly error: Awaited<ReturnType<typeof errorOf>> | undefined;
}

async function outcomeOf(call: string, ask: Call): Promise<Outcome> {
  const startedMs = performance.now();
  const error = await errorOf(ask()).catch((reason: unknown) => {
    assert.equal((reason as Error).message, "the call succeeded");
    return undefined;
  });
  return { call, tookMs: performance.now() - startedMs, error };
}

composeTest(`an engine that hangs delays no call beyond its timeout${needsCompose}`, async (t) => {
  t.timeout(300_000);
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService, "grpc");
  await installAll(daemon);
  const named = new Set([...Object.keys(ofAll(daemon)), ...Object.keys(ofOne(apps, daemon, ""))]);
  for (const method of Object.keys(AppService.method)) {
    t.true(named.has(method) || elsewhere.has(method), `${method} is not covered for an engine that hangs`);
  }

  await engine.pause();
  const outcomes: Outcome[] = [];
  const shared = Promise.all(
    Object.entries(ofAll(daemon)).map(async ([call, ask]) => {
      const outcome = await outcomeOf(call, ask);
      t.is(outcome.error, undefined, `${call}: ${outcome.error?.message}`);
      outcomes.push(outcome);
    }),
  );
  const each = ["box", "stack"].map(async (id) => {
    for (const [call, ask] of Object.entries(ofOne(apps, daemon, id))) {
      const outcome = await outcomeOf(`${call} of ${id}`, ask);
      outcomes.push(outcome);
      if (outcome.error === undefined) continue;
      t.true(
        ["Unavailable", "FailedPrecondition"].includes(outcome.error.code),
        `${outcome.call}: ${outcome.error.message}`,
      );
    }
  });
  // At the same time an app without containers stops and starts, which measures how busy the host is.
  let busyMs = 0;
  const others = (async () => {
    for (const call of ["stopApp", "startApp", "restartApp"] as const) {
      const outcome = await outcomeOf(`${call} of hello`, () => apps[call]({ id: "hello" }));
      t.is(outcome.error, undefined, outcome.error?.message);
      busyMs = Math.max(busyMs, outcome.tookMs);
    }
  })();
  await Promise.all([shared, others, ...each]);
  t.true(busyMs < 8_000, `an app without containers took ${Math.round(busyMs)} ms`);
  for (const { call, tookMs } of outcomes)
    t.true(
      tookMs < promisedMs + badMomentMs + 2 * busyMs,
      `${call} took ${Math.round(tookMs)} ms, ${Math.round(busyMs)} ms elsewhere`,
    );
  const slowest = outcomes.toSorted((a, b) => b.tookMs - a.tookMs).slice(0, 8);
  t.log(
    `${Math.round(busyMs)} ms elsewhere`,
    slowest.map(({ call, tookMs }) => `${call} ${Math.round(tookMs)} ms`).join(", "),
  );

  // Nothing was lost, and everything responds again.
  engine.resume();
  for (const id of ["hello", "box", "stack"]) {
    await eventually(async () => {
      await apps.startApp({ id });
      assert.equal((await apps.getApp({ id })).state, "RUNNING");
    }, 60_000);
  }
});

composeTest(
  `an app that is stopped while the engine hangs during its start is stopped${needsCompose}`,
  async (t) => {
    t.timeout(120_000);
    await using engine = await startEngine();
    await engine.images.build("svc/box:latest");
    await using daemon = await startDaemon({ config: engine.config });
    const apps = daemon.client(AppService);
    const spec = join(daemon.dir, "stack");
    await writeFiles(spec, projectFiles({ id: "stack", script: forever, volumes: {} }));
    await apps.installApp({ spec });
    await engine.pause();
    await errorOf(apps.startApp({ id: "stack" }));
    t.is((await apps.getApp({ id: "stack" })).state, "FAILED");
    await errorOf(apps.stopApp({ id: "stack" }));
    engine.resume();
    await eventually(async () => {
      const { enabled, operation, state, stateReason } = await apps.getApp({ id: "stack" });
      assert.deepEqual([enabled, operation, state, stateReason], [false, undefined, "STOPPED", ""]);
    });
  },
);
