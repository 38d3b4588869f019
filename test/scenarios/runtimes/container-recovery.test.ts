/** Containers after their exit or their engine's: svc restarts them, and replaces those that are blocked. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { rename, symlink, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { SvcError } from "../../../src/errors.ts";
import { releaseOf, blockedContainer } from "../../../src/runtimes/containers/blocked-containers.ts";
import type { AppRuntime } from "../../../src/runtimes/contract.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { failureOf, forever, sharedFixture, startApp } from "../../runtimes/support/container-tests.ts";
import { DockerFixture } from "../../runtimes/support/docker-fixture.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import type { TestEngine } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";

// An engine that is unavailable, hangs or restarts.

const engineNow = sharedEngine();
/** The daemon's handling of apps whose desired state is running and that did not exit by themselves. */
function startLost(runtime: DockerFixture["runtime"], apps: readonly RunnableApp[]): Disposable {
  return runtime.onChange((id) => {
    const app = apps.find((one) => one.id === id);
    if (app !== undefined && runtime.status(id)?.isLost === true) void runtime.start(app);
  });
}

const shellForever = `docker: { image: "svc/shell:1" }\n`;

dockerTest(
  `running apps run again after an engine restart, and stopped ones do not${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    await engine.images.build("svc/shell:1");
    await using fixture = await DockerFixture.create(engine);
    const { runtime } = fixture;
    const policies = ["always", "on-failure", "never"];
    const apps = [];
    for (const policy of policies) {
      const app = await fixture.app(policy, `${shellForever}restart: { policy: ${policy} }`);
      await runtime.prepare(app, {});
      await runtime.start(app);
      apps.push(app);
    }
    const stopped = await fixture.app("stopped", shellForever);
    await runtime.prepare(stopped, {});
    await runtime.start(stopped);
    await runtime.stop(stopped);
    await engine.stop();
    await eventually(() => {
      for (const id of policies) assert.equal(runtime.status(id)?.state, "UNKNOWN");
    }, 5_000);
    t.regex(runtime.status("always")!.reason, /container engine/);
    t.is(runtime.status("stopped")?.state, "STOPPED");
    const error = await runtime.stop(apps[0]!).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    t.true(error instanceof SvcError && error.code === "unavailable");
    t.is((await runtime.stats(apps)).size, 0);
    using _starting = startLost(runtime, apps);
    await engine.start();
    await eventually(() => {
      for (const id of policies.slice(1)) assert.equal(runtime.status(id)?.state, "RUNNING", id);
    }, 20_000);
    // The app whose stop was requested while the engine was unavailable stays stopped, too.
    for (const id of ["stopped", "always"]) t.is(runtime.status(id)?.state, "STOPPED");
    for (const app of [...apps, stopped]) await runtime.remove(app);
  },
);

dockerTest(
  `an engine that hangs is unavailable, and its apps are back within 5 s of its return${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    await engine.images.build("svc/shell:1");
    await using fixture = await DockerFixture.create(engine);
    const { runtime } = fixture;
    const app = await fixture.app("hung", shellForever);
    await runtime.prepare(app, {});
    await runtime.start(app);
    const startedAtMs = runtime.status("hung")!.startedAtMs;
    await engine.pause();
    try {
      await eventually(() => assert.equal(runtime.status("hung")?.state, "UNKNOWN"), 15_000);
    } finally {
      engine.resume();
    }
    await eventually(() => assert.equal(runtime.status("hung")?.state, "RUNNING"), 5_000);
    t.is(runtime.status("hung")?.startedAtMs, startedAtMs);
    await runtime.remove(app);
  },
);

dockerTest(`a daemon that starts before its engine finds its apps later${needsDocker}`, async (t) => {
  const engine = engineNow();
  await engine.images.build("svc/shell:1");
  const first = await DockerFixture.create(engine);
  const app = await first.app("early", `${shellForever}restart: { policy: never }`);
  await first.runtime.prepare(app, {});
  await first.runtime.start(app);
  await first[Symbol.asyncDispose]();
  await engine.stop();
  await using second = await DockerFixture.create(engine, { store: first.store });
  t.is(await second.runtime.reattach(app), "running");
  t.is(second.runtime.status("early")?.state, "UNKNOWN");
  using _starting = startLost(second.runtime, [app]);
  await engine.start();
  await eventually(() => assert.equal(second.runtime.status("early")?.state, "RUNNING"), 5_000);
  await second.runtime.remove(app);
});

