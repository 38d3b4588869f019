/**
 * An interrupted start of a compose app, with some services running and some not, is finished as soon as the engine is
 * back, whoever started it.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import type { TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker, type TestEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { writeFiles } from "../support/packages.ts";

type Apps = Client<typeof AppService>;

const engineNow = sharedEngine();
const emptyDaemon = sharedDaemon(() => (whyNoDocker === undefined ? { config: engineNow().config } : {}));

/** For a busy host. */
const settleMs = 90_000;

const daemonEnds = "goes on while the daemon is ended";
const faults: Record<string, (engine: TestEngine, daemon: TestDaemon) => Promise<void>> = {
  "hangs until its timeout": async (engine) => {
    await engine.pause();
    await wait(8_000);
    engine.resume();
  },
  "is killed": async (engine) => {
    await engine.kill();
    await engine.start();
  },
  "is restarted": (engine) => engine.restart(),
  "hangs while the daemon is killed": async (engine, daemon) => {
    await engine.pause();
    await daemon.kill();
    engine.resume();
    await daemon.restart();
  },
  [daemonEnds]: (_engine, daemon) => daemon.restart(),
};

/**
 * Starts the app and interrupts it when only the first service runs: after a stop the second one has exited with 0, so
 * no policy restarts it.
 */
const beginners: Record<string, (apps: Apps, engine: TestEngine) => Promise<void>> = {
  "a start by a user": async (apps) => {
    await apps.stopApp({ id: "pair" });
    void apps.startApp({ id: "pair" }).catch(() => undefined);
  },
  "the stop of a restart": async (apps) => {
    void apps.restartApp({ id: "pair" }).catch(() => undefined);
  },
  "a start by svc itself": async (_apps, engine) => engine.restart(),
};
/** Faults that leave a partial start unless svc finishes it; all others with SVC_LONG=1. */
const short = [
  ["a start by a user", "hangs until its timeout"],
  ["a start by a user", "hangs while the daemon is killed"],
  ["a start by a user", daemonEnds],
  ["the stop of a restart", "hangs until its timeout"],
  ["a start by svc itself", "hangs until its timeout"],
];

/** The second service waits for the slow first one: the start can be interrupted between them. */
const files = {
  "svc.yaml": `id: pair
name: Pair
version: "1.0.0"
stop: { grace: 20s }
compose: { file: compose.yaml }
`,
  "compose.yaml": `services:
  first: { image: "svc/slow:1" }
  second: { image: "svc/slow:1", depends_on: { first: { condition: service_healthy } } }
`,
};

/** Names of the running services. */
async function running(engine: TestEngine): Promise<string[]> {
  const listed = (await engine.request("GET", "/containers/json")).expect(200) as {
    Labels: Record<string, string>;
  }[];
  return listed.map(({ Labels }) => Labels["com.docker.compose.service"] ?? "").sort();
}

const cases = Object.keys(beginners).flatMap((beginner) =>
  Object.keys(faults).map((fault) => [beginner, fault] as const),
);
for (const [beginner, fault] of cases) {
  if (
    process.env["SVC_LONG"] === undefined &&
    !short.some(([one, other]) => one === beginner && other === fault)
  )
    continue;
  composeTest(
    `an engine that ${fault} in the middle of ${beginner} leaves no partially started app${needsCompose}`,
    async (t) => {
      t.timeout(240_000);
      const engine = engineNow();
      await engine.images.build("svc/slow:1", {
        // It starts slowly and exits slowly with 0.
        cmd: [
          ...["/bin/sh", "-c"],
          // A daemon that exits waits for its operations, but not that long.
          `trap 'rm -f /up; sleep 2; exit 0' TERM; sleep ${fault === daemonEnds ? 20 : 2} & wait; touch /up; while :; do sleep 3600 & wait; done`,
        ],
        // Each poll costs the engine much: the first is when it runs.
        healthcheck: { command: ["/bin/test", "-e", "/up"], intervalMs: 3_000, retries: 100 },
      });
      const daemon = await emptyDaemon();
      const apps = daemon.client(AppService);
      await writeFiles(join(daemon.dir, "pair"), files);
      await apps.installApp({ spec: join(daemon.dir, "pair") });
      await apps.startApp({ id: "pair" });
      await beginners[beginner]!(apps, engine);
      await eventually(async () => assert.deepEqual(await running(engine), ["first"]), settleMs, 50);

      await faults[fault]!(engine, daemon);

      await eventually(async () => {
        const { state, stateReason } = await apps.getApp({ id: "pair" });
        assert.deepEqual(
          { state, stateReason, running: await running(engine) },
          { state: "RUNNING", stateReason: "", running: ["first", "second"] },
        );
      }, settleMs);
      t.pass();
    },
  );
}

dockerTest(
  `an app's settings are known although the engine hung before its start finished${needsDocker}`,
  async (t) => {
    t.timeout(240_000);
    const engine = engineNow();
    await engine.images.build("svc/word:1");
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService);
    await writeFiles(join(daemon.dir, "word"), {
      "svc.yaml": `id: word
name: Word
version: "1.0.0"
docker: { image: "svc/word:1" }
settings: { properties: { word: { type: string, default: old, env: WORD } } }
`,
    });
    await apps.installApp({ spec: join(daemon.dir, "word") });
    await apps.startApp({ id: "word" });
    await apps.updateAppSettings({ id: "word", values: { word: "new" } });
    const restart = errorOf(apps.restartApp({ id: "word" }));
    await eventually(async () => assert.deepEqual(await words(engine), ["WORD=new"]), settleMs, 50);
    await engine.pause();
    // It runs, and svc waits to see whether it stays up.
    t.is((await restart).code, "Unavailable");
    engine.resume();

    await eventually(async () => {
      const { state, restartRequired } = await apps.getApp({ id: "word" });
      const { running: now } = await apps.getAppSettings({ id: "word" });
      assert.deepEqual(
        { state, restartRequired, now, words: await words(engine) },
        { state: "RUNNING", restartRequired: false, now: { word: "new" }, words: ["WORD=new"] },
      );
    }, settleMs);
  },
);

/** The environment of the running containers. */
async function words(engine: TestEngine): Promise<(string | undefined)[]> {
  const listed = (await engine.request("GET", "/containers/json")).expect(200) as { Id: string }[];
  return Promise.all(
    listed.map(async ({ Id }) => {
      const { Config } = (await engine.request("GET", `/containers/${Id}/json`)).expect(200) as {
        Config: { Env: string[] };
      };
      return Config.Env.find((line) => line.startsWith("WORD="));
    }),
  );
}
