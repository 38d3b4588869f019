/** Apps as containers on a real engine. */
import assert from "node:assert/strict";
import { readFile, rename, stat, symlink, unlink } from "node:fs/promises";
import { join } from "node:path";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort } from "../../support/packages.ts";
import { failureOf, forever, sharedFixture, startApp } from "../../runtimes/support/container-tests.ts";
import { DockerFixture, nobody } from "../../runtimes/support/docker-fixture.ts";

const fixtureNow = sharedFixture();

const shell = (script: string, more = ""): string =>
  `docker: { image: "svc/shell:1", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(script)}] }\n${more}`;

dockerTest(`an app responds on its port, is healthy, stops and is removed${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { runtime, engine } = fixture;
  const port = await freePort();
  const app = await fixture.app(
    "web",
    `docker: { image: "svc/web:1" }
settings: { properties: { port: { type: integer, default: 1 } } }
ports: [{ name: http, setting: port, container_port: 8080 }]
health: { http: { port: http } }
limits: { memory: 64MiB, cpus: 0.5, open_files: 64 }`,
    { settings: { port } },
  );
  await startApp(fixture.runtime, app);
  t.is(runtime.status("web")?.state, "RUNNING");
  await runtime.waitHealthy("web", 20_000);
  t.is(runtime.status("web")?.health, "healthy");
  t.is(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "hello");
  const all = (await engine.request("GET", "/containers/json?all=1")).expect(200) as { Names: string[] }[];
  const [name] = all.flatMap(({ Names }) => Names).filter((found) => found.startsWith("/svc-web-"));
  const { HostConfig, Config } = (await engine.request("GET", `/containers${name!}/json`)).expect(200) as {
    HostConfig: { Memory: number; NanoCpus: number; SecurityOpt: string[]; RestartPolicy: unknown };
    Config: { User: string; Labels: Record<string, string> };
  };
  t.like(HostConfig, {
    Memory: 64 * 2 ** 20,
    NanoCpus: 5e8,
    SecurityOpt: ["no-new-privileges"],
    RestartPolicy: { Name: "no" },
  });
  t.is(Config.User, `${nobody}:${nobody}`);
  t.like(Config.Labels, { "svc.app": "web", "svc.store": "test" });
  t.deepEqual(
    runtime.limits(app).map(({ name: limit, enforced }) => [limit, enforced]),
    [
      ["memory", true],
      ["cpus", true],
      ["open_files", true],
    ],
  );
  await runtime.stop(app);
  t.is(runtime.status("web")?.state, "STOPPED");
  await t.throwsAsync(fetch(`http://127.0.0.1:${port}/`));
  await runtime.remove(app);
  t.is(runtime.status("web"), undefined);
  t.deepEqual((await engine.request("GET", `/containers${name!}/json`)).status, 404);
});

dockerTest(
  `volumes, data and the checkout are mounted as the manifest states, with the owner's rights${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const app = await fixture.app(
      "mounts",
      `docker:
  image: "svc/shell:1"
  entrypoint: [/bin/sh, -c]
  env: { MEDIA: "\${volumes.media}", DATA: "\${data}", GREETING: "\${settings.greeting}" }
  command:
    - "id -u > $MEDIA/uid; echo $GREETING > $DATA/greeting; cat \${repo}/file > $MEDIA/file; touch \${repo}/x || echo no > $MEDIA/ro; ${forever}"
volumes: [{ name: media, path: /srv/media }]
settings: { properties: { greeting: { type: string, default: hello } } }`,
      { files: { file: "from the checkout" } },
    );
    await startApp(fixture.runtime, app);
    const text = async (path: string): Promise<string> =>
      (await readFile(join(app.directory, path), "utf8")).trim();
    await eventually(async () => assert.equal(await text("volumes/srv/media/ro"), "no"));
    t.is(await text("volumes/srv/media/uid"), String(nobody));
    t.is(await text("volumes/srv/media/file"), "from the checkout");
    t.is(await text("data/greeting"), "hello");
    t.is((await stat(join(app.directory, "data/greeting"))).uid, nobody);
    await fixture.runtime.remove(app);
  },
);

dockerTest(
  `an app that exits at once fails to start, with its exit code and last lines${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const app = await fixture.app("fails", shell("echo one; echo two >&2; exit 3"));
    await fixture.runtime.prepare(app, {});
    const error = await failureOf(fixture.runtime.start(app));
    t.is(error.reason, "start_failed");
    t.regex(error.message, /the container exited with code 3/);
    t.like(error.payload, { exitCode: 3 });
    t.deepEqual([...new Set((error.payload as { lastLines: string[] }).lastLines)].sort(), ["one", "two"]);
    t.is(fixture.runtime.status("fails")?.state, "STOPPED");
    await fixture.runtime.remove(app);
  },
);