dockerTest(
  `an app whose container was removed externally shows it, and the next daemon starts it${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    await engine.images.build("svc/shell:1");
    await using fixture = await DockerFixture.create(engine);
    const { runtime } = fixture;
    const app = await fixture.app("gone", shellForever);
    await runtime.prepare(app, {});
    await runtime.start(app);
    const label = encodeURIComponent(JSON.stringify({ label: ["svc.app=gone"] }));
    const answer = await engine.request("GET", `/containers/json?filters=${label}`);
    const [container] = answer.expect(200) as { Id: string }[];
    (await engine.request("DELETE", `/containers/${container!.Id}?force=1`)).expect(204);
    const removed = { state: "CRASHED", reason: "the app's containers were removed outside of svc" } as const;
    await eventually(() => assert.partialDeepStrictEqual(runtime.status("gone"), removed), 5_000);

    await using next = await DockerFixture.create(engine, { store: fixture.store });
    t.is(await next.runtime.reattach(app), "lost");
    await next.runtime.start(app);
    t.like(next.runtime.status("gone"), { state: "RUNNING", reason: "" });
    await next.runtime.remove(app);
  },
);

dockerTest(
  `an app is visible again after its engine hung for less than the timeout${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    await engine.images.build("svc/shell:1");
    await using fixture = await DockerFixture.create(engine);
    const { runtime } = fixture;
    const app = await fixture.app("brief", shellForever);
    await runtime.prepare(app, {});
    await runtime.start(app);
    await engine.pause();
    try {
      // As in a restart that the hang makes fail.
      t.is((await failureOf(runtime.stop(app))).code, "unavailable");
      await runtime.reattach(app);
      t.is(runtime.status("brief")?.state, "UNKNOWN");
    } finally {
      engine.resume();
    }
    await eventually(() => assert.equal(runtime.status("brief")?.state, "RUNNING"), 20_000);
    await runtime.remove(app);
  },
);

// The engine never starts an app's container: svc restarts exited ones, after its check.

const fixtureNow = sharedFixture();
const deadlineMs = 20_000;

interface Inspected {
  Id: string;
  Config: { Labels: Record<string, string> };
  HostConfig: { RestartPolicy: { Name: string } };
  State: { Status: string; Pid: number; StartedAt: string };
}

/** The containers of an app, by service. */
async function containersOf(engine: TestEngine, app: string): Promise<Record<string, Inspected>> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${app}`] }));
  const all = (await engine.request("GET", `/containers/json?all=1&filters=${filters}`)).expect(200);
  const inspected = (all as { Id: string }[]).map(
    async ({ Id }) => (await engine.request("GET", `/containers/${Id}/json`)).expect(200) as Inspected,
  );
  return Object.fromEntries(
    (await Promise.all(inspected)).map((one) => [
      one.Config.Labels["com.docker.compose.service"] ?? "it",
      one,
    ]),
  );
}

const shell = (script: string, more = ""): string =>
  `docker: { image: "svc/shell:1", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(script)}] }\n${more}`;

for (const policy of ["always", "on-failure", "never"]) {
  dockerTest(`a container with policy ${policy} is not restarted by the engine${needsDocker}`, async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    const app = await startApp(
      runtime,
      await fixture.app(policy, shell(forever, `restart: { policy: ${policy} }`)),
    );
    const { it } = await containersOf(engine, policy);
    t.is(it?.HostConfig.RestartPolicy.Name, "no");
    // It exits by itself, not because of the engine.
    process.kill(it!.State.Pid, "SIGKILL");
    if (policy === "never") {
      await eventually(() => assert.equal(runtime.status(policy)?.state, "CRASHED"), deadlineMs);
      t.regex(runtime.status(policy)!.reason, /exited with code 137; the restart policy is never/);
    } else {
      await eventually(() => {
        assert.partialDeepStrictEqual(runtime.status(policy), {
          state: "RUNNING",
          restarts: 1,
          exitCode: 137,
        });
      }, deadlineMs);
    }
    await runtime.remove(app);
  });
}

dockerTest(
  `a container that an operator stops is restarted, whatever its policy${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    const app = await startApp(
      runtime,
      await fixture.app("back", shell(forever, "restart: { policy: never }")),
    );
    const { it } = await containersOf(engine, "back");
    (await engine.request("POST", `/containers/${it!.Id}/stop`)).expect(204);
    await eventually(async () => {
      const { it: now } = await containersOf(engine, "back");
      assert.ok(now!.State.Status === "running" && now!.State.StartedAt !== it!.State.StartedAt);
      assert.equal(runtime.status("back")?.state, "RUNNING");
    }, deadlineMs);
    await runtime.stop(app);
    t.is(runtime.status("back")?.state, "STOPPED");
    await runtime.remove(app);
  },
);

