/** The three doors to the engine: what they let through, what errors are called, and how long anything may take. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import type Dockerode from "dockerode";
import { chooseApiVersion } from "../../src/docker/api-version.ts";
import { DiskMeter } from "../../src/docker/disk-usage.ts";
import { EngineRefusal, engineError } from "../../src/docker/engine-errors.ts";
import { createDockerEngine } from "../../src/docker/engine.ts";
import { Lane, Lanes } from "../../src/docker/lane.ts";
import type { EngineOperations } from "../../src/docker/watched-engine.ts";
import { SvcError } from "../../src/errors.ts";
import { startEngine, type TestEngine } from "../support/docker.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { eventually } from "../support/eventually.ts";

const shared = sharedEngine();

for (const [newest, oldest, version] of [
  ["1.41", "1.12", "1.41"],
  ["1.47", "1.24", "1.47"],
  ["1.51", "1.44", "1.51"],
  ["1.99", "1.44", "1.51"],
  ["1.40", "1.12", undefined],
  ["1.60", "1.52", undefined],
] as const) {
  test(`of API ${oldest} to ${newest}, ${version ?? "none"} is spoken`, (t) => {
    if (version !== undefined) return void t.is(chooseApiVersion(newest, oldest), version);
    const error = t.throws(() => chooseApiVersion(newest, oldest), { instanceOf: SvcError });
    t.is(error.code, "failed_precondition");
  });
}

test("where there is no engine, the error says what to look for", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-no-engine-"));
  const file = join(dir, "file");
  await writeFile(file, "");
  for (const [socket, words] of [
    [join(dir, "missing.sock"), /no such socket; is it installed and running\?$/],
    [file, /cannot be reached: /],
  ] as const) {
    await using engine = createDockerEngine({ socket });
    const error = await t.throwsAsync(
      engine.call("answer", (docker) => docker.ping()),
      { instanceOf: SvcError },
    );
    t.is(error.code, "unavailable");
    t.regex(error.message, words);
  }
  await rm(dir, { recursive: true });
});

test("what is no engine is told so", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-no-engine-"));
  const socket = join(dir, "web.sock");
  const server = createServer((_request, response) => void response.end("<html>")).listen(socket);
  await once(server, "listening");
  await using engine = createDockerEngine({ socket });
  const error = await t.throwsAsync(
    engine.call("answer", (docker) => docker.ping()),
    { instanceOf: SvcError },
  );
  t.is(error.code, "unavailable");
  server.close();
  await rm(dir, { recursive: true });
});

test("errors that are SvcErrors stay what they are", (t) => {
  const error = new SvcError("canceled", "enough");
  t.is(engineError(error, "do it", "/socket"), error);
});

for (const [said, code] of [
  ["rpc error: code = Unknown desc = The swarm does not have a leader. It's possible that …", "unavailable"],
  [
    "raft: failed to process the request: node lost leader status: rpc error: code = Unknown desc = raft: failed …",
    "unavailable",
  ],
  ["rpc error: code = DeadlineExceeded desc = context deadline exceeded", "unavailable"],
  ["rpc error: code = Unknown desc = update out of sequence", "failed_precondition"],
] as const) {
  test(`what a manager says that lost the others passes: ${said.slice(0, 60)}`, (t) => {
    t.is(engineError(new EngineRefusal(500, said), "change it", "/socket").code, code);
  });
}

test("a lane lets in so many, keeps so many waiting, and forgets those who go", async (t) => {
  const lane = new Lane({ running: 1, waiting: 2 });
  const never = new AbortController().signal;
  const first = await lane.enter(never);
  const impatient = new AbortController();
  const second = lane.enter(impatient.signal);
  const third = lane.enter(never);
  const fourth = await t.throwsAsync(lane.enter(never), { instanceOf: SvcError });
  t.is(fourth.code, "resource_exhausted");
  impatient.abort(new Error("gone"));
  await t.throwsAsync(second, { message: "gone" });
  first[Symbol.dispose]();
  (await third)[Symbol.dispose]();
  (await lane.enter(never))[Symbol.dispose]();
});

test("who has filled a lane of their own keeps nobody else from theirs, nor from that of all", async (t) => {
  const lanes = new Lanes({ running: 1, waiting: 0 }, { running: 2, waiting: 0 });
  const { signal } = new AbortController();
  const one = "the container of one";
  const held = [await lanes.enter(one, signal), await lanes.enter(one, signal)];
  await t.throwsAsync(lanes.enter(one, signal), { instanceOf: SvcError });
  await t.notThrowsAsync(lanes.enter("the container of another", signal));
  await t.notThrowsAsync(lanes.enter(undefined, signal));
  for (const turn of held) turn[Symbol.dispose]();
  await t.notThrowsAsync(lanes.enter(one, signal));
});

dockerTest(`the engine's refusals are errors with a code and its own words${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: shared().socket });
  await shared().images.build("svc/refused:1");
  await shared().run("taken", { Image: "svc/refused:1" });
  const refused = async (work: Parameters<typeof engine.call>[1]) =>
    t.throwsAsync(engine.call("do it", work), { instanceOf: SvcError });
  t.is((await refused((docker) => docker.getContainer("nobody").inspect())).code, "not_found");
  t.is(
    (await refused((docker) => docker.createContainer({ name: "taken", Image: "svc/refused:1" }))).code,
    "already_exists",
  );
  t.is((await refused((docker) => docker.createContainer({ Image: "svc/nothing:1" }))).code, "not_found");
  t.is(
    (await refused((docker) => docker.createContainer({ name: "/", Image: "svc/refused:1" }))).code,
    "invalid_argument",
  );
  const running = await refused((docker) => docker.getContainer("taken").remove());
  t.is(running.code, "failed_precondition");
  t.regex(running.message, /^the container engine could not do it: .*running container/);
});

dockerTest(`who measures disk usage waits for others who do${needsDocker}`, async (t) => {
  const refused = await refusedMeasure(shared());
  t.log(refused === undefined ? "this engine measures for several at once" : `the engine says: ${refused}`);
  const words = refused ?? "a disk usage operation is already running";
  let refusals = 2;
  const df = (): Promise<unknown> =>
    refusals-- > 0 ? Promise.reject(new EngineRefusal(500, words)) : Promise.resolve({ LayersSize: 7 });
  const engine: EngineOperations = {
    operate: (_what, work) => work({ df } as unknown as Dockerode, new AbortController().signal),
  };
  t.is((await new DiskMeter(engine).measure()).layersBytes, 7);
  t.is(refusals, -1);
});

/** How an engine says that it measures for somebody else, if it does so when many ask at once. */
async function refusedMeasure(engine: TestEngine): Promise<string | undefined> {
  for (let round = 0; round < 5; round++) {
    const answers = await Promise.all(Array.from({ length: 8 }, () => engine.request("GET", "/system/df")));
    const refusal = answers.find(({ status }) => status !== 200);
    if (refusal !== undefined) return (JSON.parse(refusal.text) as { message: string }).message;
  }
  return undefined;
}

