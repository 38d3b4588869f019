/** Compose files as people write them, on a real engine, with each version of compose. */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { formatSubnet, parseSubnet } from "../../src/engine/subnets.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writeFiles } from "../support/packages.ts";
import { forever, sharedFixture, startApp } from "../runtimes/support/container-tests.ts";
import { DockerFixture, nobody } from "../runtimes/support/docker-fixture.ts";
import { whyNoDocker } from "../support/docker.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { composeGenerations } from "../support/compose-generations.ts";

const fixtureNow = sharedFixture();
const fixtures = new Map<string, DockerFixture>();
if (whyNoDocker === undefined) {
  test.before(async () => {
    for (const { name, dirs, missing } of composeGenerations) {
      if (missing === "") fixtures.set(name, await DockerFixture.create(fixtureNow().engine, { dirs }));
    }
  });
  test.after.always(async () => {
    for (const fixture of fixtures.values()) await fixture[Symbol.asyncDispose]();
  });
}

interface Generation {
  readonly isClassic: boolean;
  readonly name: string;
  readonly runTest: typeof dockerTest;
  /** Why the tests are skipped; empty if they are not. */
  readonly skipped: string;
  readonly fixtureOf: () => DockerFixture;
}

const generations = composeGenerations.map(({ name, isClassic, missing }): Generation => ({
  ...{ name, isClassic, skipped: needsDocker || missing },
  runTest: missing === "" ? dockerTest : test.skip,
  fixtureOf: () => {
    const fixture = fixtures.get(name);
    assert.ok(fixture !== undefined);
    return fixture;
  },
}));
/** For what docker-compose 1.29 does not support. */
const second = generations.find(({ isClassic }) => !isClassic)!;
const preferred = generations.find(({ skipped }) => skipped === "") ?? second;

const manifest = "compose: { file: compose.yaml }";
const shell = (script: string): string => JSON.stringify(["/bin/sh", "-c", `${script}; ${forever}`]);

async function requireLines(
  { compose }: DockerFixture,
  app: RunnableApp,
  expected: readonly string[],
): Promise<void> {
  await eventually(async () => {
    const { lines } = await compose.logs(app, { tail: 20 });
    const texts = lines.map(({ text }) => text);
    for (const line of expected) assert.ok(texts.includes(line), `${line} is missing in ${texts.join("\n")}`);
  });
}

async function end({ compose }: DockerFixture, app: RunnableApp): Promise<void> {
  await compose.stop(app);
  await compose.remove(app);
}

