/**
 * What cuts the start of a compose app in half, one service there and another one not, does not leave it so: it is finished as soon
 * as the engine is back, whoever had begun it (decisions 35).
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

/** For a machine that does much else. */
const settleMs = 90_000;

const daemonEnds = "goes on while the daemon is ended";
const faults: Record<string, (engine: TestEngine, daemon: TestDaemon) => Promise<void>> = {
  "hangs until it is given up": async (engine) => {
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

/** Begins what is cut once the first service runs alone: after a stop the second one has ended well, so no policy starts it. */
const beginners: Record<string, (apps: Apps, engine: TestEngine) => Promise<void>> = {
  "a start by a person": async (apps) => {
    await apps.stopApp({ id: "pair" });
    void apps.startApp({ id: "pair" }).catch(() => undefined);
  },
  "the stop of a restart": async (apps) => {
    void apps.restartApp({ id: "pair" }).catch(() => undefined);
  },
  "a start by svc itself": async (_apps, engine) => engine.restart(),
};
/** What leaves half of it wherever svc does not see to the rest; all others with SVC_LONG=1. */
const short = [
  ["a start by a person", "hangs until it is given up"],
  ["a start by a person", "hangs while the daemon is killed"],
  ["a start by a person", daemonEnds],
  ["the stop of a restart", "hangs until it is given up"],
  ["a start by svc itself", "hangs until it is given up"],
];

/** The second one waits for the first, which takes its time: the start can be cut between them. */
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

/** Names of the services that run. */
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
    `an engine that ${fault} in the middle of ${beginner} leaves no half of an app${needsCompose}`,
    async (t) => {
      t.timeout(240_000);
      const engine = engineNow();
      await engine.images.build("svc/slow:1", {
        // It comes up slowly and ends well, slowly, too.
        cmd: [
          ...["/bin/sh", "-c"],
          // A daemon that ends waits for what it is at, but not so long.
          `trap 'rm -f /up; sleep 2; exit 0' TERM; sleep ${fault === daemonEnds ? 20 : 2} & wait; touch /up; while :; do sleep 3600 & wait; done`,
        ],
        // Each look takes the engine much: the first is when it is up.
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
  `what an app runs with is known though the engine hung before its start was over${needsDocker}`,
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
    // It runs, and svc waits whether it stays up.
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

/** What containers that run have in their environment. */
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
