/** Compose projects on a real engine, with compose v2 if it is available, and with the version that this host has. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import type { SvcError } from "../../../src/errors.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { freePort } from "../../support/packages.ts";
import { failureOf, forever, sharedFixture, startApp } from "../../runtimes/support/container-tests.ts";
import { composeTest, hostSearchPath, needsCompose } from "../../runtimes/support/compose-test.ts";
import { DockerFixture, nobody } from "../../runtimes/support/docker-fixture.ts";

const fixtureNow = sharedFixture();
const host: { fixture?: DockerFixture } = {};
if (needsCompose === "") {
  test.before(async () => {
    host.fixture = await DockerFixture.create(fixtureNow().engine, { dirs: hostSearchPath });
  });
  test.after.always(() => host.fixture?.[Symbol.asyncDispose]());
}

/** For tests that depend on how compose reads its files, on its error messages, and on earlier containers. */
function hostFixtureNow(): DockerFixture {
  assert.ok(host.fixture !== undefined);
  return host.fixture;
}

composeTest(
  `a project starts, responds, writes as its owner, is followed, stops and is removed completely${needsCompose}`,
  async (t) => {
    const fixture = hostFixtureNow();
    const { compose, engine } = fixture;
    const port = await freePort();
    const app = await fixture.app(
      "shop",
      `compose: { file: compose.yaml, env: { MEDIA: "\${volumes.media}" } }
settings: { properties: { port: { type: integer, default: 1, env: PORT }, greeting: { type: string, default: "a$b", env: GREETING } } }
ports: [{ name: http, setting: port }]
volumes: [{ name: media }]
health: { http: { port: http } }`,
      {
        settings: { port },
        files: {
          "compose.yaml": `
services:
  web:
    image: svc/web:1
    container_name: front
    ports: ["\${PORT}:8080"]
    depends_on: [worker]
  worker:
    build: { context: ./worker, args: { NAME: "x$$y" } }
    environment: { GREETING: "\${GREETING}", LITERAL: "$\${HOME}" }
    volumes: ["\${MEDIA}:/media", "./conf:/conf:ro", "kept:/kept"]
  debug:
    image: svc/none:1
    profiles: [debug]
volumes: { kept: {} }
`,
          "worker/Dockerfile":
            'FROM svc/shell:1\nARG NAME\nENV NAME=$NAME\nCMD ["/bin/sh", "/run.sh"]\nCOPY run.sh /run.sh\n',
          "worker/run.sh": `id -u > /media/uid; id -u > /kept/uid || exit 9; echo "$GREETING $LITERAL $NAME" > /media/env; printf "%s\\n" 1 2 3 4 5 working; ${forever}\n`,
        },
      },
    );
    await startApp(fixture.compose, app);
    t.is(compose.status("shop")?.state, "RUNNING");
    await compose.waitHealthy("shop", 20_000);
    t.is(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "hello");
    const text = async (path: string): Promise<string> =>
      (await readFile(join(app.directory, "volumes/media", path), "utf8")).trim();
    await eventually(async () => assert.equal(await text("env"), "a$b ${HOME} x$y"));
    t.is(await text("uid"), String(nobody));
    t.is((await stat(join(app.directory, "volumes/media/uid"))).uid, nobody);

    const [stack] = await compose.images.stacks([app]);
    t.is(stack?.name, fixture.ownership.projectOf("shop"));
    t.deepEqual(
      stack?.services.map(({ name, state }) => [name, state]),
      [
        ["web", "running"],
        ["worker", "running"],
      ],
    );
    const { lines } = await compose.logs(app, { tail: 10 });
    t.true(lines.some((line) => line.text === "worker | working"));
    const stop = new AbortController();
    for await (const chunk of compose.followLogs(app, { tail: 10, signal: stop.signal })) {
      if (chunk.lines.some((line) => line.text === "worker | working")) stop.abort();
    }
    const short = new AbortController();
    const followed: string[] = [];
    for await (const chunk of compose.followLogs(app, { tail: 1, signal: short.signal })) {
      followed.push(...chunk.lines.map((line) => line.text));
      setTimeout(() => short.abort(), 1_500);
    }
    t.deepEqual(followed, ["worker | working"], "lines of the same millisecond are not repeated");
    const usage = await compose.stats([app]);
    t.true((usage.get("shop")?.processes ?? 0) >= 2);
    const { services: shown = [], ...whole } = await compose.images.image(app, { checkRemote: true });
    t.deepEqual(whole, {});
    t.deepEqual(
      shown.map(({ service, image }) => [service, image.freshnessReason]),
      [
        ["web", "the image did not come from a registry"],
        ["worker", "the image was built here, from the app's checkout"],
      ],
    );
    const needs = await compose.images.needs(app);
    const volume = `${fixture.ownership.projectOf("shop")}_kept`;
    t.deepEqual(needs.volumes, [volume]);
    t.is(needs.images.length, 2);
    const disk = await compose.images.disk(app);
    t.true(disk.imageBytes! > 0);
    t.deepEqual(
      disk.volumes.map(({ name }) => name),
      [volume],
    );
    t.is((await failureOf(compose.images.pull(app, {}))).reason, "pinned_image");

    await compose.stop(app);
    t.is(compose.status("shop")?.state, "STOPPED");
    await compose.start(app);
    t.is(compose.status("shop")?.state, "RUNNING");
    await compose.stop(app);
    t.true((await compose.remove(app)) > 0);
    const label = encodeURIComponent(JSON.stringify({ label: ["svc.app=shop"] }));
    const left = async (path: string): Promise<unknown> =>
      (await engine.request("GET", `${path}filters=${label}`)).expect(200);
    t.deepEqual(await left("/containers/json?all=1&"), []);
    t.deepEqual(await left("/networks?"), []);
    t.deepEqual(await left("/images/json?"), []);
    t.falsy(((await left("/volumes?")) as { Volumes: unknown[] | null }).Volumes?.length);
  },
);

