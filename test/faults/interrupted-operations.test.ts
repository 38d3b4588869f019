/** Interrupted operations are finished or rolled back: removals, starts, and those of a CLI in-process. */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { startEngine, type TestEngine, whyNoDocker } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { projectFiles, writeFiles, freePort, writePackage } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";
import { asUserWithoutSvc } from "../support/without-svc.ts";

// An interrupted removal resumes by itself and never leaves a failed app: after the daemon's exit the next daemon
// resumes it, and without the container engine it waits for the engine.

/** For a busy host. */
const settleMs = 90_000;

const deaf = "trap '' TERM; while :; do sleep 3600 & wait; done";
const stop = "stop: { grace: 8s }\n";
const container = `docker: { image: "svc/box:latest", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(deaf)}] }\n`;

/** Apps that take long to exit, by their runtime. */
const packages: Record<string, Record<string, string>> = {
  docker: { "svc.yaml": `id: deaf\nname: Deaf\nversion: "1.0.0"\n${stop}${container}` },
  compose: projectFiles({ id: "deaf", script: deaf, volumes: { state: "/state" }, manifest: stop }),
};

async function startDeaf(daemon: TestDaemon, engine: TestEngine, runtime: string): Promise<void> {
  await engine.images.build("svc/box:latest");
  const apps = daemon.client(AppService);
  await writeFiles(join(daemon.dir, "deaf"), packages[runtime] ?? {});
  await apps.installApp({ spec: join(daemon.dir, "deaf") });
  await apps.startApp({ id: "deaf" });
}

async function untilRemoving(daemon: TestDaemon): Promise<void> {
  const apps = daemon.client(AppService);
  await eventually(async () => assert.equal((await apps.getApp({ id: "deaf" })).operation?.kind, "remove"));
}

/** Containers, volumes and directories of existing apps. */
async function restsOf(daemon: TestDaemon, engine: TestEngine): Promise<unknown[]> {
  const containers = (await engine.request("GET", "/containers/json?all=1")).expect(200) as unknown[];
  const volumes = (await engine.request("GET", "/volumes")).expect(200) as { Volumes: unknown[] | null };
  return [...containers, ...(volumes.Volumes ?? []), ...(await readdir(join(daemon.storeDir, "apps")))];
}

dockerTest(
  `a removal that takes longer than the daemon waits is finished by the next daemon${needsDocker}`,
  async (t) => {
    t.timeout(240_000);
    await using engine = await startEngine();
    await using daemon = await startDaemon({ config: engine.config });
    const apps = daemon.client(AppService);
    await startDeaf(daemon, engine, "docker");
    void apps.removeApp({ id: "deaf" }).catch(() => undefined);
    await untilRemoving(daemon);

    await daemon.restart();

    await eventually(async () => assert.deepEqual((await apps.listApps({})).apps, []), settleMs);
    t.deepEqual(await restsOf(daemon, engine), []);
  },
);

for (const runtime of Object.keys(packages)) {
  const [engineTest, needs] = runtime === "docker" ? [dockerTest, needsDocker] : [composeTest, needsCompose];

  engineTest(
    `a removal during which the engine of a ${runtime} app dies continues when the engine is back${needs}`,
    async (t) => {
      t.timeout(240_000);
      await using engine = await startEngine();
      await using daemon = await startDaemon({ config: engine.config });
      await startDeaf(daemon, engine, runtime);
      const apps = daemon.client(AppService);
      const removal = apps.removeApp({ id: "deaf" });
      await untilRemoving(daemon);

      await engine.kill();
      await eventually(async () =>
        assert.partialDeepStrictEqual(await apps.getApp({ id: "deaf" }), {
          state: "REMOVING",
          stateReason: "the app waits for the container engine",
          waitsFor: "the container engine",
        }),
      );
      await engine.start();

      t.is((await removal).id, "deaf");
      t.deepEqual((await apps.listApps({})).apps, []);
      t.deepEqual(await restsOf(daemon, engine), []);
    },
  );
}

dockerTest(`a removal continues after its daemon and its engine were killed${needsDocker}`, async (t) => {
  t.timeout(240_000);
  await using engine = await startEngine();
  await using daemon = await startDaemon({ config: engine.config });
  await startDeaf(daemon, engine, "docker");
  const apps = daemon.client(AppService);
  void apps.removeApp({ id: "deaf" }).catch(() => undefined);
  await untilRemoving(daemon);
  await daemon.kill();
  await engine.kill();

  await daemon.restart();
  await eventually(async () =>
    assert.partialDeepStrictEqual(await apps.getApp({ id: "deaf" }), {
      state: "REMOVING",
      stateReason: "the app waits for the container engine",
    }),
  );
  await engine.start();

  await eventually(async () => assert.deepEqual((await apps.listApps({})).apps, []), settleMs);
  t.deepEqual(await restsOf(daemon, engine), []);
});