dockerTest(`a container that would fail the check is not restarted${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { engine, runtime } = fixture;
  const manifest = `${shell(forever)}\nvolumes: [{ name: media, path: /srv/media }]`;
  const app = await startApp(runtime, await fixture.app("swapped", manifest));
  await rename(join(app.directory, "volumes/srv/media"), join(app.directory, "volumes/srv/kept"));
  await symlink("/root", join(app.directory, "volumes/srv/media"));
  const { it } = await containersOf(engine, "swapped");
  process.kill(it!.State.Pid, "SIGKILL");
  await eventually(() => {
    assert.equal(runtime.status("swapped")?.state, "CRASHED");
    assert.match(runtime.status("swapped")!.reason, /exited with code 137; .*symlink/);
  }, deadlineMs);
  const { it: now } = await containersOf(engine, "swapped");
  t.is(now!.State.StartedAt, it!.State.StartedAt);
  await runtime.remove(app);
});

composeTest(
  `services restart as their file states, and only by svc; old containers lose their policy${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, compose } = fixture;
    const once = `command: ["/bin/sh", "-c", "sleep 2; exit 0"]`;
    const app = await startApp(
      compose,
      await fixture.app("words", "compose: { file: compose.yaml }\nrestart: { policy: never }", {
        files: {
          "compose.yaml": `services:
  always: { image: "svc/shell:1", restart: always, ${once} }
  failure: { image: "svc/shell:1", restart: "on-failure:3" }
  deployed: { image: "svc/shell:1", restart: "no", deploy: { restart_policy: { condition: any } } }
  plain: { image: "svc/shell:1" }
  done: { image: "svc/shell:1", restart: on-failure, ${once} }
`,
        },
      }),
    );
    const before = await containersOf(engine, "words");
    for (const [name, { HostConfig }] of Object.entries(before)) {
      t.is(HostConfig.RestartPolicy.Name, "no", name);
    }
    for (const name of ["failure", "deployed", "plain"]) process.kill(before[name]!.State.Pid, "SIGKILL");
    await eventually(async () => {
      const now = await containersOf(engine, "words");
      const restarted = Object.keys(now).filter(
        (name) => now[name]!.State.StartedAt !== before[name]!.State.StartedAt,
      );
      assert.deepEqual(restarted.sort(), ["always", "deployed", "failure"]);
      assert.equal(now["plain"]?.State.Status, "exited");
      assert.equal(now["done"]?.State.Status, "exited");
    }, deadlineMs);
    t.regex(compose.status("words")!.reason, /service "plain" exited with code 137/);
    // As an earlier version of svc created them, or somebody changed them.
    const path = `/containers/${before["failure"]!.Id}/update`;
    (await engine.request("POST", path, { RestartPolicy: { Name: "always" } })).expect(200);
    await eventually(async () => {
      const { failure } = await containersOf(engine, "words");
      assert.equal(failure?.HostConfig.RestartPolicy.Name, "no");
    }, deadlineMs);
    await compose.remove(app);
  },
);