composeTest(
  `a project above its owner's rights is rejected, and compose's own errors are reported${needsCompose}`,
  async (t) => {
    const fixture = hostFixtureNow();
    const manifest = "compose: { file: compose.yaml }";
    const cases: [content: string, reason: SvcError["reason"], message: RegExp][] = [
      ["services: {a: {image: a, privileged: true}}", "denied", /service "a" runs privileged/],
      ['services: {a: {image: a, volumes: ["./out:/x"]}}', "denied", /link/],
      ["services: {a: {image: a, nonsense: 1}}", "package_invalid", /nonsense/],
      ["services: {}", "package_invalid", /./],
    ];
    const owner = await fixture.userHelpers.as(nobody);
    for (const [content, reason, message] of cases) {
      const app = await fixture.app("refused", manifest, { files: { "compose.yaml": content } });
      await owner.runCommand(["ln", "-sfn", "/etc", join(app.directory, "repo/out")]);
      const error = await failureOf(fixture.compose.prepare(app, {}));
      t.is(error.reason, reason, error.message);
      t.regex(error.message, message);
    }
  },
);

for (const [generation, fixtureOf] of [
  ["the second", fixtureNow],
  ["the host's own", hostFixtureNow],
] as const) {
  composeTest(
    `a mount has the name that was checked, in any YAML spelling: ${generation} compose${needsCompose}`,
    async (t) => {
      const fixture = fixtureOf();
      const { engine } = fixture;
      // Only root may access it, but the engine could.
      const secret = join(fixture.store, "secret");
      await mkdir(secret, { mode: 0o700 });
      await writeFile(join(secret, "who"), "stolen", { mode: 0o644 });
      const service = (target: string): string =>
        `image: svc/shell:1\n    command: ["/bin/sh", "-c", "cat ${target}/who; ${forever}"]\n    volumes: ["./a\\Nb:${target}:ro"]`;
      const app = await fixture.app("spelled", "compose: { file: compose.yaml }", {
        files: {
          "compose.yaml": `services:\n  web:\n    ${service("/conf")}\n`,
          "a\u0085b/who": "checked\n",
        },
      });
      const owner = await fixture.userHelpers.as(nobody);
      // Where compose v2 resolves it; compose v1 reads its own output differently.
      for (const place of ["repo", "data"]) {
        await owner.runCommand(["ln", "-s", secret, join(app.directory, place, "a b")]);
      }
      await startApp(fixture.compose, app);
      const filters = encodeURIComponent(JSON.stringify({ label: ["svc.app=spelled"] }));
      const [container] = (await engine.request("GET", `/containers/json?filters=${filters}`)).expect(
        200,
      ) as {
        Mounts: { Source: string }[];
      }[];
      t.regex(container?.Mounts[0]?.Source ?? "", /\/a\u0085 *b$/);
      await eventually(async () => {
        const { lines } = await fixture.compose.logs(app, { tail: 10 });
        assert.match(lines.map(({ text }) => text).join("\n"), /checked|No such file/);
      });
      const { lines } = await fixture.compose.logs(app, { tail: 10 });
      t.false(lines.some(({ text }) => text.includes("stolen")));
      await fixture.compose.stop(app);
      t.true((await fixture.compose.remove(app)) >= 0);
    },
  );
}

