/** The event-fed picture of the engine, against a real one that changes, hangs, dies and comes back. */
import assert from "node:assert/strict";
import { EngineEvents } from "../../src/docker/events.ts";
import { EngineState, type EngineChange } from "../../src/docker/engine-state.ts";
import { createDockerEngine } from "../../src/docker/engine.ts";
import type { SvcError } from "../../src/errors.ts";
import { startEngine } from "../support/docker.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { eventually } from "../support/eventually.ts";

const shared = sharedEngine();

interface Watch extends AsyncDisposable {
  state: EngineState;
  changes: EngineChange[];
}

function watch(socket: string, answerMs = 5_000): Watch {
  const engine = createDockerEngine({ socket });
  const events = new EngineEvents({ engine, heartbeatMs: 200, answerMs });
  const state = new EngineState({ engine, events });
  const changes: EngineChange[] = [];
  state.onChange((change) => changes.push(change));
  return {
    state,
    changes,
    [Symbol.asyncDispose]: async () => {
      await state[Symbol.asyncDispose]();
      await events[Symbol.asyncDispose]();
      await engine[Symbol.asyncDispose]();
    },
  };
}

/** Tells within a second. */
const soonMs = 1_000;

dockerTest(`a container's whole life is seen within a second${needsDocker}`, async (t) => {
  const engine = shared();
  await engine.images.build("svc/life:1", { ports: ["80/tcp"], labels: { from: "image" } });
  await using watched = watch(engine.socket);
  const { state } = watched;
  t.deepEqual((await state.containers()).containers, []);
  const post = async (path: string): Promise<void> => {
    const answer = await engine.request("POST", path);
    assert.ok(answer.status < 300, answer.text);
  };
  const seen = async (check: (found: Awaited<ReturnType<typeof find>>) => void): Promise<void> =>
    eventually(async () => check(await find()), soonMs);
  const find = async (name = "life") =>
    (await state.containers()).containers.find((container) => container.name === name);
  const id = await engine.run("life", {
    Image: "svc/life:1",
    Labels: { "com.docker.compose.project": "p", "com.docker.compose.service": "s" },
    HostConfig: { PortBindings: { "80/tcp": [{ HostIp: "127.0.0.1", HostPort: "0" }] }, Memory: 64 << 20 },
  });
  await seen((container) => {
    assert.equal(container?.state, "running");
    assert.match(container.status, /^Up /);
    assert.equal(container.ports[0]?.hostAddress, "127.0.0.1");
    assert.ok((container.ports[0].hostPort ?? 0) > 0);
  });
  t.like(await find(), {
    id,
    image: "svc/life:1",
    composeProject: "p",
    composeService: "s",
    health: "none",
    memoryLimitBytes: 64 << 20,
    networkMode: "default",
    labels: { from: "image" } as never,
  });
  await post("/containers/life/pause");
  await seen((container) => assert.match(container?.status ?? "", /\(Paused\)$/));
  await post("/containers/life/unpause");
  await seen((container) => assert.equal(container?.state, "running"));
  await post("/containers/life/rename?name=other");
  await eventually(async () => assert.equal((await find("other"))?.id, id), soonMs);
  await post("/containers/other/rename?name=life");
  await post("/containers/life/stop?t=5");
  await seen((container) => assert.match(container?.status ?? "", /^Exited \(0\) /));
  t.is((await find())?.ports[0]?.hostPort, undefined);
  (await engine.request("DELETE", "/containers/life")).expect(204);
  await seen((container) => assert.equal(container, undefined));
  t.true(watched.changes.some((change) => change.kind === "containers" && change.ids.has(id)));
});
