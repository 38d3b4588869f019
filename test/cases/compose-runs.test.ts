/** Compose files as people write them, on a real engine, with each version of compose. */
import assert from "node:assert/strict";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { once } from "node:events";
import { createServer } from "node:net";
import { PassThrough } from "node:stream";
import { delimiter, join } from "node:path";
import test from "ava";
import { formatSubnet, parseSubnet } from "../../src/engine/subnets.ts";
import { newParts } from "../../src/logs/log-chunk.ts";
import { NewLines } from "../../src/logs/log-position.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writeFiles } from "../support/packages.ts";
import { forever, sharedFixture, startApp } from "../runtimes/support/container-tests.ts";
import { DockerFixture, nobody } from "../runtimes/support/docker-fixture.ts";
import { whyNoDocker } from "../support/docker.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { composeGenerations, installedCompose } from "../support/compose-generations.ts";

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
  /** The daemon's directories of programs. */
  readonly dirs: readonly string[];
  readonly fixtureOf: () => DockerFixture;
}

const generations = composeGenerations.map(({ name, isClassic, dirs, missing }): Generation => ({
  ...{ name, isClassic, dirs, skipped: needsDocker || missing },
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

  runTest(`variables of the daemon are not set for the compose file: ${name}${skipped}`, async (t) => {
    const fixture = fixtureOf();
    const names = ["LANG", "LOGNAME", "SHELL", "TMPDIR", "HOME", "USER"];
    const environment = names.map((each) => `${each.toLowerCase()}: "\${${each}-none}"`).join(", ");
    const shown = names.map((each) => `$$${each.toLowerCase()}`).join(" ");
    const app = await fixture.app(`variables-${at}`, manifest, {
      files: {
        ".env": "LANG=de\n",
        "compose.yaml": `services:
  app:
    image: svc/shell:1
    command: ${shell(`echo ${shown}`)}
    environment: { ${environment} }
`,
      },
    });
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["app | de none none none /nonexistent nobody"]);
    await end(fixture, app);
    t.pass();
  });

  runTest(
    `a volume that mounts a directory of the package is data of the app: ${name}${skipped}`,
    async (t) => {
      const fixture = fixtureOf();
      const app = await fixture.app(`bind-volume-${at}`, manifest, {
        uid: nobody,
        files: {
          "db/seed.txt": "seed\n",
          "compose.yaml": `services:
  app:
    image: svc/shell:1
    command: ${shell("cat /db/seed.txt; echo written > /db/new.txt")}
    volumes: ["db:/db"]
volumes: { db: { driver: local, driver_opts: { type: none, o: bind, device: "\${PWD}/db" } } }
`,
        },
      });
      await startApp(fixture.compose, app);
      await requireLines(fixture, app, ["app | seed"]);
      await eventually(async () => {
        assert.equal(await readFile(join(app.directory, "data/db/new.txt"), "utf8"), "written\n");
      });
      await end(fixture, app);
      t.pass();
    },
  );

  runTest(`paths of files may be in variables: ${name}${skipped}`, async (t) => {
    const fixture = fixtureOf();
    const app = await fixture.app(`paths-${at}`, manifest, {
      files: {
        ".env": "KEYS=./keys\n",
        "local.env": "A=one\n",
        "keys/key.txt": "key\n",
        "keys/own.txt": "own\n",
        "compose.yaml": `services:
  app:
    image: svc/shell:1
    command: ${shell("echo $$A $$(cat /run/secrets/key) $$(cat /run/secrets/own)")}
    env_file: "\${ENV_FILE:-local.env}"
    secrets: [key, own]
secrets: { key: { file: "\${KEYS}/key.txt" }, own: { file: "\${PWD}/keys/own.txt" } }
`,
      },
    });
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["app | one key own"]);
    await end(fixture, app);
    t.pass();
  });

  runTest(`services that wait for others start after them: ${name}${skipped}`, async (t) => {
    const fixture = fixtureOf();
    const app = await fixture.app(`waits-${at}`, manifest, {
      files: {
        "compose.yaml": `services:
  sidecar: { image: "svc/shell:1", network_mode: "service:app", command: ${shell("echo here")} }
  app:
    image: svc/shell:1
    command: ${shell("cat /data/migrated")}
    volumes: ["data:/data"]
    depends_on: { migrate: { condition: service_completed_successfully }, db: { condition: service_healthy } }
  migrate:
    image: svc/shell:1
    command: [/bin/sh, -c, "echo migrated > /data/migrated"]
    volumes: ["data:/data"]
    depends_on: { db: { condition: service_healthy } }
  db:
    image: svc/shell:1
    command: ${shell("touch /tmp/ready")}
    healthcheck: { test: "test -e /tmp/ready", interval: 1s }
volumes: { data: {} }
`,
      },
    });
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["app | migrated", "sidecar | here"]);
    await end(fixture, app);
    t.pass();
  });

  runTest(`a start names all missing directories of the host: ${name}${skipped}`, async (t) => {
    const fixture = fixtureOf();
    const app = await fixture.app(`missing-${at}`, `${manifest}\npermissions: [host_mounts]`, {
      uid: 0,
      files: {
        "compose.yaml": `services: { app: { image: "svc/shell:1", volumes: ["/nonexistent/media:/media", "/nonexistent/music:/music", "/usr:/u"] } }\n`,
      },
    });
    const error = await t.throwsAsync(startApp(fixture.compose, app));
    t.regex(
      error.message,
      /: these are mounted, but do not exist on this host: \/nonexistent\/media, \/nonexistent\/music; create them$/,
    );
    await end(fixture, app);
  });

  runTest(`a log that is followed again repeats no line of any service: ${name}${skipped}`, async (t) => {
    const fixture = fixtureOf();
    const services = ["a", "b", "c", "z"].map(
      (service, index) =>
        `  ${service}: { image: svc/shell:1, command: ${shell(`sleep ${index === 3 ? 0 : 1}; echo ${service}`)} }\n`,
    );
    const app = await fixture.app(`again-${at}`, manifest, {
      files: { "compose.yaml": `services:\n${services.join("")}` },
    });
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["a | a", "b | b", "c | c", "z | z"]);
    const { lines } = await fixture.compose.logs(app, { tail: 20 });
    const first = lines.find(({ text }) => text === "z | z");
    assert.ok(first !== undefined);
    const after = { timeMs: first.timeMs, count: 1 };
    for (let round = 0; round < 5; round++) {
      const abort = new AbortController();
      const read: string[] = [];
      const chunks = fixture.compose.followLogs(app, { tail: 0, after, signal: abort.signal });
      for await (const part of newParts(chunks, new NewLines(after))) {
        read.push(...part.lines.map(({ text }) => text));
        if (read.length >= 3) setTimeout(() => abort.abort(), 200);
      }
      t.deepEqual(read.toSorted(), ["a | a", "b | b", "c | c"]);
    }
    await end(fixture, app);
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
      // Only root can grant what the manifest asks for.
      for (const [number, asking] of [manifest, `${manifest}\npermissions: [host_network]`].entries()) {
        const other = await fixture.app(`beside-${at}-${number}`, asking, {
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
      }
      await end(fixture, app);
    },
  );
}

