/**
 * After any fault of the engine at any step of an app, the running containers match the desired state and settings:
 * fault × step × runtime, with the daemon running and stopped. Prints the covered cases; SVC_LONG=1 covers all.
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
/** 15 s are promised; the rest is for a busy host. */
const deadlineMs = 90_000;
const promisedMs = 15_000;
/**
 * All cases poll at the same time, with several requests each: polling more often would overload the daemon and the
 * engine.
 */
const mostPauseMs = 1_000;

const faults = ["restart", "kill", "hang"] as const;
type Fault = (typeof faults)[number];
const daemons = ["there", "away"] as const;
type DaemonIs = (typeof daemons)[number];
/** The delay from the start of the step to the fault. */
const momentsMs = isLong ? [0, 300, 1_200] : [400];
const short: readonly (readonly [Fault, DaemonIs])[] = [
  ["restart", "there"],
  ["kill", "away"],
  ["hang", "there"],
];
const long = faults.flatMap((fault) => daemons.map((daemon) => [fault, daemon] as const));

interface Step {
  readonly runsBefore: boolean;
  readonly settings?: string;
  /** Whether the app may be absent afterwards; then nothing of it remains. */
  readonly isOptional?: true;
  /** In the short form only with this fault, because each case takes long. */
  readonly shortFault?: Fault;
  readonly act?: (apps: Apps, id: string, directory: string) => Promise<unknown>;
}

/** From the app's initial state to the call that the fault interrupts. */
const steps: Record<string, Step> = {
  running: { runsBefore: true },
  stopped: { runsBefore: false },
  start: { runsBefore: false, act: (apps, id) => apps.startApp({ id }) },
  stop: { runsBefore: true, act: (apps, id) => apps.stopApp({ id }) },
  restart: { runsBefore: true, settings: "new", act: (apps, id) => apps.restartApp({ id }) },
  upgrade: { runsBefore: false, act: (apps, id) => apps.upgradeApp({ id }) },
  install: {
    ...{ runsBefore: false, isOptional: true, shortFault: "restart" },
    act: (apps, id, directory) => apps.removeApp({ id }).then(() => apps.installApp({ spec: directory })),
  },
  clone: { runsBefore: true, shortFault: "hang", act: (apps, id) => apps.cloneApp({ id }) },
  remove: {
    ...{ runsBefore: true, isOptional: true, shortFault: "kill" },
    act: (apps, id) => apps.removeApp({ id }),
  },
  repull: { runsBefore: true, shortFault: "restart", act: (apps, id) => apps.repullApp({ id }) },
};