composeTest(
  `a service that exits at once fails the start; one that exits later shows its state${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const { compose } = fixture;
    const file = (script: string): string =>
      `services:
  good: { image: "svc/shell:1" }
  bad: { image: "svc/shell:1", restart: "no", command: ["/bin/sh", "-c", ${JSON.stringify(script)}] }
`;
    const manifest = "compose: { file: compose.yaml }";
    const fails = await fixture.app("fails", manifest, {
      files: { "compose.yaml": file("echo why; exit 6") },
    });
    await compose.prepare(fails, {});
    const error = await failureOf(compose.start(fails));
    t.is(error.reason, "start_failed");
    t.regex(error.message, /service "bad" exited with code 6/);
    t.like(error.payload, { exitCode: 6, lastLines: ["why"] });
    t.is(compose.status("fails")?.state, "STOPPED");
    await compose.remove(fails);

    const later = await fixture.app("later", manifest, {
      files: { "compose.yaml": file("sleep 6; exit 7") },
    });
    await startApp(fixture.compose, later);
    await eventually(() => assert.equal(compose.status("later")?.health, "unhealthy"), 20_000);
    t.like(compose.status("later"), { state: "RUNNING", exitCode: 7 });
    t.regex(compose.status("later")!.reason, /service "bad" exited with code 7/);
    await compose.remove(later);
  },
);

composeTest(
  `a failed start leaves nothing running, names the reason, and the next one starts every service${needsCompose}`,
  async (t) => {
    const fixture = hostFixtureNow();
    const { compose, engine } = fixture;
    const taken = createServer().listen(0, "0.0.0.0");
    t.teardown(() => taken.close());
    await once(taken, "listening");
    const { port } = taken.address() as AddressInfo;
    const app = await fixture.app("half", "compose: { file: compose.yaml }", {
      files: {
        "compose.yaml": `services:
  db: { image: "svc/shell:1", command: ["/bin/sh", "-c", ${JSON.stringify(forever)}] }
  web: { image: "svc/web:1", depends_on: [db], ports: ["${port}:8080"] }
`,
      },
    });
    const running = async (): Promise<string[]> => {
      const filters = encodeURIComponent(JSON.stringify({ label: ["svc.app=half"] }));
      const all = (await engine.request("GET", `/containers/json?filters=${filters}`)).expect(200);
      return (all as { Names: string[] }[]).flatMap(({ Names }) => Names);
    };
    const error = await failureOf(startApp(compose, app));
    t.is(error.reason, "start_failed");
    t.regex(error.message, /address already in use|already allocated/);
    t.notRegex(error.message, /Encountered errors/);
    t.deepEqual(await running(), []);
    t.is(compose.status("half")?.state, "STOPPED");

    taken.close();
    await nextEvent(taken, "close");
    await compose.start(app);
    t.is((await running()).length, 2);
    t.like(compose.status("half"), { state: "RUNNING", reason: "" });
    await compose.stop(app);
    await compose.remove(app);
  },
);

composeTest(
  `a removal fails before data is lost, and an external container on a network does not block it${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const { compose, engine } = fixture;
    const script = JSON.stringify(forever);
    const app = await fixture.app("leaving", "compose: { file: compose.yaml }", {
      files: {
        "compose.yaml": `services: { db: { image: "svc/shell:1", command: ["/bin/sh", "-c", ${script}], volumes: ["rows:/rows"] } }
volumes: { rows: {} }
`,
      },
    });
    await startApp(compose, app);
    await compose.stop(app);
    const stranger = async (name: string, hostConfig: object): Promise<void> => {
      const body = { Image: "svc/shell:1", Cmd: ["/bin/sh", "-c", forever], HostConfig: hostConfig };
      (await engine.request("POST", `/containers/create?name=${name}`, body)).expect(201);
      (await engine.request("POST", `/containers/${name}/start`)).expect(204);
    };
    const gone = async (name: string): Promise<unknown> =>
      engine.request("DELETE", `/containers/${name}?force=1`);
    const project = fixture.ownership.projectOf("leaving");
    await stranger("reader", { Binds: [`${project}_rows:/rows`] });
    t.regex(
      (await failureOf(compose.remove(app))).message,
      new RegExp(`its volume ${project}_rows is used by container reader`),
      "at once, however briefly it exists",
    );
    const [stack] = await compose.images.stacks([app]);
    t.is(stack?.services.length, 1, "nothing of it is gone");
    await gone("reader");
    await stranger("guest", { NetworkMode: `${project}_default` });
    // A container that was removed a moment ago when it handed over the volume does not count.
    const since = (Date.now() / 1000).toFixed(3);
    await compose.remove(app);
    await gone("guest");
    const until = Math.ceil(Date.now() / 1000) + 1;
    const filters = encodeURIComponent(JSON.stringify({ event: ["destroy"] }));
    const { text } = await engine.request("GET", `/events?since=${since}&until=${until}&filters=${filters}`);
    const destroyed = text
      .trim()
      .split("\n")
      .map(
        (line) => JSON.parse(line) as { Type: string; Actor: { ID: string; Attributes: { name?: string } } },
      )
      .filter(({ Actor }) => (Actor.Attributes.name ?? Actor.ID).startsWith("svc-leaving"))
      .map(({ Type }) => Type);
    t.deepEqual(
      destroyed,
      ["container", "network", "volume"],
      "data that cannot be recreated is removed last",
    );
    const networks = (await engine.request("GET", "/networks")).expect(200) as { Name: string }[];
    t.false(networks.some(({ Name }) => Name === `${project}_default`));
  },
);