dockerTest(`a name is never another request${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: shared().socket });
  for (const name of ["x?force=1", "../images", "x/../../info", "x%2F..%2Finfo", "a b", "x\r\nHost: y", ""]) {
    const error = await t.throwsAsync(
      engine.call("do it", (docker) => docker.getContainer(name).remove({ v: true })),
      { instanceOf: SvcError },
    );
    t.is(error.code, "invalid_argument", name);
  }
});

dockerTest(`environments ride in bodies, never in URLs${needsDocker}`, async (t) => {
  await using verbose = await startEngine({ arguments: ["--debug"] });
  await using engine = createDockerEngine({ socket: verbose.socket });
  await verbose.images.build("svc/secret:1");
  const { id } = await engine.call("make it", (docker) =>
    docker.createContainer({ name: "secret", Image: "svc/secret:1", Env: ["KEY=canary"] }),
  );
  t.deepEqual(
    (await engine.call("inspect it", (docker) => docker.getContainer(id).inspect())).Config.Env[0],
    "KEY=canary",
  );
  t.regex(verbose.log(), /Calling POST \/v1\.41\/containers\/create/);
  const calls = verbose
    .log()
    .split("\n")
    .filter((line) => line.includes("Calling "));
  t.false(calls.some((line) => line.includes("canary")));
});

dockerTest(
  `an engine that hangs is unavailable at the deadline, and answers again when it goes on${needsDocker}`,
  async (t) => {
    await using hanging = await startEngine();
    await using engine = createDockerEngine({ socket: hanging.socket });
    await engine.call("answer", (docker) => docker.ping());
    await hanging.pause();
    const startedAtMs = performance.now();
    const error = await t.throwsAsync(
      engine.call("answer", (docker) => docker.ping(), { timeoutMs: 300 }),
      {
        instanceOf: SvcError,
      },
    );
    t.is(error.code, "unavailable");
    t.is(error.message, "the container engine did not answer within 0.3 s; it may hang or be restarting");
    t.true(performance.now() - startedAtMs < 10_000);
    const caller = new AbortController();
    const canceled = engine.call("answer", (docker) => docker.ping(), { signal: caller.signal });
    caller.abort(new SvcError("canceled", "the caller left"));
    t.is((await t.throwsAsync(canceled, { instanceOf: SvcError })).code, "canceled");
    hanging.resume();
    await engine.call("answer", (docker) => docker.ping());
    await hanging.kill();
    t.is(
      (
        await t.throwsAsync(
          engine.call("answer", (docker) => docker.ping()),
          { instanceOf: SvcError },
        )
      ).code,
      "unavailable",
    );
    await hanging.start();
    await engine.call("answer", (docker) => docker.ping());
  },
);

dockerTest(`slow work and open streams keep short calls from nothing${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: shared().socket });
  await shared().images.build("svc/slow:1");
  const id = await shared().run("slow", { Image: "svc/slow:1" });
  const ending = new AbortController();
  const waiting = Array.from({ length: 40 }, () =>
    engine
      .operate("wait for it", (docker) => docker.getContainer(id).wait(), {
        timeoutMs: 60_000,
        signal: ending.signal,
      })
      .catch((error: unknown) => (error as Error).message),
  );
  using opened = await engine.open("tell its events", (docker) => docker.getEvents({}));
  await engine.call("answer", (docker) => docker.ping(), { timeoutMs: 5_000 });
  ending.abort(new Error("enough"));
  t.deepEqual([...new Set(await Promise.all(waiting))], ["enough"]);
  const chunks: string[] = [];
  const reading = (async () => {
    for await (const chunk of opened.chunks) chunks.push(chunk.toString());
  })();
  reading.catch(() => undefined);
  (await shared().request("POST", `/containers/${id}/kill`)).expect(204);
  await eventually(() => assert.match(chunks.join(""), /"die"/));
});

