/** The three clients of the engine: the allowed requests, their errors, and their timeouts. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import type Dockerode from "dockerode";
import { chooseApiVersion } from "../../src/engine/api-version.ts";
import { DiskMeter } from "../../src/engine/disk-usage.ts";
import { EngineRejection, engineError } from "../../src/engine/engine-errors.ts";
import { onShareOf } from "../../src/lib/share-owner.ts";
import { createDockerEngine } from "../../src/engine/engine.ts";
import type { EngineOperations } from "../../src/engine/watched-engine.ts";
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
  test(`with API ${oldest} to ${newest}, ${version ?? "none"} is used`, (t) => {
    if (version !== undefined) return void t.is(chooseApiVersion(newest, oldest), version);
    const error = t.throws(() => chooseApiVersion(newest, oldest), { instanceOf: SvcError });
    t.is(error.code, "failed_precondition");
  });
}

test("without an engine, the error says what to look for", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-no-engine-"));
  const file = join(dir, "file");
  await writeFile(file, "");
  for (const [socket, words] of [
    [join(dir, "missing.sock"), /the socket does not exist; install or start Docker$/],
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

test("a server that is not an engine is reported as such", async (t) => {
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

test("SvcErrors are passed on unchanged", (t) => {
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
  test(`a swarm manager's error without a quorum is temporary: ${said.slice(0, 60)}`, (t) => {
    t.is(engineError(new EngineRejection(500, said), "change it", "/socket").code, code);
  });
}

dockerTest(`the engine's rejections are errors with a code and its own message${needsDocker}`, async (t) => {
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

dockerTest(`concurrent measurements of disk usage share one request${needsDocker}`, async (t) => {
  const refused = await refusedMeasure(shared());
  t.log(refused === undefined ? "this engine measures for several at once" : `the engine says: ${refused}`);
  const words = refused ?? "a disk usage operation is already running";
  let refusals = 2;
  const df = (): Promise<unknown> =>
    refusals-- > 0 ? Promise.reject(new EngineRejection(500, words)) : Promise.resolve({ LayersSize: 7 });
  const engine: EngineOperations = {
    operate: (_what, work) => work({ df } as unknown as Dockerode, new AbortController().signal),
  };
  t.is((await new DiskMeter(engine).measure()).layersBytes, 7);
  t.is(refusals, -1);
});

/** The engine's error while another measurement is in progress. */
async function refusedMeasure(engine: TestEngine): Promise<string | undefined> {
  for (let round = 0; round < 5; round++) {
    const answers = await Promise.all(Array.from({ length: 8 }, () => engine.request("GET", "/system/df")));
    const refusal = answers.find(({ status }) => status !== 200);
    if (refusal !== undefined) return (JSON.parse(refusal.text) as { message: string }).message;
  }
  return undefined;
}

dockerTest(`a name is never interpreted as another request${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: shared().socket });
  for (const name of ["x?force=1", "../images", "x/../../info", "x%2F..%2Finfo", "a b", "x\r\nHost: y", ""]) {
    const error = await t.throwsAsync(
      engine.call("do it", (docker) => docker.getContainer(name).remove({ v: true })),
      { instanceOf: SvcError },
    );
    t.is(error.code, "invalid_argument", name);
  }
});

dockerTest(`environments are sent in bodies, never in URLs${needsDocker}`, async (t) => {
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
  `an engine that hangs is unavailable at the deadline, and available again when it continues${needsDocker}`,
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

dockerTest(`slow work and open streams do not delay short calls${needsDocker}`, async (t) => {
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
  using opened = await engine.open("stream its events", (docker) => docker.getEvents({}));
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

dockerTest(
  `work that waits for a start, a registry or a stop delays no other work${needsDocker}`,
  async (t) => {
    await using engine = createDockerEngine({ socket: shared().socket });
    await shared().images.build("svc/slow:1");
    const id = await shared().run("lasting", { Image: "svc/slow:1" });
    const ending = new AbortController();
    const wait = (waitsFor: "start" | "pull" | "stop"): Promise<unknown> =>
      engine
        .operate("wait for it", (docker) => docker.getContainer(id).wait(), {
          ...{ signal: ending.signal, waitsFor },
        })
        .catch((error: unknown) => (error as Error).message);
    const list = (uid: number, waitsFor?: "start"): Promise<unknown[]> =>
      onShareOf(uid, () =>
        engine.operate("list containers", (docker) => docker.listContainers(), {
          ...{ timeoutMs: 10_000, ...(waitsFor && { waitsFor }) },
        }),
      );
    const waiting = (["start", "pull", "stop"] as const).flatMap((kind) =>
      Array.from({ length: 100 }, () => onShareOf(4001, () => wait(kind))),
    );
    for (const uid of [4001, 4002, 0]) t.true((await list(uid)).length > 0);
    for (const uid of [4002, 0]) t.true((await list(uid, "start")).length > 0);
    ending.abort(new Error("enough"));
    t.deepEqual([...new Set(await Promise.all(waiting))], ["enough"]);
    (await shared().request("POST", `/containers/${id}/kill`)).expect(204);
  },
);

dockerTest(`one user's long work leaves slots for other users and for root${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: shared().socket });
  await shared().images.build("svc/slow:1");
  const id = await shared().run("long", { Image: "svc/slow:1" });
  const ending = new AbortController();
  const work = (uid: number): Promise<unknown> =>
    onShareOf(uid, () =>
      engine.operate("wait for it", (docker) => docker.getContainer(id).wait(), { signal: ending.signal }),
    ).catch(() => undefined);
  const floods = [4001, 4002, 4003].flatMap((uid) => Array.from({ length: 50 }, () => work(uid)));
  const list = (uid: number): Promise<unknown[]> =>
    onShareOf(uid, () =>
      engine.operate("list containers", (docker) => docker.listContainers(), { timeoutMs: 5_000 }),
    );
  t.true((await list(0)).length > 0, "root has a reserve");
  const other = list(4004);
  // All slots of users are in use: the next free one goes to the user who has none.
  ending.abort(new Error("enough"));
  t.true((await other).length > 0);
  await Promise.all(floods);
  (await shared().request("POST", `/containers/${id}/kill`)).expect(204);
});

dockerTest(`the daemon's exit ends every call${needsDocker}`, async (t) => {
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