dockerTest(`a failed start names the port in use${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const port = await freePort();
  const manifest = shell(forever, `ports: [{ name: http, default: ${port} }]`);
  const first = await startApp(fixture.runtime, await fixture.app("taken", manifest));
  const second = await fixture.app("taken-2", manifest);
  await fixture.runtime.prepare(second, {});
  const error = await failureOf(fixture.runtime.start(second));
  t.is(error.reason, "start_failed");
  t.regex(error.message, /address already in use|port is already allocated/);
  for (const app of [first, second]) await fixture.runtime.remove(app);
});

dockerTest(
  `a package above its owner's rights is rejected before anything is created${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const app = await fixture.app(
      "greedy",
      `docker: { image: "registry.invalid/x:1", privileged: true }\npermissions: [privileged]`,
    );
    const error = await failureOf(fixture.runtime.prepare(app, {}));
    t.is(error.reason, "denied");
  },
);

dockerTest(
  `a crash, restarts by svc, and the last failed retry are visible within a second${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { runtime } = fixture;
    const app = await fixture.app(
      "crash",
      shell("echo line; sleep 1; exit 7", "restart: { policy: on-failure, max_attempts: 1 }"),
    );
    await startApp(fixture.runtime, app);
    const seen = new Set<string>();
    const ends = new Set<string | undefined>();
    using _listening = runtime.onChange((id) => {
      if (id !== "crash") return;
      const { reason, endedReason } = runtime.status("crash")!;
      seen.add(reason);
      ends.add(endedReason);
    });
    const before = runtime.revision;
    await eventually(() => {
      const { state, restarts, nextRestartAtMs } = runtime.status("crash")!;
      assert.deepEqual([state, restarts, nextRestartAtMs], ["CRASHED", 1, undefined]);
    }, 15_000);
    const status = runtime.status("crash")!;
    t.is(status.exitCode, 7);
    t.is(status.restarts, 1);
    t.is(status.lastLines.at(-1), "line");
    t.regex(status.reason, /exited with code 7/);
    t.true(runtime.revision > before);
    t.true(
      [...seen].some((reason) =>
        reason.startsWith("BACKOFF after 0 restarts: the container exited with code 7"),
      ),
      [...seen].join(),
    );
    t.true(ends.has("the container exited with code 7"));
    t.is(status.endedReason, undefined);
    // The app is started again from this state.
    await runtime.start(app);
    t.is(runtime.status("crash")?.state, "RUNNING");
    t.is(runtime.status("crash")?.restarts, 0);
    await runtime.remove(app);
  },
);

dockerTest(`an app that exits with 0 has stopped by itself${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const app = await startApp(fixture.runtime, await fixture.app("once", shell("sleep 1")));
  await eventually(() => assert.equal(fixture.runtime.status("once")?.state, "STOPPED"));
  t.regex(fixture.runtime.status("once")!.reason, /exited with code 0/);
  await fixture.runtime.remove(app);
});

dockerTest(
  `a published port on which nothing listens in the container is unhealthy${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const manifest = async (docker: string): Promise<string> => `${docker}
settings: { properties: { port: { type: integer, default: ${await freePort()} } } }
ports: [{ name: http, setting: port, container_port: 8080 }]
health: { tcp: { port: http }, interval: 1s, start_period: 1ms, retries: 2 }`;
    const well = await fixture.app("well", await manifest('docker: { image: "svc/web:1" }'));
    await startApp(fixture.runtime, well);
    await fixture.runtime.waitHealthy("well", 20_000);
    t.is(fixture.runtime.status("well")?.health, "healthy");
    const ill = await fixture.app("ill", await manifest(shell(forever)));
    await startApp(fixture.runtime, ill);
    const error = await failureOf(fixture.runtime.waitHealthy("ill", 20_000));
    t.is(error.reason, "start_failed");
    t.regex(error.message, /port \d+ closed the connection/);
    for (const app of [well, ill]) await fixture.runtime.remove(app);
  },
);

dockerTest(`the engine runs a health check command and reports its failure${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const health = "health: { exec: [/bin/test, -e, /tmp/ok], interval: 1s, start_period: 1ms, retries: 2 }";
  const well = await startApp(
    fixture.runtime,
    await fixture.app("well", shell(`touch /tmp/ok; ${forever}`, health)),
  );
  await fixture.runtime.waitHealthy("well", 20_000);
  t.is(fixture.runtime.status("well")?.health, "healthy");
  const ill = await startApp(fixture.runtime, await fixture.app("ill", shell(forever, health)));
  const error = await failureOf(fixture.runtime.waitHealthy("ill", 20_000));
  t.is(error.reason, "start_failed");
  t.is(fixture.runtime.status("ill")?.health, "unhealthy");
  for (const app of [well, ill]) await fixture.runtime.remove(app);
});