composeTest(
  `a start that follows an interrupted one does not fail because of services that it had to kill${needsCompose}`,
  async (t) => {
    const { engine } = fixtureNow();
    const stubborn = `{ image: "svc/shell:1", entrypoint: [/bin/sleep, infinity] }`;
    const first = await DockerFixture.create(engine);
    const app = await first.app("stubborn", "compose: { file: compose.yaml }\nstop: { grace: 1s }", {
      files: { "compose.yaml": `services:\n  cache: ${stubborn}\n  web: ${stubborn}\n` },
    });
    await startApp(first.compose, app);
    await first[Symbol.asyncDispose]();
    const before = await containersOf(engine, "stubborn");
    (await engine.request("POST", `/containers/${before["web"]!.Id}/kill`)).expect(204);

    await using next = await DockerFixture.create(engine, { store: first.store });
    t.is(await next.compose.reattach(app, true), "lost");
    await next.compose.start(app);
    t.like(next.compose.status("stubborn"), { state: "RUNNING", reason: "", exitCode: undefined });
    const now = await containersOf(engine, "stubborn");
    for (const [service, { Id, State }] of Object.entries(now)) {
      t.is(Id, before[service]!.Id);
      t.is(State.Status, "running", service);
      t.not(State.StartedAt, before[service]!.State.StartedAt);
    }
    await next.compose.remove(app);
  },
);

// An engine that was killed in the middle of a start finds the remains of the container's mounts, which permanently
// block the container: another one replaces it. The test creates the remains; the engine's error is real.

/** Compose is slow on a busy host. */
const replacedWithinMs = 60_000;

interface Listed {
  Id: string;
  Names: string[];
  State: string;
  Labels: Record<string, string>;
}

