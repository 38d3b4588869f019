/**
 * An engine that was killed in the middle of a start finds the remains of the container's mounts, which permanently
 * block the container: another one replaces it. The test creates the remains; the engine's error is real.
 */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { SvcError } from "../../../src/errors.ts";
import type { AppRuntime } from "../../../src/runtimes/contract.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { releaseOf, blockedContainer } from "../../../src/runtimes/containers/blocked-containers.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import type { TestEngine } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { forever, sharedFixture, startApp } from "../../runtimes/support/container-tests.ts";

const fixtureNow = sharedFixture();
/** Compose is slow on a busy host. */
const deadlineMs = 60_000;

interface Listed {
  Id: string;
  Names: string[];
  State: string;
  Labels: Record<string, string>;
}

async function containersOf(engine: TestEngine, app: string): Promise<Listed[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${app}`] }));
  const answer = await engine.request("GET", `/containers/json?all=1&filters=${filters}`);
  return (answer.expect(200) as Listed[]).toSorted((a, b) => (a.Names[0]! < b.Names[0]! ? -1 : 1));
}

interface Inspected {
  State: { Status: string; Pid: number };
}

/** As an interrupted start leaves it. */
async function leaveTask(engine: TestEngine, id: string): Promise<void> {
  const tasks = "exec/containerd/daemon/io.containerd.runtime.v2.task/moby";
  await mkdir(join(engine.dir, tasks, id), { recursive: true });
  const answer = await engine.request("POST", `/containers/${id}/start`);
  assert.equal(answer.status, 500, answer.text);
  const said = new SvcError("not_possible", (JSON.parse(answer.text) as { message: string }).message);
  assert.equal(blockedContainer(said), id, answer.text);
}

/** As an engine leaves them that was killed before it recorded that they run. */
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
  const { State } = (await engine.request("GET", `/containers/${id}/json`)).expect(200) as Inspected;
  return State.Pid;
}

async function inside(engine: TestEngine, id: string, ...command: string[]): Promise<void> {
  const body = { Cmd: command, AttachStdout: true };
  const made = (await engine.request("POST", `/containers/${id}/exec`, body)).expect(201) as { Id: string };
  (await engine.request("POST", `/exec/${made.Id}/start`, {})).expect(200);
  const end = (await engine.request("GET", `/exec/${made.Id}/json`)).expect(200) as { ExitCode: number };
  assert.equal(end.ExitCode, 0, command.join(" "));
}

/** It has run, written into an anonymous volume, and been stopped; and the engine was killed in the next start. */
async function startStuck(
  runtime: AppRuntime,
  app: RunnableApp,
  chosen: (container: Listed) => boolean = () => true,
): Promise<string> {
  const { engine } = fixtureNow();
  await startApp(runtime, app);
  const { Id: id } = (await containersOf(engine, app.id)).find(chosen)!;
  await inside(engine, id, "touch", "/kept/file");
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
    const [now, ...others] = await containersOf(engine, "stuck");
    t.deepEqual(others, []);
    t.not(now!.Id, before);
    t.is(now!.State, "running");
    await inside(engine, now!.Id, "test", "-e", "/kept/file");
    // It is equivalent to the previous one.
    await runtime.stop(app);
    await runtime.start(app);
    t.is((await containersOf(engine, "stuck"))[0]!.Id, now!.Id);
    await runtime.remove(app);
    t.deepEqual(await containersOf(engine, "stuck"), []);
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
    const [, b] = await containersOf(engine, "stuck-two");
    await compose.start(app);
    t.is(compose.status("stuck-two")?.state, "RUNNING");
    const [a, same, ...others] = await containersOf(engine, "stuck-two");
    t.deepEqual(others, []);
    t.not(a!.Id, before);
    t.is(same!.Id, b!.Id);
    t.deepEqual([a!.State, same!.State], ["running", "running"]);
    await inside(engine, a!.Id, "test", "-e", "/kept/file");
    await compose.remove(app);
  },
);

/** Long enough to kill the engine during the preceding restart. */
const restart = "restart: { policy: always, delay: 5s }";

/** Its process exits by itself, and the engine cannot start it again. */
async function endStuck(engine: TestEngine, id: string): Promise<void> {
  const stateOf = async () =>
    ((await engine.request("GET", `/containers/${id}/json`)).expect(200) as Inspected).State;
  process.kill((await stateOf()).Pid, "SIGKILL");
  await eventually(async () => assert.equal((await stateOf()).Status, "exited"), deadlineMs);
  await leaveTask(engine, id);
}

dockerTest(`svc's own restart replaces such a container, too${needsDocker}`, async (t) => {
  const { engine, runtime, app: make } = withApps();
  const command = `entrypoint: [/bin/sh, -c], command: [${JSON.stringify(forever)}]`;
  const app = await startApp(
    runtime,
    await make("own", `docker: { image: "svc/shell:1", ${command} }\n${restart}`),
  );
  const [before] = await containersOf(engine, "own");
  await endStuck(engine, before!.Id);
  await eventually(async () => {
    const [now, ...others] = await containersOf(engine, "own");
    assert.deepEqual([now?.State, others], ["running", []]);
    assert.notEqual(now?.Id, before!.Id);
    assert.partialDeepStrictEqual(runtime.status("own"), { state: "RUNNING", restarts: 1 });
  }, deadlineMs);
  // An earlier start created it: a stop and a start use it.
  const [now] = await containersOf(engine, "own");
  await runtime.stop(app);
  await runtime.start(app);
  t.is((await containersOf(engine, "own"))[0]!.Id, now!.Id);
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
    const [a, b] = await containersOf(engine, "own-two");
    await inside(engine, a!.Id, "touch", "/kept/file");
    await endStuck(engine, a!.Id);
    await eventually(async () => {
      const [other, same, ...others] = await containersOf(engine, "own-two");
      assert.deepEqual([other?.State, same?.State, others], ["running", "running", []]);
      assert.notEqual(other?.Id, a!.Id);
      assert.equal(same?.Id, b!.Id);
      assert.partialDeepStrictEqual(compose.status("own-two"), { state: "RUNNING", reason: "" });
    }, deadlineMs);
    const [other] = await containersOf(engine, "own-two");
    await inside(engine, other!.Id, "test", "-e", "/kept/file");
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
      const [before] = await containersOf(engine, id);
      const pid = await pidOf(engine, before!.Id);
      const others = await engine.run(`not-${id}`, { Image: "svc/keeper:1" });
      const othersPid = await pidOf(engine, others);
      await forget(engine, before!.Id, others);
      await eventually(() => assert.equal(apps.status(id)?.isLost, true), deadlineMs);
      t.false(
        existsSync(`/proc/${pid}`),
        "it finishes before any listener is notified and may start another one",
      );
      t.true(existsSync(`/proc/${othersPid}`), "a container that is not svc's keeps running");
      process.kill(othersPid, "SIGKILL");
      await eventually(() => apps.start(app), deadlineMs);
      t.is(apps.status(id)?.state, "RUNNING");
      const [now, ...more] = await containersOf(engine, id);
      t.deepEqual([now!.Id, now!.State, more], [before!.Id, "running", []]);
      await apps.remove(app);
    },
  );
}