dockerTest(`logs are read and followed, with time and stream${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { runtime } = fixture;
  const script = `echo out; echo err >&2; i=0; while [ $i -lt 200 ]; do echo "n $i"; i=$((i+1)); sleep 0.1; done`;
  const app = await startApp(fixture.runtime, await fixture.app("logs", shell(script)));
  const { lines } = await runtime.logs(app, { tail: 100 });
  t.deepEqual(lines.find(({ text }) => text === "err")?.stream, "stderr");
  t.true(Math.abs(Date.now() - lines[0]!.timeMs) < 60_000);
  t.is((await runtime.logs(app, { tail: 1 })).lines.length, 1);
  const stop = new AbortController();
  const followed: string[] = [];
  for await (const chunk of runtime.followLogs(app, { tail: 1, signal: stop.signal })) {
    followed.push(...chunk.lines.map(({ text }) => text));
    if (followed.length >= 6) stop.abort();
  }
  const numbers = followed.map((text) => Number(text.slice(2)));
  t.deepEqual(
    numbers,
    numbers.map((_, index) => numbers[0]! + index),
  );
  await runtime.remove(app);
});

dockerTest(`a log is followed from a given time, however many lines came since${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { runtime } = fixture;
  const count = 12_000;
  const script = `i=0; while [ $i -lt ${count} ]; do i=$((i+1)); echo "n $i"; done; exec sleep 3600`;
  const app = await startApp(runtime, await fixture.app("many", shell(script)));
  const stop = new AbortController();
  const after = { timeMs: Date.now() - 600_000, count: 0 };
  const followed: string[] = [];
  for await (const { lines } of runtime.followLogs(app, { tail: 10, after, signal: stop.signal })) {
    followed.push(...lines.map(({ text }) => text));
    if (followed.at(-1) === `n ${count}`) stop.abort();
  }
  t.deepEqual([followed[0], followed.length], ["n 1", count]);
  await runtime.remove(app);
});

dockerTest(`an image is built from the checkout as its owner reads it${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { runtime, engine } = fixture;
  const options = {
    files: {
      "image/Dockerfile":
        'FROM svc/shell:1\nARG NAME\nCOPY . /app\nRUN ls -a /app > /app/list; echo "I am $NAME" > /app/name\nCMD ["/bin/sh", "-c", "cat /app/list /app/name; trap exit TERM; sleep 3600 & wait"]\n',
      "image/.dockerignore": "secret\n*.tmp\n!keep.tmp\n",
      "image/secret/key": "hidden",
      "image/a.tmp": "",
      "image/keep.tmp": "",
    },
  };
  const manifest = "docker: { build: { context: image, args: { NAME: built } } }";
  const app = await fixture.app("built", manifest, options);
  const progress: string[] = [];
  await runtime.prepare(app, { onProgress: ({ message }) => progress.push(message) });
  t.true(progress.some((line) => line.startsWith("Step 1/")));
  await runtime.start(app);
  await eventually(async () => {
    const { lines } = await runtime.logs(app, { tail: 100 });
    assert.equal(lines.at(-1)?.text, "I am built");
    assert.deepEqual(
      lines.map(({ text }) => text),
      [".", "..", ".dockerignore", "Dockerfile", "keep.tmp", "list", "I am built"],
    );
  });
  t.like(await runtime.images.image(app, { checkRemote: true }), { freshness: "unknown" });
  t.is((await failureOf(runtime.images.pull(app, {}))).reason, "pinned_image");
  t.true((await runtime.images.disk(app)).imageBytes! > 100_000);

  const next = await fixture.app("built", manifest, {
    version: "2.0.0",
    files: {
      "image/Dockerfile": 'FROM svc/shell:1\nCMD ["/bin/sh", "-c", "trap exit TERM; sleep 3600 & wait"]\n',
    },
  });
  await runtime.prepare(next, {});
  const images = async (): Promise<number> =>
    ((await engine.request("GET", "/images/json")).expect(200) as { RepoTags: string[] }[]).filter(
      ({ RepoTags }) => RepoTags.some((tag) => tag.startsWith("svc.local/built:")),
    ).length;
  t.is(await images(), 2);
  const bytesOf = async (): Promise<number> => (await runtime.images.disk(next)).imageBytes ?? 0;
  const withOld = await bytesOf();
  await runtime.stop(app);
  await runtime.start(next);
  t.is(await bytesOf(), withOld, "an old release's image counts as long as its container exists");
  await runtime.settle(next);
  t.is(await images(), 1);
  t.true((await bytesOf()) < withOld);
  const digits = (await engine.images.build("svc/others:1")).replace("sha256:", "").slice(0, 12);
  for (const text of [`FROM ${digits}`, `FROM svc/shell:1\nCOPY --from=${digits} / /`]) {
    const nosy = await fixture.app("built", manifest, {
      version: "3.0.0",
      files: { "image/Dockerfile": text },
    });
    t.is((await failureOf(runtime.prepare(nosy, {}))).reason, "denied", text);
  }
  t.true((await runtime.remove(next)) > 0);
  t.is(await images(), 0);
});

dockerTest(`a failed build reports its last output, and links are not followed${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const app = await fixture.app("broken", "docker: { build: {} }", {
    files: { Dockerfile: "FROM svc/shell:1\nRUN echo here it comes; exit 4\n" },
  });
  const error = await failureOf(fixture.runtime.prepare(app, {}));
  t.is(error.reason, "build_failed");
  t.like(error.payload, { exitCode: 4 });
  t.true((error.payload as { lastLines: string[] }).lastLines.includes("here it comes"));
  const owner = await fixture.userHelpers.as(nobody);
  await owner.runCommand(["ln", "-s", "/etc", join(app.directory, "repo/outside")]);
  const outside = await fixture.app("broken", "docker: { build: { context: outside, dockerfile: passwd } }");
  t.regex((await failureOf(fixture.runtime.prepare(outside, {}))).message, /link|directory/);
});