composeTest(
  `files that an earlier svc let a project write into its checkout are moved out of it${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const app = await fixture.app("old", "compose: { file: compose.yaml }", {
      files: {
        "compose.yaml": `services: { db: { image: "svc/shell:1", network_mode: none, volumes: ["./db:/db"] } }`,
        "db/rows": "all of them",
      },
    });
    const source = join(app.directory, "repo/db");
    const kept = { services: { db: { volumes: [{ type: "bind", source, target: "/db" }] } } };
    await mkdir(join(fixture.store, "compose/old"), { recursive: true });
    await writeFile(join(fixture.store, "compose/old/compose.json"), JSON.stringify(kept));
    await fixture.compose.preserveData(app);
    t.is(await readFile(join(app.directory, "data/db/rows"), "utf8"), "all of them");
    await t.throwsAsync(stat(source), { code: "ENOENT" });
    await startApp(fixture.compose, app);
    await fixture.compose.stop(app);
    t.is(await readFile(join(app.directory, "data/db/rows"), "utf8"), "all of them");
    await fixture.compose.remove(app);
  },
);

composeTest(`new volumes belong to their owner, with the image's files${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const write =
    "for dir in /plain /filled/sub /filled /nameless /both; do id -u > $$dir/written || exit 9; done; cat /filled/sub/seed; ls -l /filled; readlink /filled/to;";
  const manifest = "compose: { file: compose.yaml }";
  const files = {
    "compose.yaml": `services:
  a:
    build: { context: ./image }
    read_only: true
    network_mode: none
    command: ["/bin/sh", "-c", ${JSON.stringify(`${write} ${forever}`)}]
    volumes: ["plain:/plain", "filled:/filled", "/nameless", "both:/both"]
  b:
    image: svc/shell:1
    network_mode: none
    command: ["/bin/sh", "-c", ${JSON.stringify(`id -u > /deep/both/from-b || exit 9; ${forever}`)}]
    volumes: ["both:/deep/both"]
volumes: { plain: {}, filled: {}, both: {} }
`,
    "image/Dockerfile":
      "FROM svc/shell:1\nRUN mkdir -p /filled/sub && echo seeded > /filled/sub/seed && ln /filled/sub/seed /filled/same && ln -s sub/seed /filled/to && chmod 700 /filled/sub\n",
  };
  const app = await startApp(fixture.compose, await fixture.app("volumes", manifest, { files }));
  t.is(fixture.compose.status("volumes")?.state, "RUNNING");
  await eventually(async () => {
    const { lines } = await fixture.compose.logs(app, { tail: 20 });
    const texts = lines.map(({ text }) => text);
    assert.ok(texts.includes("a | seeded"), texts.join("\n"));
    assert.ok(texts.includes("a | sub/seed"), texts.join("\n"));
  });
  const all = (await fixture.engine.request("GET", "/containers/json?all=1")).expect(200) as {
    Names: string[];
  }[];
  t.deepEqual(
    all.flatMap(({ Names }) => Names).filter((name) => name.endsWith("-volumes")),
    [],
  );
  await fixture.compose.stop(app);
  await fixture.compose.start(app);
  t.is(fixture.compose.status("volumes")?.state, "RUNNING");
  await fixture.compose.stop(app);
  await fixture.compose.remove(app);
});