async function listContainers(engine: TestEngine, app: string): Promise<Listed[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${app}`] }));
  const answer = await engine.request("GET", `/containers/json?all=1&filters=${filters}`);
  return (answer.expect(200) as Listed[]).toSorted((a, b) => (a.Names[0]! < b.Names[0]! ? -1 : 1));
}

interface InspectedState {
  State: { Status: string; Pid: number };
}

/** Leaves the task of an interrupted start. */
async function leaveTask(engine: TestEngine, id: string): Promise<void> {
  const tasks = "exec/containerd/daemon/io.containerd.runtime.v2.task/moby";
  await mkdir(join(engine.dir, tasks, id), { recursive: true });
  const answer = await engine.request("POST", `/containers/${id}/start`);
  assert.equal(answer.status, 500, answer.text);
  const said = new SvcError("not_possible", (JSON.parse(answer.text) as { message: string }).message);
  assert.equal(blockedContainer(said), id, answer.text);
}

/** Leaves containers as an engine does that was killed before it recorded that they run. */
async function forget(engine: TestEngine, ...ids: readonly string[]): Promise<void> {
  await engine.kill();
  for (const id of ids) {
    const file = join(engine.data, "containers", id, "config.v2.json");
    const config = JSON.parse(await readFile(file, "utf8")) as { State: object };
    await writeFile(file, JSON.stringify({ ...config, State: { ...config.State, Running: false, Pid: 0 } }));
  }
  await engine.start();
}

async function pidOf(engine: TestEngine, id: string): Promise<number> {
  const { State } = (await engine.request("GET", `/containers/${id}/json`)).expect(200) as InspectedState;
  return State.Pid;
}

async function runInside(engine: TestEngine, id: string, ...command: string[]): Promise<void> {
  const body = { Cmd: command, AttachStdout: true };
  const made = (await engine.request("POST", `/containers/${id}/exec`, body)).expect(201) as { Id: string };
  (await engine.request("POST", `/exec/${made.Id}/start`, {})).expect(200);
  const end = (await engine.request("GET", `/exec/${made.Id}/json`)).expect(200) as { ExitCode: number };
  assert.equal(end.ExitCode, 0, command.join(" "));
}

/** An app that has run, written into an anonymous volume, and been stopped; the engine was killed during the next start. */
async function startStuck(
  runtime: AppRuntime,
  app: RunnableApp,
  chosen: (container: Listed) => boolean = () => true,
): Promise<string> {
  const { engine } = fixtureNow();
  await startApp(runtime, app);
  const { Id: id } = (await listContainers(engine, app.id)).find(chosen)!;
  await runInside(engine, id, "touch", "/kept/file");
  await runtime.stop(app);
  await leaveTask(engine, id);
  return id;
}

dockerTest(
  `a container that a killed engine cannot start any more is replaced, with its volumes${needsDocker}`,
  async (t) => {
    const { engine, runtime, app: make } = withApps();
    await engine.images.build("svc/keeper:1", { volumes: ["/kept"] });
    const command = `entrypoint: [/bin/sh, -c], command: [${JSON.stringify(forever)}]`;
    const app = await make("stuck", `docker: { image: "svc/keeper:1", user: "0", ${command} }`, { uid: 0 });
    const before = await startStuck(runtime, app);
    await runtime.start(app);
    t.is(runtime.status("stuck")?.state, "RUNNING");
    const [now, ...others] = await listContainers(engine, "stuck");
    t.deepEqual(others, []);
    t.not(now!.Id, before);
    t.is(now!.State, "running");
    await runInside(engine, now!.Id, "test", "-e", "/kept/file");
    // The new container is equivalent to the previous one.
    await runtime.stop(app);
    await runtime.start(app);
    t.is((await listContainers(engine, "stuck"))[0]!.Id, now!.Id);
    await runtime.remove(app);
    t.deepEqual(await listContainers(engine, "stuck"), []);
  },
);

composeTest(
  `only those services of a project that the engine cannot start any more are recreated${needsCompose}`,
  async (t) => {
    const { engine, compose, app: make } = withApps();
    const service = `image: "svc/shell:1", user: "0", volumes: [/kept], entrypoint: [/bin/sh, -c], command: [${JSON.stringify(forever)}]`;
    const files = {
      "compose.yaml": `services:\n  a: { ${service} }\n  b: { ${service}, depends_on: [a] }\n`,
    };
    const app = await make("stuck-two", "compose: { file: compose.yaml }", { uid: 0, files });
    const before = await startStuck(
      compose,
      app,
      ({ Labels }) => Labels["com.docker.compose.service"] === "a",
    );
    const [, b] = await listContainers(engine, "stuck-two");
    await compose.start(app);
    t.is(compose.status("stuck-two")?.state, "RUNNING");
    const [a, same, ...others] = await listContainers(engine, "stuck-two");
    t.deepEqual(others, []);
    t.not(a!.Id, before);
    t.is(same!.Id, b!.Id);
    t.deepEqual([a!.State, same!.State], ["running", "running"]);
    await runInside(engine, a!.Id, "test", "-e", "/kept/file");
    await compose.remove(app);
  },
);

/** Long enough to kill the engine during the preceding restart. */
const restart = "restart: { policy: always, delay: 5s }";

/** Ends the container's process, which the engine cannot start again. */
async function endStuck(engine: TestEngine, id: string): Promise<void> {
  const stateOf = async () =>
    ((await engine.request("GET", `/containers/${id}/json`)).expect(200) as InspectedState).State;
  process.kill((await stateOf()).Pid, "SIGKILL");
  await eventually(async () => assert.equal((await stateOf()).Status, "exited"), replacedWithinMs);
  await leaveTask(engine, id);
}

dockerTest(`svc's own restart replaces such a container, too${needsDocker}`, async (t) => {
  const { engine, runtime, app: make } = withApps();
  const command = `entrypoint: [/bin/sh, -c], command: [${JSON.stringify(forever)}]`;
  const app = await startApp(
    runtime,
    await make("own", `docker: { image: "svc/shell:1", ${command} }\n${restart}`),
  );
  const [before] = await listContainers(engine, "own");
  await endStuck(engine, before!.Id);
  await eventually(async () => {
    const [now, ...others] = await listContainers(engine, "own");
    assert.deepEqual([now?.State, others], ["running", []]);
    assert.notEqual(now?.Id, before!.Id);
    assert.partialDeepStrictEqual(runtime.status("own"), { state: "RUNNING", restarts: 1 });
  }, replacedWithinMs);
  // An earlier start created it: a stop and a start use it.
  const [now] = await listContainers(engine, "own");
  await runtime.stop(app);
  await runtime.start(app);
  t.is((await listContainers(engine, "own"))[0]!.Id, now!.Id);
  await runtime.remove(app);
});