dockerTest(`resource usage is measured for running apps only${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const busy = await startApp(
    fixture.runtime,
    await fixture.app("busy", shell("while :; do :; done", "limits: { cpus: 0.5 }")),
  );
  const idle = await fixture.app("idle", shell(forever));
  const usage = await fixture.runtime.stats([busy, idle]);
  t.deepEqual([...usage.keys()], ["busy"]);
  const { memoryBytes = 0, processes = 0, networkReceivedBytes } = usage.get("busy")!;
  // The CPU share depends on everything else that runs on the host.
  await eventually(async () => {
    const { cpuPercent = 0 } = (await fixture.runtime.stats([busy])).get("busy")!;
    assert.ok(cpuPercent > 1 && cpuPercent < 120, String(cpuPercent));
  });
  t.true(memoryBytes > 10_000 && processes >= 1 && networkReceivedBytes !== undefined);
  await fixture.runtime.remove(busy);
});

dockerTest(`a restarted daemon finds the running and the exited apps${needsDocker}`, async (t) => {
  const engine = fixtureNow().engine;
  const first = await DockerFixture.create(engine);
  const runs = await startApp(first.runtime, await first.app("runs", shell(forever)));
  const ends = await startApp(
    first.runtime,
    await first.app("ends", shell("sleep 1; echo last; exit 5", "restart: { policy: never }")),
  );
  await first[Symbol.asyncDispose]();
  await eventually(async () => {
    const all = (await engine.request("GET", "/containers/json?all=1")).expect(200) as {
      State: string;
      Labels: Record<string, string>;
    }[];
    assert.equal(all.find(({ Labels }) => Labels["svc.app"] === "ends")?.State, "exited");
  });
  await using second = await DockerFixture.create(engine, { store: first.store });
  t.is(await second.runtime.reattach(runs), "running");
  t.is(await second.runtime.reattach(ends), "lost");
  t.is(second.runtime.status("runs")?.state, "RUNNING");
  for (const app of [runs, ends]) await second.runtime.remove(app);
});

dockerTest(
  `a link that replaces a mounted directory stops the container that follows it${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { runtime, engine } = fixture;
    const app = await startApp(
      fixture.runtime,
      await fixture.app("swap", `${shell(forever)}\nvolumes: [{ name: media, path: /srv/media }]`),
    );
    const owner = await fixture.userHelpers.as(nobody);
    const mounted = join(app.directory, "volumes/srv/media");
    const [container] = (
      (await engine.request("GET", "/containers/json?all=1")).expect(200) as {
        Id: string;
        Labels: Record<string, string>;
      }[]
    ).filter(({ Labels }) => Labels["svc.app"] === "swap");
    (await engine.request("POST", `/containers/${container!.Id}/restart?t=0`)).expect(204);
    await eventually(() => assert.equal(runtime.status("swap")?.state, "RUNNING"));
    const swap = owner.rename(app.directory, "volumes/srv/media", "volumes/srv/kept");
    t.is((await failureOf(swap)).code, "permission_denied", "its owner cannot");
    await rename(mounted, join(app.directory, "volumes/srv/kept"));
    await symlink("/root", mounted);
    (await engine.request("POST", `/containers/${container!.Id}/restart?t=0`)).expect(204);
    await eventually(() => assert.equal(runtime.status("swap")?.state, "CRASHED"));
    t.regex(runtime.status("swap")!.reason, /its mount at \/srv\/media is not the configured directory/);
    await eventually(async () => {
      const { State } = (await engine.request("GET", `/containers/${container!.Id}/json`)).expect(200) as {
        State: { Running: boolean };
      };
      assert.equal(State.Running, false);
    });
    // The container is not started again.
    t.is((await failureOf(runtime.start(app))).reason, "denied");
    await unlink(mounted);
    await rename(join(app.directory, "volumes/srv/kept"), mounted);
    await runtime.start(app);
    t.is(runtime.status("swap")?.state, "RUNNING");
    await runtime.remove(app);
  },
);