composeTest(`an empty volume keeps its owner when its container is replaced${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const script = (round: string): string => `[ -w /data ] && echo ${round} is writable; ${forever}`;
  const compose = (round: string): string => `services:
  db:
    image: svc/shell:1
    network_mode: none
    command: ["/bin/sh", "-c", ${JSON.stringify(script(round))}]
    volumes: ["rows:/data"]
volumes: { rows: {} }
`;
  const files = { "compose.yaml": compose("one") };
  const app = await startApp(
    fixture.compose,
    await fixture.app("empty", "compose: { file: compose.yaml }", { files }),
  );
  const expectWritable = async (round: string): Promise<void> =>
    eventually(async () => {
      const { lines } = await fixture.compose.logs(app, { tail: 20 });
      const texts = lines.map(({ text }) => text);
      assert.ok(texts.includes(`db | ${round} is writable`), texts.join("\n"));
    });
  await expectWritable("one");
  await fixture.compose.stop(app);
  await writeFile(join(app.directory, "repo/compose.yaml"), compose("two"));
  await fixture.compose.start(app);
  await expectWritable("two");
  t.pass();
  await fixture.compose.stop(app);
  await fixture.compose.remove(app);
});

composeTest(`an install names the root service that cannot write to its data${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  await fixture.engine.images.build("svc/node:1", { user: "1000:1000" });
  const services = {
    root: { image: "svc/shell:1", volumes: ["./root:/d"] },
    image: { image: "svc/node:1", volumes: ["./both:/d", "kept:/kept", "./app.conf:/app.conf"] },
    user: { image: "svc/shell:1", user: "1001", volumes: ["./own:/d", "./both:/r:ro"] },
    name: { image: "svc/shell:1", user: "nobody", volumes: ["./name:/d"] },
    first: { image: "svc/shell:1", user: "1001", volumes: ["./shared:/d"] },
    second: { image: "svc/shell:1", user: "1002", volumes: ["./shared:/d"] },
    back: { image: "svc/node:1", user: "0:0", volumes: ["./back:/d"] },
    none: { image: "svc/node:1", volumes: ["kept:/kept"] },
  };
  const files = { "compose.yaml": JSON.stringify({ services, volumes: { kept: {} } }), "app.conf": "" };
  const installMessages = async (id: string, uid: number): Promise<string[]> => {
    const messages: string[] = [];
    const app = await fixture.app(id, "compose: { file: compose.yaml }", { uid, files });
    await fixture.compose.prepare(app, {
      onProgress: ({ step, message }) => {
        if (step === "warning")
          messages.push(
            message.replace(/; set the service's "user" to "0:0", or have a regular user .*/, ""),
          );
      },
    });
    await fixture.compose.remove(app);
    return messages;
  };
  t.deepEqual(await installMessages("roots", 0), [
    'service "first" runs as "1001" and cannot write to data/shared, which belongs to "0:0"',
    'service "name" runs as "nobody" and cannot write to data/name, which belongs to "0:0"',
    'service "second" runs as "1002" and cannot write to data/shared, which belongs to "0:0"',
  ]);
});

composeTest(
  `directories of root's app belong to the numeric user of their service, also after a restore${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const script = "mkdir -p /d/sub && echo start >> /d/sub/starts && touch /o/x || exit 9";
    const command = ["/bin/sh", "-c", `${script}; ${forever}`];
    const services = {
      app: { image: "svc/shell:1", user: "1000:1001", volumes: ["./d:/d", "./o:/o"], command },
      other: { image: "svc/shell:1", volumes: ["./o:/o"], command: ["/bin/sh", "-c", forever] },
    };
    const files = { "compose.yaml": JSON.stringify({ services }), "o/prepared": "" };
    const app = await fixture.app("given", "compose: { file: compose.yaml }", { uid: 0, files });
    await startApp(fixture.compose, app);
    for (const name of ["d", "d/sub", "o", "o/prepared"]) {
      const { uid, gid } = await stat(join(app.directory, "data", name));
      t.deepEqual([uid, gid], [1000, 1001], name);
    }
    await fixture.compose.stop(app);
    // Archives do not contain owners.
    await promisify(execFile)("chown", ["-R", "0:0", join(app.directory, "data")]);
    await fixture.compose.start(app);
    await eventually(async () =>
      assert.equal(await readFile(join(app.directory, "data/d/sub/starts"), "utf8"), "start\nstart\n"),
    );
    await fixture.compose.stop(app);
    await fixture.compose.remove(app);
  },
);

composeTest(
  `each service's image is compared with its registry, and pulled if needed${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const { compose, engine } = fixture;
    const { host } = await engine.registry();
    const tags = {
      moves: `${host}/moves:latest`,
      pinned: `${host}/pinned:1.2.3`,
      other: `${host}/other:latest`,
    };
    for (const tag of Object.values(tags)) {
      await engine.images.build(tag, { labels: { n: "1" } });
      await engine.images.push(tag);
    }
    const services = Object.entries(tags).map(([name, tag]) => `${name}: { image: "${tag}" }`);
    const app = await fixture.app("images", "compose: { file: compose.yaml }", {
      files: { "compose.yaml": `services:\n  ${services.join("\n  ")}\n` },
    });
    await compose.prepare(app, {});
    const freshness = async (): Promise<unknown> => {
      const { services: shown = [] } = await compose.images.image(app, { checkRemote: true });
      return shown.map(({ service, image }) => [service, image.reference, image.freshness]);
    };
    const expected = (moves: string): unknown => [
      ["moves", tags.moves, moves],
      ["other", tags.other, "current"],
      ["pinned", tags.pinned, "current"],
    ];
    t.deepEqual(await freshness(), expected("current"));
    // Somebody pushes another image; the engine here still has the old one under the name.
    const before = ((await engine.request("GET", `/images/${tags.moves}/json`)).expect(200) as { Id: string })
      .Id;
    await engine.images.tag(tags.moves, "svc/before:1");
    await engine.images.build(tags.moves, { labels: { n: "2" } });
    await engine.images.push(tags.moves);
    await engine.images.tag("svc/before:1", tags.moves);
    t.deepEqual(await freshness(), expected("outdated"));
    const pulled = await compose.images.pull(app, {});
    t.true(pulled.changed);
    t.deepEqual(pulled.replaced, [{ reference: tags.moves, id: before }]);
    t.deepEqual(pulled.services, [
      { service: "moves", reference: tags.moves, changed: true, reason: "" },
      { service: "other", reference: tags.other, changed: false, reason: "" },
      {
        service: "pinned",
        reference: tags.pinned,
        changed: false,
        reason: 'the tag "1.2.3" states a version',
      },
    ]);
    t.deepEqual(await freshness(), expected("current"));
    await compose.remove(app);
  },
);