for (const [at, { name, runTest, skipped, fixtureOf }] of generations.entries()) {
  runTest(`.env is read as compose reads it, also after a change: ${name}${skipped}`, async (t) => {
    const fixture = fixtureOf();
    const app = await fixture.app(`dotenv-${at}`, manifest, {
      files: {
        ".env": "A=\nB=second\nT=\"two words\"  # text\nS='one'  # text\nexport COLOR=blue\nPATHISH=a#b\n",
        "compose.yaml": `services:
  app:
    image: svc/shell:1
    command: ${shell("echo a=[$$A] b=[$$B] t=[$$T] s=[$$S] c=[$$COLOR] p=[$$PATHISH]")}
    environment: { A: "\${A}", B: "\${B}", T: "\${T}", S: "\${S}", COLOR: "\${COLOR}", PATHISH: "\${PATHISH}" }
`,
      },
    });
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["app | a=[] b=[second] t=[two words] s=[one] c=[blue] p=[a#b]"]);
    await fixture.compose.stop(app);
    await writeFile(join(app.directory, "repo/.env"), "B=third\n");
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["app | a=[] b=[third] t=[] s=[] c=[] p=[]"]);
    await end(fixture, app);
    t.pass();
  });

  runTest(`override files and the profiles of .env apply: ${name}${skipped}`, async (t) => {
    const fixture = fixtureOf();
    const app = await fixture.app(`override-${at}`, manifest, {
      files: {
        ".env": "COMPOSE_PROFILES=bundled,other\n",
        "compose.yaml": `services:
  app: { image: svc/shell:1, command: ${shell("echo mode=$$MODE")}, environment: { MODE: base } }
  db: { image: svc/shell:1, command: ${shell("echo up")}, profiles: [bundled] }
  debug: { image: svc/none:1, profiles: [debug] }
`,
        "docker-compose.override.yml": "services: { app: { environment: { MODE: mine } } }\n",
      },
    });
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["app | mode=mine", "db | up"]);
    await end(fixture, app);
    t.pass();
  });

  runTest(
    `an image that one service builds is used by the others and by their Dockerfiles: ${name}${skipped}`,
    async (t) => {
      const fixture = fixtureOf();
      const app = await fixture.app(`shared-${at}`, manifest, {
        files: {
          "compose.yaml": `services:
  a: { build: { context: ., dockerfile: derived.Dockerfile }, command: ${shell("cat /made /more")} }
  b: { image: "registry.example.org/shop:dev", pull_policy: never, command: ${shell("cat /made")} }
  c: { build: ., image: "registry.example.org/shop:dev", command: ${shell("cat /made")} }
`,
          Dockerfile: "FROM svc/shell:1\nRUN echo once > /made\n",
          "derived.Dockerfile": "FROM registry.example.org/shop:dev\nRUN echo more > /more\n",
        },
      });
      await startApp(fixture.compose, app);
      await requireLines(fixture, app, ["a | once", "a | more", "b | once", "c | once"]);
      await end(fixture, app);
      t.pass();
    },
  );
}

for (const [at, { name, isClassic, runTest, skipped, fixtureOf }] of generations.entries()) {
  runTest(
    `a regular user's project may use keys that affect only its containers: ${name}${skipped}`,
    async (t) => {
      const fixture = fixtureOf();
      const pool = parseSubnet(fixture.engine.pool)!;
      const subnet = { start: pool.end - 16, end: pool.end };
      const address = formatSubnet({ start: pool.end - 6, end: pool.end - 5 }).replace("/32", "");
      const writes = "id -u > /data/who";
      const hook = `post_start: [{ command: ${JSON.stringify(["/bin/sh", "-c", writes])} }]`;
      const networks = `networks: { default: { ipam: { config: [{ subnet: ${formatSubnet(subnet)} }] } } }`;
      const print =
        "echo $$(cat /proc/sys/net/core/somaxconn /proc/sys/kernel/msgmnb /proc/self/oom_score_adj /sys/class/net/eth0/address) $$(hostname -i)";
      const app = await fixture.app(`inside-${at}`, manifest, {
        files: {
          "compose.yaml": `services:
  db:
    image: svc/shell:1
    command: ${shell(isClassic ? writes : "true")}
    volumes: ["data:/data"]
    ${isClassic ? "" : hook}
  app:
    image: svc/shell:1
    command: ${shell(`${print}; until cat /data/who 2>/dev/null; do sleep 0.2; done`)}
    volumes_from: ["db:ro"]
    cap_drop: [ALL]
    cap_add: [CHOWN]
    sysctls: { net.core.somaxconn: 1234, kernel.msgmnb: 32768 }
    oom_score_adj: 321
    mac_address: "02:42:0a:00:00:07"
    networks: { default: { ipv4_address: ${address} } }
volumes: { data: {} }
${networks}
`,
        },
      });
      await startApp(fixture.compose, app);
      await requireLines(fixture, app, [
        `app | 1234 32768 321 02:42:0a:00:00:07 ${address}`,
        `app | ${nobody}`,
      ]);
      const other = await fixture.app(`beside-${at}`, manifest, {
        files: {
          "compose.yaml": `services: { app: { image: svc/shell:1, command: ${shell("true")} } }\n${networks}\n`,
        },
      });
      const error = await t.throwsAsync(startApp(fixture.compose, other));
      t.regex(
        error.message,
        /its subnet \S+ overlaps \S+, which another network or a route of the host uses/,
      );
      await end(fixture, other);
      await end(fixture, app);
    },
  );
}

