/**
 * Whatever befalls the engine around whatever step of an app's life, what runs is what its people want, as they set it
 * (decisions 35): fault × step × runtime, with the daemon there and away. Prints what it covers; with SVC_LONG=1 all of it.
 */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { ExecutionContext } from "ava";
import type { Client } from "@connectrpc/connect";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { startEngine, type TestEngine } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";

type Apps = Client<typeof AppService>;

const isLong = process.env["SVC_LONG"] !== undefined;
/** 15 s are promised; the rest is for a machine that does much else. */
const deadlineMs = 90_000;
const promisedMs = 15_000;

const faults = ["restart", "kill", "hang"] as const;
type Fault = (typeof faults)[number];
const daemons = ["there", "away"] as const;
type DaemonIs = (typeof daemons)[number];
/** How long after the step has begun the fault strikes. */
const momentsMs = isLong ? [0, 300, 1_200] : [400];
const short: readonly (readonly [Fault, DaemonIs])[] = [
  ["restart", "there"],
  ["kill", "away"],
  ["hang", "there"],
];
const long = faults.flatMap((fault) => daemons.map((daemon) => [fault, daemon] as const));

/** From what the app is in before to the call around which the fault strikes. */
const steps: Record<
  string,
  { runsBefore: boolean; settings?: string; act?: (apps: Apps, id: string) => Promise<unknown> }
> = {
  running: { runsBefore: true },
  stopped: { runsBefore: false },
  start: { runsBefore: false, act: (apps, id) => apps.startApp({ id }) },
  stop: { runsBefore: true, act: (apps, id) => apps.stopApp({ id }) },
  restart: { runsBefore: true, settings: "new", act: (apps, id) => apps.restartApp({ id }) },
  upgrade: { runsBefore: false, act: (apps, id) => apps.upgradeApp({ id }) },
};

const manifests: Record<string, (id: string) => Readonly<Record<string, string>>> = {
  docker: (id) => ({
    "svc.yaml": `id: ${id}
name: ${id}
version: "1"
docker: { image: "svc/polite:1" }
settings: { properties: { word: { type: string, default: old, env: WORD } } }
`,
  }),
  compose: (id) => ({
    "svc.yaml": `id: ${id}
name: ${id}
version: "1"
compose: { file: compose.yaml }
settings: { properties: { word: { type: string, default: old, env: WORD } } }
`,
    "compose.yaml": `services:
  one: { image: "svc/polite:1", environment: { WORD: "\${WORD}" } }
  two: { image: "svc/polite:1", environment: { WORD: "\${WORD}" }, depends_on: [one] }
`,
  }),
};
const services = { docker: 1, compose: 2 } as const;

interface Case {
  readonly id: string;
  readonly runtime: keyof typeof services;
  readonly step: string;
}
const cases: readonly Case[] = Object.keys(steps).flatMap((step) =>
  (["docker", "compose"] as const).map((runtime) => ({ id: `${runtime}-${step}`, runtime, step })),
);

composeTest(`wanted and real agree after every fault of the engine${needsCompose}`, async (t) => {
  t.timeout(60 * 60_000);
  await using engine = await startEngine();
  // Ends well when it is told to: no reason not to run.
  await engine.images.build("svc/polite:1", {
    cmd: ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"],
  });
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService);
  for (const { id, runtime } of cases) {
    const directory = join(daemon.dir, id);
    await mkdir(directory);
    for (const [name, text] of Object.entries(manifests[runtime]!(id))) {
      await writeFile(join(directory, name), text);
    }
    await apps.installApp({ spec: directory });
  }
  for (const [fault, daemonIs] of isLong ? long : short) {
    for (const momentMs of momentsMs) {
      await Promise.all(cases.map((one) => goToBefore(apps, one)));
      const acts = cases.map(({ id, step }) =>
        Promise.resolve(steps[step]!.act?.(apps, id).catch(() => undefined)),
      );
      await wait(momentMs);
      await strike(engine, daemon, fault, daemonIs);
      const healedMs = performance.now();
      const what = `${fault} after ${momentMs} ms, the daemon is ${daemonIs}`;
      const tookMs: Record<string, number> = {};
      await Promise.all(
        cases.map(async (one) => {
          await eventually(() => expectAgreement(apps, engine, one), deadlineMs).catch((error: unknown) => {
            throw new Error(`${what}: ${one.id}: ${String(error)}`, { cause: error });
          });
          tookMs[one.id] = Math.round(performance.now() - healedMs);
        }),
      );
      await Promise.all(acts);
      report(t, what, tookMs);
    }
  }
  t.pass();
});

async function goToBefore(apps: Apps, { id, step }: Case): Promise<void> {
  const { runsBefore, settings } = steps[step]!;
  await apps.updateAppSettings({ id, values: {} });
  await (runsBefore ? apps.restartApp({ id }) : apps.stopApp({ id }));
  if (settings !== undefined) await apps.updateAppSettings({ id, values: { word: settings } });
}

async function strike(
  engine: TestEngine,
  daemon: TestDaemon,
  fault: Fault,
  daemonIs: DaemonIs,
): Promise<void> {
  if (daemonIs === "away") await daemon.kill();
  if (fault === "restart") await engine.restart();
  else if (fault === "kill") {
    await engine.kill();
    await engine.start();
  } else {
    await engine.pause();
    // Until the daemon has noticed, and given up what it was at.
    await wait(8_000);
    engine.resume();
  }
  if (daemonIs === "away") await daemon.restart();
}

/** What svc says, what its people want, and what the engine runs, with which settings. */
async function expectAgreement(apps: Apps, engine: TestEngine, { id, runtime }: Case): Promise<void> {
  const app = await apps.getApp({ id });
  const { values } = await apps.getAppSettings({ id });
  assert.equal(app.operation, undefined);
  assert.equal(app.state, app.enabled ? "RUNNING" : "STOPPED", app.stateReason);
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  const listed = (await engine.request("GET", `/containers/json?filters=${filters}`)).expect(200);
  const words = await Promise.all(
    (listed as { Id: string }[]).map(async ({ Id }) => {
      const { Config } = (await engine.request("GET", `/containers/${Id}/json`)).expect(200) as {
        Config: { Env: string[] };
      };
      return Config.Env.find((line) => line.startsWith("WORD="));
    }),
  );
  const expected = app.restartRequired ? "WORD=old" : `WORD=${values?.["word"] as string}`;
  assert.deepEqual(words, app.enabled ? Array<string>(services[runtime]).fill(expected) : []);
}

function report(t: ExecutionContext, what: string, tookMs: Readonly<Record<string, number>>): void {
  const slowest = Math.max(...Object.values(tookMs));
  t.log(`${what}: ${Object.keys(tookMs).length} cases agree, the last after ${slowest} ms`);
  for (const [id, ms] of Object.entries(tookMs)) t.log(`  ${id}: ${ms} ms`);
  if (slowest > promisedMs) t.log(`  slower than the ${promisedMs} ms of a quiet machine`);
}