dockerTest(
  `an app whose engine is unavailable is not removed, and stays unchanged${needsDocker}`,
  async (t) => {
    t.timeout(240_000);
    await using engine = await startEngine();
    await using daemon = await startDaemon({ config: engine.config });
    await startDeaf(daemon, engine, "docker");
    const apps = daemon.client(AppService);
    await engine.stop();
    await eventually(async () => assert.equal((await apps.getApp({ id: "deaf" })).state, "UNKNOWN"));

    t.like(await errorOf(apps.removeApp({ id: "deaf" })), { code: "Unavailable" });

    const { state, enabled, operation } = await apps.getApp({ id: "deaf" });
    t.deepEqual({ state, enabled, operation }, { state: "UNKNOWN", enabled: true, operation: undefined });
    await engine.start();
    await eventually(
      async () => assert.equal((await apps.getApp({ id: "deaf" })).state, "RUNNING"),
      settleMs,
    );
  },
);

// An install whose image is being built has objects on the engine, which only the engine can remove.

const engineEnds: readonly (readonly [
  how: string,
  code: string,
  end: (engine: TestEngine, daemon: TestDaemon) => Promise<void>,
])[] = [
  ["dies", "Unavailable", (engine) => engine.kill()],
  [
    "dies with the daemon",
    "Aborted",
    async (engine, daemon) => {
      await daemon.kill();
      await engine.kill();
      await daemon.restart();
    },
  ],
  [
    "hangs until it is canceled",
    "Canceled",
    async (engine, daemon) => {
      await engine.pause();
      await daemon.client(AppService).cancelAppOperation({ id: "slow" });
    },
  ],
];

for (const [how, code, end] of engineEnds) {
  dockerTest(
    `an install whose engine ${how} waits for the engine, and is removed when it is back${needsDocker}`,
    async (t) => {
      t.timeout(300_000);
      await using engine = await startEngine();
      await using daemon = await startDaemon({ config: engine.config });
      await engine.images.build("svc/box:latest");
      const apps = daemon.client(AppService);
      const spec = join(daemon.dir, "slow");
      const seconds = 80_000 + (daemon.pid % 10_000);
      await writeFiles(spec, {
        "svc.yaml": 'id: slow\nname: Slow\nversion: "1"\ndocker: { build: { context: . } }\n',
        Dockerfile: `FROM svc/box:latest\nRUN ["sleep", "${seconds}"]\n`,
      });
      const install = errorOf(apps.installApp({ spec }));
      await eventually(async () => {
        assert.equal((await apps.getApp({ id: "slow" })).operation?.phase, "create");
        execFileSync("pgrep", ["--full", `^sleep ${seconds}$`]);
      }, settleMs);

      await end(engine, daemon);

      await eventually(
        async () =>
          assert.partialDeepStrictEqual(await apps.getApp({ id: "slow" }), {
            state: "REMOVING",
            stateReason: "the app waits for the container engine",
          }),
        settleMs,
      );
      t.like(await install, { code });
      t.like(await errorOf(apps.removeApp({ id: "slow" })), { code: "Unavailable" });
      if (how.startsWith("hangs")) engine.resume();
      else await engine.start();

      await eventually(async () => assert.deepEqual((await apps.listApps({})).apps, []), settleMs);
      t.deepEqual(await readdir(join(daemon.storeDir, "apps")), []);
    },
  );
}

// An interrupted start of a compose app, with some services running and some not, is finished as soon as the engine is
// back, whoever started it.

type Apps = Client<typeof AppService>;

const engineNow = sharedEngine();
const emptyDaemon = sharedDaemon(() => (whyNoDocker === undefined ? { config: engineNow().config } : {}));

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

// A CLI that works in-process holds its operation: a daemon that starts at the same time does not roll it back.

/** A home directory for a regular user. */
async function createHome() {
  const dir = await mkdtemp(join(tmpdir(), "svc-home-"));
  await chmod(dir, 0o777);
  const env = {
    PATH: process.env["PATH"] ?? "",
    HOME: dir,
    XDG_STATE_HOME: join(dir, "state"),
    XDG_CONFIG_HOME: join(dir, "config"),
    XDG_RUNTIME_DIR: join(dir, "runtime"),
    XDG_CACHE_HOME: join(dir, "cache"),
  };
  const svc = (...args: string[]) => {
    const [command = "", ...rest] = [...asUserWithoutSvc, process.execPath, main, ...args];
    const child = spawn(command, rest, { env, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk) => (output += String(chunk)));
    return { child, output: () => output };
  };
  return { dir, svc, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true, maxRetries: 3 }) };
}