dockerTest(`who waits for a stop or a registry keeps nobody from other work${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: shared().socket });
  await shared().images.build("svc/slow:1");
  const id = await shared().run("lasting", { Image: "svc/slow:1" });
  const ending = new AbortController();
  const wait = (of: string): Promise<unknown> =>
    engine
      .operate("wait for it", (docker) => docker.getContainer(id).wait(), {
        ...{ timeoutMs: 60_000, signal: ending.signal, of },
      })
      .catch((error: unknown) => (error as Error).message);
  const waiting = Array.from({ length: 100 }, () => wait("the stop of one app"));
  const list = (of?: string): Promise<unknown[]> =>
    engine.operate("list containers", (docker) => docker.listContainers(), {
      timeoutMs: 10_000,
      of,
    });
  t.true((await list()).length > 0);
  t.true((await list("the stop of another")).length > 0);
  ending.abort(new Error("enough"));
  t.deepEqual([...new Set(await Promise.all(waiting))], ["enough"]);
  (await shared().request("POST", `/containers/${id}/kill`)).expect(204);
});

dockerTest(`the end of the daemon ends every call${needsDocker}`, async (t) => {
  const engine = createDockerEngine({ socket: shared().socket });
  await shared().images.build("svc/slow:1");
  const id = await shared().run("endless", { Image: "svc/slow:1" });
  const waiting = engine.operate("wait for it", (docker) => docker.getContainer(id).wait(), {
    timeoutMs: 60_000,
  });
  await engine.call("answer", (docker) => docker.ping());
  await engine[Symbol.asyncDispose]();
  t.is((await t.throwsAsync(waiting, { instanceOf: SvcError })).message, "the daemon is stopping");
});