second.runTest(
  `a retry of a failed start does not repeat a completed migration${second.skipped}`,
  async (t) => {
    const fixture = second.fixtureOf();
    const app = await fixture.app("retry", manifest, {
      files: {
        "compose.yaml": `services:
  migrate:
    image: svc/shell:1
    command: [/bin/sh, -c, "echo run >> /data/runs"]
    volumes: ["./data:/data"]
  app:
    image: svc/shell:1
    command: ${shell("test -e /data/ready || exit 3")}
    volumes: ["./data:/data"]
    depends_on: { migrate: { condition: service_completed_successfully } }
`,
      },
    });
    const runs = async (): Promise<string> => readFile(join(app.directory, "data/data/runs"), "utf8");
    const error = await t.throwsAsync(startApp(fixture.compose, app));
    t.like(error, { reason: "start_failed" });
    t.is(await runs(), "run\n");
    await writeFile(join(app.directory, "data/data/ready"), "");
    await fixture.compose.start(app);
    t.is(await runs(), "run\n");
    await fixture.compose.stop(app);
    await fixture.compose.start(app);
    t.is(await runs(), "run\nrun\n");
    await end(fixture, app);
  },
);

second.runTest(
  `secrets and configs have the values that .env gives their variables, for a regular user${second.skipped}`,
  async (t) => {
    const fixture = second.fixtureOf();
    const app = await fixture.app("secret-env", manifest, {
      files: {
        ".env": 'S_VAL="one # not a comment"\nC_VAL=two\n',
        "compose.yaml": `services:
  app:
    image: svc/shell:1
    command: ${shell("cat /run/secrets/s; echo; cat /c; echo")}
    secrets: [s]
    configs: [{ source: c, target: /c }]
secrets: { s: { environment: S_VAL } }
configs: { c: { environment: C_VAL } }
`,
      },
    });
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["app | one # not a comment", "app | two"]);
    await end(fixture, app);
    t.pass();
  },
);

second.runTest(
  `an optional dependency of another profile does not stop a start${second.skipped}`,
  async (t) => {
    const fixture = second.fixtureOf();
    const app = await fixture.app("optional", manifest, {
      files: {
        "compose.yaml": `services:
  app:
    image: svc/shell:1
    command: ${shell("echo alone")}
    depends_on: { db: { condition: service_started, required: false } }
  db: { image: svc/shell:1, command: ${shell("echo up")}, profiles: [bundled] }
`,
      },
    });
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["app | alone"]);
    t.is((await fixture.compose.images.stacks([app]))[0]?.services.length, 1);
    await end(fixture, app);
  },
);

preferred.runTest(
  `a service that shares the network of another one is restarted after it${preferred.skipped}`,
  async (t) => {
    const fixture = preferred.fixtureOf();
    const port = await freePort();
    const app = await fixture.app("tunnel", `${manifest}\nrestart: { policy: always, delay: 100ms }`, {
      files: {
        "compose.yaml": `services:
  tunnel: { image: svc/shell:1, command: ${shell("true")}, ports: ["${port}:8080"] }
  client: { image: svc/web:1, network_mode: "service:tunnel" }
`,
      },
    });
    await startApp(fixture.compose, app);
    const answer = async (): Promise<string> => (await fetch(`http://127.0.0.1:${port}/`)).text();
    await eventually(async () => assert.equal(await answer(), "hello"));
    const { pid, startedAt } = await firstProcess(fixture, "tunnel", "tunnel");
    process.kill(pid, "SIGKILL");
    await eventually(async () => {
      assert.notEqual((await firstProcess(fixture, "tunnel", "tunnel")).startedAt, startedAt);
      assert.equal(await answer(), "hello");
    });
    await end(fixture, app);
    t.pass();
  },
);