/** The content of a checkout while it is built: the package, and the limit of npm's search. */
const builds = ["node_modules", "server.mjs", "svc.yaml"];

test("a starting daemon does not interrupt a running in-process install", async (t) => {
  t.timeout(120_000);
  await using home = await createHome();
  const dir = join(home.dir, "package");
  await writePackage(dir, await freePort());
  const gate = join(home.dir, "gate");
  await writeFile(
    join(dir, "svc.yaml"),
    `id: slow
name: Slow
version: "1"
process:
  exec: [node, server.mjs]
  build: [{ exec: [sh, -c, "until test -e ${gate}; do sleep 0.05; done"] }]
`,
  );
  await mkdir(join(home.dir, "config", "svc"), { recursive: true });
  await writeFile(join(home.dir, "config", "svc", "svc.toml"), '[api]\nlisten = "127.0.0.1:0"\n');
  await chmod(join(home.dir, "config"), 0o777);
  await chmod(join(home.dir, "config", "svc"), 0o777);
  const install = home.svc("install", dir);
  const installed = once(install.child, "exit");
  const appsDir = join(home.dir, "state", "svc", "apps");
  await eventually(
    async () => assert.deepEqual(await readdir(join(appsDir, "slow", "repo")), builds),
    30_000,
  );

  const daemon = home.svc("daemon");
  await eventually(() => assert.match(daemon.output(), /svc is ready/), 30_000);
  const list = home.svc("ls", "--json");
  await nextEvent(list.child, "exit");
  t.regex(list.output(), /INSTALLING/, "the daemon shows the CLI's operation");
  // Longer than the daemon's interval for finding interrupted operations.
  await new Promise((resolve) => setTimeout(resolve, 7_000));
  await writeFile(gate, "");
  const [exitCode] = (await installed) as [number | null];
  t.is(exitCode, 0, install.output());
  await eventually(async () => {
    const after = home.svc("ls", "--json");
    await nextEvent(after.child, "exit");
    assert.match(after.output(), /"state": ?"STOPPED"/);
  });
  daemon.child.kill("SIGTERM");
  await nextEvent(daemon.child, "exit");
});

test("a compose install that fails while its files are copied leaves nothing behind without an engine", async (t) => {
  t.timeout(120_000);
  await using home = await createHome();
  await mkdir(join(home.dir, "config", "svc"), { recursive: true });
  const socket = join(home.dir, "no-engine.sock");
  await writeFile(join(home.dir, "config", "svc", "svc.toml"), `[docker]\nsocket = "${socket}"\n`);
  await writeFiles(home.dir, projectFiles({ id: "web", script: "sleep 60", volumes: {} }));
  await chmod(home.dir, 0o777);
  const run = async (...args: string[]): Promise<string> => {
    const { child, output } = home.svc(...args);
    await nextEvent(child, "close");
    return output();
  };
  // The package contains the store, so it cannot be copied there.
  t.regex(
    await run("install", home.dir, "--yes"),
    /^svc: \S+ cannot be installed, because it contains the store of svc \(\S+\/state\/svc\/apps\); move the package into/m,
  );
  const list = await run("ls");
  t.regex(list, /^No apps are installed/m);
  t.notRegex(list, /^\{/m, "no log");
});

test("an install whose CLI was killed is rolled back by the next daemon", async (t) => {
  t.timeout(120_000);
  await using home = await createHome();
  const dir = join(home.dir, "package");
  await writePackage(dir, await freePort());
  await writeFile(
    join(dir, "svc.yaml"),
    'id: slow\nname: Slow\nversion: "1"\nprocess:\n  exec: [node, server.mjs]\n  build: [{ exec: [sleep, "60"] }]\n',
  );
  await mkdir(join(home.dir, "config", "svc"), { recursive: true });
  await writeFile(join(home.dir, "config", "svc", "svc.toml"), '[api]\nlisten = "127.0.0.1:0"\n');
  await chmod(join(home.dir, "config"), 0o777);
  await chmod(join(home.dir, "config", "svc"), 0o777);
  const install = home.svc("install", dir);
  const appsDir = join(home.dir, "state", "svc", "apps");
  await eventually(
    async () => assert.deepEqual(await readdir(join(appsDir, "slow", "repo")), builds),
    30_000,
  );
  install.child.kill("SIGKILL");
  await nextEvent(install.child, "exit");
  const daemon = home.svc("daemon");
  await eventually(() => assert.match(daemon.output(), /svc is ready/), 30_000);
  await eventually(async () => assert.deepEqual(await readdir(appsDir), []), 20_000);
  daemon.child.kill("SIGTERM");
  await nextEvent(daemon.child, "exit");
  t.pass();
});