const manifests: Record<string, (id: string, image: string) => Readonly<Record<string, string>>> = {
  docker: (id, image) => ({
    "svc.yaml": `id: ${id}
name: ${id}
version: "1"
docker: { image: "${image}" }
settings: { properties: { word: { type: string, default: old, env: WORD } } }
`,
  }),
  compose: (id, image) => ({
    "svc.yaml": `id: ${id}
name: ${id}
version: "1"
compose: { file: compose.yaml }
settings: { properties: { word: { type: string, default: old, env: WORD } } }
`,
    "compose.yaml": `services:
  one: { image: "${image}", environment: { WORD: "\${WORD}" }, volumes: ["state:/state"] }
  two: { image: "${image}", environment: { WORD: "\${WORD}" }, depends_on: [one] }
volumes: { state: {} }
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

composeTest(`desired and actual state agree after every fault of the engine${needsCompose}`, async (t) => {
  t.timeout(60 * 60_000);
  await using engine = await startEngine();
  const { host } = await engine.registry();
  const image = `${host}/polite:latest`;
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService);
  for (const { id, runtime } of cases) {
    const directory = join(daemon.dir, id);
    await mkdir(directory);
    for (const [name, text] of Object.entries(manifests[runtime]!(id, image))) {
      await writeFile(join(directory, name), text);
    }
  }
  await push(engine, image, 0);
  let round = 0;
  for (const [fault, daemonIs] of isLong ? long : short) {
    for (const momentMs of momentsMs) {
      const covered = cases.filter(
        ({ step }) => isLong || [undefined, fault].includes(steps[step]!.shortFault),
      );
      for (const one of covered) await install(apps, one, join(daemon.dir, one.id));
      await Promise.all(covered.map((one) => goToBefore(apps, one)));
      // Another image, so that a repull has something to do.
      await push(engine, image, ++round);
      const acts = covered.map(({ id, step }) =>
        Promise.resolve(steps[step]!.act?.(apps, id, join(daemon.dir, id)).catch(() => undefined)),
      );
      await wait(momentMs);
      await strike(engine, daemon, fault, daemonIs);
      const healedMs = performance.now();
      const what = `${fault} after ${momentMs} ms, the daemon is ${daemonIs}`;
      const tookMs: Record<string, number> = {};
      const outcomes = await Promise.allSettled(
        covered.map(async (one) => {
          await eventually(() => expectAgreement(apps, engine, one), deadlineMs, mostPauseMs).catch(
            (error: unknown) => {
              throw new Error(`${one.id}: ${String(error)}`, { cause: error });
            },
          );
          tookMs[one.id] = Math.round(performance.now() - healedMs);
        }),
      );
      report(t, what, tookMs);
      const disagree = outcomes.flatMap((each) => (each.status === "rejected" ? [each.reason as Error] : []));
      if (disagree.length > 0) throw new AggregateError(disagree, `${what}: ${disagree.join("\n")}`);
      await Promise.all(acts);
    }
  }
  t.pass();
});

/** Exits with 0 on a stop, which does not mean that it should not run. */
async function push(engine: TestEngine, image: string, round: number): Promise<void> {
  await engine.images.build(image, {
    cmd: ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"],
    labels: { round: String(round) },
  });
  await engine.images.push(image);
}

async function idsOf(apps: Apps): Promise<string[]> {
  return (await apps.listApps({})).apps.map(({ id }) => id);
}

/** So many installs at once would be too many. */
async function install(apps: Apps, { id }: Case, directory: string): Promise<void> {
  const ids = await idsOf(apps);
  for (const clone of ids.filter((other) => other.startsWith(`${id}-`))) await apps.removeApp({ id: clone });
  if (!ids.includes(id)) await apps.installApp({ spec: directory });
}

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
    // The daemon needs this long to notice the failure and to cancel its operations.
    await wait(8_000);
    engine.resume();
  }
  if (daemonIs === "away") await daemon.restart();
}

/** svc's status, the desired state, and the engine's containers with their settings. */
async function expectAgreement(apps: Apps, engine: TestEngine, one: Case): Promise<void> {
  const ids = await idsOf(apps);
  const clone = `${one.id}-2`;
  if (ids.includes(clone)) await expectDesiredState(apps, engine, { ...one, id: clone });
  else await expectNothing(engine, clone);
  if (ids.includes(one.id)) {
    const { state, stateReason } = await apps.getApp({ id: one.id });
    // A removal that the engine interrupted reports it, and can be repeated.
    if (state !== "FAILED" || !stateReason.endsWith("remove it again"))
      return expectDesiredState(apps, engine, one);
    await apps.removeApp({ id: one.id });
  }
  assert.ok(steps[one.step]!.isOptional, "it is gone");
  await expectNothing(engine, one.id);
}

async function listOf(engine: TestEngine, path: string, id: string): Promise<{ Id: string }[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  const separator = path.includes("?") ? "&" : "?";
  return (await engine.request("GET", `${path}${separator}filters=${filters}`)).expect(200) as {
    Id: string;
  }[];
}

async function expectNothing(engine: TestEngine, id: string): Promise<void> {
  assert.deepEqual(await listOf(engine, "/containers/json?all=1", id), []);
  assert.deepEqual(await listOf(engine, "/networks", id), []);
  const { Volumes: volumes } = (await listOf(engine, "/volumes", id)) as unknown as {
    Volumes: unknown[] | null;
  };
  assert.deepEqual(volumes ?? [], []);
}

async function expectDesiredState(apps: Apps, engine: TestEngine, { id, runtime }: Case): Promise<void> {
  const app = await apps.getApp({ id });
  const { values } = await apps.getAppSettings({ id });
  assert.equal(app.operation, undefined);
  assert.equal(app.state, app.enabled ? "RUNNING" : "STOPPED", app.stateReason);
  const listed = await listOf(engine, "/containers/json", id);
  const words = await Promise.all(
    listed.map(async ({ Id }) => {
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
  if (slowest > promisedMs) t.log(`  slower than the ${promisedMs} ms of an idle host`);
}