second.runTest(
  `a service that depends on another one with "restart: true" is restarted after it${second.skipped}`,
  async (t) => {
    const fixture = second.fixtureOf();
    const app = await fixture.app("dependent", `${manifest}\nrestart: { policy: always, delay: 100ms }`, {
      files: {
        "compose.yaml": `services:
  db: { image: svc/shell:1, command: ${shell("true")} }
  app:
    image: svc/shell:1
    command: ${shell("true")}
    depends_on: { db: { condition: service_started, restart: true } }
  other: { image: svc/shell:1, command: ${shell("true")}, depends_on: [db] }
`,
      },
    });
    await startApp(fixture.compose, app);
    const now = async (service: string): Promise<string> =>
      (await firstProcess(fixture, "dependent", service)).startedAt;
    const [before, beside] = [await now("app"), await now("other")];
    process.kill((await firstProcess(fixture, "dependent", "db")).pid, "SIGKILL");
    await eventually(async () => assert.notEqual(await now("app"), before));
    t.is(await now("other"), beside);
    await end(fixture, app);
  },
);

preferred.runTest(
  `a stop, a cancel or a removal ends a start that waits for a service${preferred.skipped}`,
  async (t) => {
    const { engine } = fixtureNow();
    const dirs = composeGenerations.find(({ missing }) => missing === "")?.dirs ?? [];
    const config = `${engine.config}\n[apps]\npath = ${JSON.stringify(dirs)}\n`;
    await using daemon = await startDaemon({ config });
    const apps = daemon.client(AppService);
    const dir = join(daemon.dir, "waits");
    await writeFiles(dir, {
      "svc.yaml": `id: waits\nname: Waits\nversion: "1"\n${manifest}\nstop: { grace: 1s }\n`,
      "compose.yaml": `services:
  db:
    image: svc/shell:1
    command: ${shell("true")}
    healthcheck: { test: ["CMD", "/bin/sh", "-c", "exit 1"], interval: 10s, retries: 30 }
  app: { image: svc/shell:1, command: ${shell("true")}, depends_on: { db: { condition: service_healthy } } }
`,
    });
    const id = "waits";
    await apps.installApp({ spec: dir });
    for (const call of [apps.stopApp, apps.cancelAppOperation, apps.removeApp] as const) {
      const start = errorOf(apps.startApp({ id }));
      await eventually(async () => {
        const [stack] = (await apps.listStacks({})).stacks.filter(({ appId }) => appId === id);
        assert.ok(stack?.services.some(({ name, state }) => name === "db" && state === "running"));
      }, 60_000);
      t.is((await apps.getApp({ id })).state, "STARTING");
      await call({ id });
      t.like(await start, { reason: "canceled" });
      const { apps: left } = await apps.listApps({});
      if (call === apps.removeApp) t.deepEqual(left, []);
      else t.is(left[0]?.state, "STOPPED");
      const { stacks } = await apps.listStacks({});
      const states = stacks.filter(({ appId }) => appId === id).flatMap(({ services }) => services);
      t.false(states.some(({ state }) => state === "running"));
    }
  },
);

async function firstProcess(
  { engine }: DockerFixture,
  id: string,
  service: string,
): Promise<{ pid: number; startedAt: string }> {
  const label = [`svc.app=${id}`, `com.docker.compose.service=${service}`];
  const filters = encodeURIComponent(JSON.stringify({ label }));
  const list = (await engine.request("GET", `/containers/json?all=1&filters=${filters}`)).expect(200);
  const [container] = list as { Id: string }[];
  const { State } = (await engine.request("GET", `/containers/${container?.Id}/json`)).expect(200) as {
    State: { Pid: number; StartedAt: string };
  };
  return { pid: State.Pid, startedAt: State.StartedAt };
}