composeTest(
  `svc's own restart replaces such a container of a service while the others run${needsCompose}`,
  async (t) => {
    const { engine, compose, app: make } = withApps();
    const service = `image: "svc/shell:1", user: "0", volumes: [/kept], entrypoint: [/bin/sh, -c], command: [${JSON.stringify(forever)}]`;
    const files = {
      "compose.yaml": `services:\n  a: { ${service} }\n  b: { ${service}, depends_on: [a] }\n`,
    };
    const app = await startApp(
      compose,
      await make("own-two", `compose: { file: compose.yaml }\n${restart}`, { uid: 0, files }),
    );
    const [a, b] = await listContainers(engine, "own-two");
    await runInside(engine, a!.Id, "touch", "/kept/file");
    await endStuck(engine, a!.Id);
    await eventually(async () => {
      const [other, same, ...others] = await listContainers(engine, "own-two");
      assert.deepEqual([other?.State, same?.State, others], ["running", "running", []]);
      assert.notEqual(other?.Id, a!.Id);
      assert.equal(same?.Id, b!.Id);
      assert.partialDeepStrictEqual(compose.status("own-two"), { state: "RUNNING", reason: "" });
    }, replacedWithinMs);
    const [other] = await listContainers(engine, "own-two");
    await runInside(engine, other!.Id, "test", "-e", "/kept/file");
    t.pass();
    await compose.remove(app);
  },
);

function withApps() {
  const fixture = fixtureNow();
  const { engine, runtime, compose } = fixture;
  return { engine, runtime, compose, app: fixture.app.bind(fixture) };
}

const id = "93d24bf1b19513abc54c446a3cc87e926c2c3fe907d995db856024149a033ecf";

for (const [words, found] of [
  [`could not start: task ${id}: already exists`, id],
  [`failed to start shim: mkdir /run/io.containerd.runtime.v2.task/moby/${id}: file exists: unknown`, id],
  ["could not start: the name already exists", undefined],
  [`could not start: mkdir /srv/${id.slice(1)}: file exists`, undefined],
] as const) {
  test(`a container blocked by remains is found in the error: ${words}`, (t) => {
    t.is(blockedContainer(new SvcError("not_possible", words)), found);
  });
}

test("an error that is not svc's belongs to no container", (t) => {
  t.is(blockedContainer(new Error(`task ${id}: already exists`)), undefined);
});

test("a container that was moved to backup belongs to no release", (t) => {
  const labels = { "svc.release": "1" };
  t.is(releaseOf({ name: "svc-web-1", labels }), "1");
  t.is(releaseOf({ name: "svc-web-1-stuck-93d24bf1b195", labels }), undefined);
});

for (const [kind, needs, run] of [
  ["docker", needsDocker, dockerTest],
  ["compose", needsCompose, composeTest],
] as const) {
  run(
    `what runs on unknown to its engine ends as soon as that is back, and its container starts again: ${kind}${needs}`,
    async (t) => {
      const { engine, runtime, compose, app: make } = withApps();
      await engine.images.build("svc/keeper:1", { volumes: ["/kept"] });
      const command = `entrypoint: [/bin/sh, -c], command: [${JSON.stringify(forever)}]`;
      const service = `services: { web: { image: "svc/keeper:1", user: "0", ${command} } }`;
      const id = `forgotten-${kind}`;
      const [apps, app] =
        kind === "docker"
          ? [runtime, await make(id, `docker: { image: "svc/keeper:1", user: "0", ${command} }`, { uid: 0 })]
          : [
              compose,
              await make(id, "compose: { file: compose.yaml }", {
                uid: 0,
                files: { "compose.yaml": service },
              }),
            ];
      await startApp(apps, app);
      const [before] = await listContainers(engine, id);
      const pid = await pidOf(engine, before!.Id);
      const others = await engine.run(`not-${id}`, { Image: "svc/keeper:1" });
      const othersPid = await pidOf(engine, others);
      await forget(engine, before!.Id, others);
      await eventually(() => assert.equal(apps.status(id)?.isLost, true), replacedWithinMs);
      t.false(
        existsSync(`/proc/${pid}`),
        "it finishes before any listener is notified and may start another one",
      );
      t.true(existsSync(`/proc/${othersPid}`), "a container that is not svc's keeps running");
      process.kill(othersPid, "SIGKILL");
      await eventually(() => apps.start(app), replacedWithinMs);
      t.is(apps.status(id)?.state, "RUNNING");
      const [now, ...more] = await listContainers(engine, id);
      t.deepEqual([now!.Id, now!.State, more], [before!.Id, "running", []]);
      await apps.remove(app);
    },
  );
}