for (const [at, { name, runTest, skipped, fixtureOf }] of generations.entries()) {
  runTest(
    `ports that the file fixes are published at their chosen numbers, and random ones are listed: ${name}${skipped}`,
    async (t) => {
      const fixture = fixtureOf();
      const range = await freeRange(3);
      const moved = [await freePort(), await freePort(), await freePort()];
      const six = await freePort();
      const settings = { web_port: moved[0]!, first_port: moved[1]!, six_port: moved[2]! };
      const defaults = { web_port: range, first_port: range + 1, six_port: six };
      const properties = Object.entries(defaults).map(
        ([key, number]) => `${key}: { type: integer, default: ${number} }`,
      );
      const ports = [
        "{ name: web, setting: web_port }",
        "{ name: first, setting: first_port }",
        `{ name: second, default: ${range + 2} }`,
        "{ name: six, setting: six_port, protocol: udp }",
      ];
      const app = await fixture.app(
        `moved-${at}`,
        `${manifest}\nsettings: { properties: { ${properties.join(", ")} } }\nports: [${ports.join(", ")}]`,
        {
          settings,
          files: {
            "compose.yaml": `services:
  web:
    image: svc/web:1
    ports: ["${range}:8080", "${range + 1}-${range + 2}:91-92", "[::1]:${six}:93/udp", "127.0.0.1:${six}:93/tcp", "94"]
`,
          },
        },
      );
      await startApp(fixture.compose, app);
      const published = await fixture.compose.publishedAt(app);
      const known = [
        ...[`${moved[0]}/tcp`, `${moved[1]}/tcp`, `${range + 2}/tcp`],
        ...[`${moved[2]}/udp`, `${six}/tcp`],
      ];
      const random = [...published.keys()].filter((key) => !known.includes(key));
      t.deepEqual([...published.keys()].toSorted(), [...known, ...random].toSorted());
      t.deepEqual(published.get(`${moved[2]}/udp`), ["::1"]);
      t.is(random.length, 1);
      const names = fixture.compose.boundNames(app.id);
      t.is(names.get(random[0]!), "web-94");
      t.is(names.get(`${moved[1]}/tcp`), "web-91");
      t.is(await (await fetch(`http://127.0.0.1:${moved[0]}/`)).text(), "hello");
      await end(fixture, app);
    },
  );
}