composeTest(`objects created by a rolled-back upgrade are removed, except data${needsCompose}`, async (t) => {
  const fixture = hostFixtureNow();
  const { compose, engine } = fixture;
  const run = JSON.stringify(["/bin/sh", "-c", forever]).replaceAll("$", "$$$$");
  const service = `{ image: svc/shell:1, command: ${run}`;
  const files = {
    "compose.yaml": `services:\n  web: ${service} }\n  keeper: ${service}, volumes: [/kept] }\n`,
  };
  const manifest = "compose: { file: compose.yaml }";
  const first = { ...(await fixture.app("undone", manifest, { files })), startedSettings: {} };
  const second = await fixture.app("undone", manifest, { version: "2.0.0", files });
  const filters = encodeURIComponent(JSON.stringify({ label: ["svc.app=undone"] }));
  const services = async (): Promise<string[]> => {
    const listed = (await engine.request("GET", `/containers/json?all=1&filters=${filters}`)).expect(200);
    return (listed as { Labels: Record<string, string> }[])
      .map(({ Labels }) => Labels["com.docker.compose.service"] ?? "")
      .sort();
  };
  await startApp(compose, first);
  await compose.stop(first);
  await compose.settle({ ...first, settings: { word: "next" } });
  await compose.settle({ ...first, startedSettings: { word: "before" } });
  t.deepEqual(await services(), ["keeper", "web"], "they belong to the project");
  await startApp(compose, second);
  await compose.settle(first);
  t.deepEqual(await services(), ["keeper", "web"], "they run");
  await compose.stop(second);
  await compose.prepare(first, {});
  await compose.settle(first);
  t.deepEqual(await services(), ["keeper"], "no other container has its volume");
  await compose.start(first);
  t.deepEqual(await services(), ["keeper", "web"]);
  await compose.stop(first);
  await compose.remove(first);
});

composeTest(
  `a health check never connects to a port that no container of the app publishes${needsCompose}`,
  async (t) => {
    const fixture = hostFixtureNow();
    const { compose } = fixture;
    let connections = 0;
    const other = createServer((socket) => {
      connections++;
      socket.on("error", () => undefined).end("HTTP/1.1 200 OK\r\n\r\n");
    }).listen(0, "127.0.0.2");
    t.teardown(() => other.close());
    await once(other, "listening");
    const { port } = other.address() as AddressInfo;
    const app = await fixture.app(
      "spy",
      `compose: { file: compose.yaml }
ports: [{ name: http, default: ${port}, address: 127.0.0.2 }]
health: { http: { port: http }, start_period: 1s, interval: 1s, retries: 1 }`,
      { files: { "compose.yaml": `services:\n  web: { image: "svc/web:1" }\n` } },
    );
    await startApp(compose, app);
    await eventually(() => assert.equal(compose.status("spy")?.health, "unhealthy"), 20_000);
    t.regex(
      compose.status("spy")?.healthReason ?? "",
      new RegExp(`port ${port} is not published by a container`),
    );
    t.is(connections, 0);
    await compose.remove(app);
  },
);