dockerTest(
  `updates and repulls compare with a registry, and pinned images are skipped${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { runtime, engine } = fixture;
    const { host } = await engine.registry();
    const publish = async (tag: string, cmd: string): Promise<string> => {
      await engine.images.build(`${host}/svc/app:${tag}`, { cmd: ["/bin/sh", "-c", cmd], labels: { cmd } });
      const digest = await engine.images.push(`${host}/svc/app:${tag}`);
      await engine.images.remove(`${host}/svc/app:${tag}`);
      return digest;
    };
    const first = await publish("stable", "trap exit TERM; sleep 3600 & wait");
    const app = await fixture.app("fresh", `docker: { image: "${host}/svc/app:stable" }`);
    const progress: string[] = [];
    await runtime.prepare(app, { onProgress: ({ message }) => progress.push(message) });
    t.deepEqual(progress[0], `Pulling ${host}/svc/app:stable`);
    await runtime.start(app);
    t.like(await runtime.images.image(app, { checkRemote: true }), {
      reference: `${host}/svc/app:stable`,
      version: "stable",
      localDigest: first,
      remoteDigest: first,
      freshness: "current",
    });
    t.is((await runtime.images.image(app, { checkRemote: false })).freshness, undefined);
    t.deepEqual(await runtime.images.pull(app, {}), { changed: false, digest: first, replaced: [] });

    // Published from elsewhere: this host keeps its image.
    const local = (
      (await engine.request("GET", `/images/${host}/svc/app:stable/json`)).expect(200) as { Id: string }
    ).Id;
    await engine.images.tag(local, "svc/kept:1");
    await engine.images.build(`${host}/svc/app:stable`, { labels: { second: "" } });
    const second = await engine.images.push(`${host}/svc/app:stable`);
    await engine.images.remove(`${host}/svc/app:stable`);
    await engine.images.tag("svc/kept:1", `${host}/svc/app:stable`);
    t.like(await runtime.images.image(app, { checkRemote: true }), {
      localDigest: first,
      remoteDigest: second,
      freshness: "outdated",
    });
    t.like(await runtime.images.pull(app, {}), { changed: true, digest: second, replaced: { length: 1 } });
    t.is(runtime.status("fresh")?.state, "RUNNING");
    await runtime.stop(app);
    await runtime.start(app);
    t.like(await runtime.images.image(app, { checkRemote: true }), {
      localDigest: second,
      freshness: "current",
    });
    await runtime.settle(app);
    const all = (await engine.request("GET", "/containers/json?all=1")).expect(200) as {
      Labels: Record<string, string>;
    }[];
    t.is(all.filter(({ Labels }) => Labels["svc.app"] === "fresh").length, 1);

    for (const reference of [`${host}/svc/app:1.2.3`, `${host}/svc/app@${first}`]) {
      const pinned = await fixture.app("fresh", `docker: { image: "${reference}" }`);
      t.is((await failureOf(runtime.images.pull(pinned, {}))).reason, "pinned_image");
    }
    const builtHere = await fixture.app("fresh", 'docker: { image: "svc/shell:latest" }');
    await engine.images.tag("svc/shell:1", "svc/shell:latest");
    t.is((await failureOf(runtime.images.pull(builtHere, {}))).reason, "pinned_image");
    t.like(await runtime.images.image(builtHere, { checkRemote: true }), { freshness: "unknown" });
    const missing = await fixture.app("missing", `docker: { image: "${host}/svc/none:stable" }`);
    t.is((await failureOf(runtime.prepare(missing, {}))).code, "not_found");
    await runtime.remove(app);
  },
);