for (const [at, { name, isClassic, runTest, skipped, fixtureOf }] of generations.entries()) {
  for (const [whose, uid] of [
    ["a user's", nobody],
    ["root's", 0],
  ] as const) {
    // Compose does not know whose services it resolves.
    if (isClassic && uid === 0) continue;
    runTest(
      `images of ${whose} services are pulled as pull_policy specifies: ${name}${skipped}`,
      async (t) => {
        const fixture = fixtureOf();
        const { images } = fixture.engine;
        const { host } = await fixture.engine.registry();
        const policies = {
          ...{ always: "always", never: "never", absent: "if_not_present" },
          ...(isClassic ? {} : { missing: "missing", timed: "every_1h2m", old: "weekly" }),
        };
        const tagOf = (service: string): string => `${host}/policy-${at}-${uid}/${service}:1`;
        const services = Object.entries(policies).map(
          ([service, policy]) =>
            `  ${service}: { image: "${tagOf(service)}", pull_policy: ${policy}, command: ${shell("cat /which")} }\n`,
        );
        const app = await fixture.app(`policy-${at}-${uid}`, manifest, {
          uid,
          files: { "compose.yaml": `services:\n${services.join("")}` },
        });
        for (const service of Object.keys(policies)) {
          await images.build(tagOf(service), { files: { which: `${service}-1\n` } });
          await images.push(tagOf(service));
        }
        await images.remove(tagOf("absent"));
        await startApp(fixture.compose, app);
        await requireLines(
          fixture,
          app,
          Object.keys(policies).map((service) => `${service} | ${service}-1`),
        );
        await fixture.compose.stop(app);
        for (const service of Object.keys(policies)) {
          await images.tag(tagOf(service), "svc/before:1");
          await images.build(tagOf(service), { files: { which: `${service}-2\n` } });
          await images.push(tagOf(service));
          await images.tag("svc/before:1", tagOf(service));
        }
        const times = join(fixture.store, "compose", app.id, "pulls.json");
        if (!isClassic) await writeFile(times, JSON.stringify({ [tagOf("timed")]: Date.now() - 3_000_000 }));
        await fixture.compose.start(app);
        const pulled = ["always", "old"];
        await requireLines(
          fixture,
          app,
          Object.keys(policies).map(
            (service) => `${service} | ${service}-${pulled.includes(service) ? 2 : 1}`,
          ),
        );
        await end(fixture, app);
        t.pass();
      },
    );
  }
}

preferred.runTest(
  `pull_policy "never" with a missing image fails before the install, and pulls nothing${preferred.skipped}`,
  async (t) => {
    const fixture = preferred.fixtureOf();
    const { images } = fixture.engine;
    const { host } = await fixture.engine.registry();
    const tag = `${host}/never/app:1`;
    await images.build(tag, {});
    await images.push(tag);
    await images.remove(tag);
    for (const uid of [nobody, 0]) {
      const app = await fixture.app(`never-${uid}`, manifest, {
        uid,
        files: { "compose.yaml": `services: { app: { image: "${tag}", pull_policy: never } }\n` },
      });
      const error = await t.throwsAsync(fixture.compose.prepare(app, {}));
      t.is(
        error.message,
        `image ${tag} is not found on this host, and its pull_policy is "never"; pull it first, or remove pull_policy`,
      );
    }
  },
);

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

for (const [whose, uid] of [
  ["a user's", nobody],
  ["root's", 0],
] as const) {
  second.runTest(
    `secrets and configs of ${whose} project have the values of .env${second.skipped}`,
    async (t) => {
      const fixture = second.fixtureOf();
      const app = await fixture.app(`secret-env-${uid}`, manifest, {
        uid,
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
}

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

second.runTest(
  `a service that shares the network of another one is restarted after it, at once if it ignores SIGTERM${second.skipped}`,
  async (t) => {
    const fixture = second.fixtureOf();
    const port = await freePort();
    const settings = "restart: { policy: always, delay: 100ms }\nstop: { grace: 5m }";
    const app = await fixture.app("tunnel", `${manifest}\n${settings}`, {
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
    const { pid, startedAt } = await firstProcess(fixture, app.id, "tunnel");
    process.kill(pid, "SIGKILL");
    await eventually(async () => {
      assert.notEqual((await firstProcess(fixture, app.id, "tunnel")).startedAt, startedAt);
      assert.equal(await answer(), "hello");
    });
    await fixture.compose.remove(app);
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

/** Writes a package whose `app` waits for a `db` that does not become healthy. @returns its directory */
async function writeWaiting(daemon: TestDaemon, id: string): Promise<string> {
  const dir = join(daemon.dir, id);
  await writeFiles(dir, {
    "svc.yaml": `id: ${id}\nname: ${id}\nversion: "1"\n${manifest}\nstop: { grace: 1s }\n`,
    "compose.yaml": `services:
  db:
    image: svc/shell:1
    command: ${shell("true")}
    healthcheck: { test: ["CMD", "/bin/sh", "-c", "exit 1"], interval: 10s, retries: 30 }
  app: { image: svc/shell:1, command: ${shell("true")}, depends_on: { db: { condition: service_healthy } } }
`,
  });
  return dir;
}

preferred.runTest(
  `a stop, a cancel or a removal ends a start that waits for a service${preferred.skipped}`,
  async (t) => {
    const { engine } = fixtureNow();
    const config = `${engine.config}\n[apps]\npath = ${JSON.stringify(installedCompose?.dirs ?? [])}\n`;
    await using daemon = await startDaemon({ config });
    const apps = daemon.client(AppService);
    const id = "waits";
    await apps.installApp({ spec: await writeWaiting(daemon, id) });
    for (const call of [apps.stopApp, apps.cancelAppOperation, apps.removeApp] as const) {
      const start = errorOf(apps.startApp({ id }));
      await eventually(async () => {
        const [stack] = (await apps.listStacks({})).stacks.filter(({ appId }) => appId === id);
        assert.ok(stack?.services.some(({ name, state }) => name === "db" && state === "running"));
      }, 60_000);
      await eventually(async () => {
        const { state, stateReason, waitsFor } = await apps.getApp({ id });
        assert.deepEqual([state, stateReason], ["STARTING", 'the app waits for the health check of "db"']);
        assert.equal(waitsFor, 'the health check of "db"');
      });
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

preferred.runTest(
  `an upgrade uses an edited .env, except for settings that the user chose${preferred.skipped}`,
  async (t) => {
    const { dirs } = preferred;
    const config = `${fixtureNow().engine.config}\n[apps]\npath = ${JSON.stringify(dirs)}\n`;
    await using daemon = await startDaemon({ config });
    const apps = daemon.client(AppService);
    const dir = join(daemon.dir, "edited");
    const write = (version: string): Promise<void> =>
      writeFiles(dir, { ".env": `G=${version}\nH=${version}\n` });
    await writeFiles(dir, {
      "compose.yaml": `services:
  app:
    image: svc/shell:1
    command: ${shell("echo g=$$G h=$$H")}
    environment: { G: "\${G}", H: "\${H}" }
`,
    });
    await write("one");
    const svc = async (...args: string[]): Promise<void> => {
      const host = { home: daemon.dir, uid: process.getuid?.() ?? 0, env: { PATH: dirs.join(delimiter) } };
      const { exitCode, stderr } = await runSvc([...args, "--socket", daemon.socketPath], { host });
      assert.equal(exitCode, 0, stderr);
    };
    const requireLine = (line: string): Promise<void> =>
      eventually(async () => {
        const texts = (await apps.getAppLogs({ id: "edited" })).lines.map(({ text }) => text);
        assert.equal(texts.at(-1), line);
      });
    await svc("install", dir, "--start", "--yes");
    await requireLine("app | g=one h=one");
    await write("two");
    await svc("upgrade", "edited", "--restart");
    await requireLine("app | g=two h=two");
    await svc("app", "settings", "set", "edited", "h=chosen");
    await write("three");
    await svc("upgrade", "edited", "--restart");
    await requireLine("app | g=three h=chosen");
    await apps.removeApp({ id: "edited" });
    t.pass();
  },
);

preferred.runTest(
  `an upgrade names the volumes that the new version does not use${preferred.skipped}`,
  async (t) => {
    const { dirs } = preferred;
    const config = `${fixtureNow().engine.config}\n[apps]\npath = ${JSON.stringify(dirs)}\n`;
    await using daemon = await startDaemon({ config });
    const dir = join(daemon.dir, "renamed");
    const write = (volume: string): Promise<void> =>
      writeFiles(dir, {
        "compose.yaml": `services:
  app: { image: svc/shell:1, command: ${shell(":")}, volumes: ["${volume}:/data", "same:/same"] }
volumes: { ${volume}: {}, same: {} }
`,
      });
    const svc = async (...args: string[]): Promise<string> => {
      const host = { home: daemon.dir, uid: process.getuid?.() ?? 0, env: { PATH: dirs.join(delimiter) } };
      const { exitCode, stderr } = await runSvc([...args, "--socket", daemon.socketPath], { host });
      assert.equal(exitCode, 0, stderr);
      return stderr;
    };
    await write("before");
    t.notRegex(await svc("install", dir, "--start", "--yes"), /does not use/);
    await write("after");
    const said = await svc("upgrade", "renamed", "--restart");
    t.regex(said, /this version does not use volume "before"; its data stays until the app is removed/);
    t.notRegex(said, /volume "same"/);
    t.notRegex(await svc("upgrade", "renamed", "--restart"), /does not use/);
    await svc("rm", "renamed", "--yes");
  },
);

for (const [whose, uid] of [
  ["root's", 0],
  ["a user's", nobody],
] as const) {
  preferred.runTest(`a file that is shipped empty is data of ${whose} app${preferred.skipped}`, async (t) => {
    const fixture = preferred.fixtureOf();
    const app = await fixture.app(`empty-${uid}`, manifest, {
      uid,
      files: {
        "acme.json": "",
        "app.conf": "shipped\n",
        "compose.yaml": `services:
  app:
    image: svc/shell:1
    command: ${shell("echo {} >> /acme.json; echo $$(cat /acme.json) $$(stat -c %a /acme.json) $$(cat /app.conf)")}
    volumes: ["./acme.json:/acme.json", "./app.conf:/app.conf"]
`,
      },
    });
    await chmod(join(app.directory, "repo/acme.json"), 0o600);
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["app | {} 600 shipped"]);
    t.is(await readFile(join(app.directory, "data/acme.json"), "utf8"), "{}\n");
    await fixture.compose.stop(app);
    await startApp(fixture.compose, app);
    await requireLines(fixture, app, ["app | {} {} 600 shipped"]);
    await end(fixture, app);
  });
}

preferred.runTest(
  `an upgrade retains what a service wrote to an empty file${preferred.skipped}`,
  async (t) => {
    const { dirs } = preferred;
    const config = `${fixtureNow().engine.config}\n[apps]\npath = ${JSON.stringify(dirs)}\n`;
    await using daemon = await startDaemon({ config });
    const apps = daemon.client(AppService);
    const dir = join(daemon.dir, "filled");
    await writeFiles(dir, {
      "db.sqlite": "",
      "app.conf": "one\n",
      "compose.yaml": `services:
  app:
    image: svc/shell:1
    command: ${shell("echo row >> /db.sqlite; echo $$(cat /db.sqlite /app.conf)")}
    volumes: ["./db.sqlite:/db.sqlite", "./app.conf:/app.conf"]
`,
    });
    const svc = async (...args: string[]): Promise<void> => {
      const host = { home: daemon.dir, uid: process.getuid?.() ?? 0, env: { PATH: dirs.join(delimiter) } };
      const { exitCode, stderr } = await runSvc([...args, "--socket", daemon.socketPath], { host });
      assert.equal(exitCode, 0, stderr);
    };
    const requireRows = (text: RegExp): Promise<void> =>
      eventually(async () => {
        const texts = (await apps.getAppLogs({ id: "filled" })).lines.map(({ text }) => text);
        assert.match(texts.at(-1) ?? "", text);
      });
    await svc("install", dir, "--start", "--yes");
    await requireRows(/^app \| row one$/);
    await writeFiles(dir, { "app.conf": "two\n" });
    await svc("upgrade", "filled", "--restart");
    await requireRows(/^app \| row row (row )?two$/);
    await svc("rm", "filled", "--yes");
    t.pass();
  },
);

preferred.runTest(`svc start names the service that it waits for${preferred.skipped}`, async (t) => {
  const { engine } = fixtureNow();
  const config = `${engine.config}\n[apps]\npath = ${JSON.stringify(installedCompose?.dirs ?? [])}\n`;
  await using daemon = await startDaemon({ config });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: await writeWaiting(daemon, "slow") });
  const stderr = new PassThrough();
  const host = { home: daemon.dir, uid: process.getuid?.() ?? 0, stderr };
  const started = runSvc(["start", "slow", "--socket", daemon.socketPath], { host });
  let printed = "";
  for await (const chunk of stderr) {
    printed += String(chunk);
    if (printed.includes("\n")) break;
  }
  t.is(printed, 'start slow: Waiting for the health check of "db"\n');
  await apps.stopApp({ id: "slow" });
  t.not((await started).exitCode, 0);
});

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

/** The first of several neighboring ports that are free. */
async function freeRange(count: number): Promise<number> {
  for (;;) {
    const first = await freePort();
    const others = Array.from({ length: count - 1 }, (_, at) => first + at + 1);
    if (first + count <= 65_535 && (await Promise.all(others.map(isFree))).every(Boolean)) return first;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    await once(server.listen(port, "127.0.0.1"), "listening");
    return true;
  } catch {
    return false;
  } finally {
    server.close();
  }
}
