/** Containers constantly start and exit: lists are fast and current, however many events there are. */
import assert from "node:assert/strict";
import { DockerService } from "../../gen/svc/v1/docker_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { startEngine, type TestEngine } from "../support/docker.ts";

/** 1 s is promised for the response and its content; the rest is for a busy host. */
const boundMs = 5_000;
const loops = 4;
const rounds = 12;
const callers = 20;

/** Commands of four shells that run short containers one after the other. */
class Storm implements AsyncDisposable {
  #goesOn = true;
  #made = 0;
  readonly #loops: Promise<void>[];

  constructor(engine: TestEngine) {
    this.#loops = Array.from({ length: loops }, async (_, loop) => {
      while (this.#goesOn) {
        const id = await engine.run(`storm-${loop}-${this.#made++}`, {
          Image: "svc/box:1",
          Cmd: ["/bin/true"],
        });
        (await engine.request("POST", `/containers/${id}/wait`)).expect(200);
        (await engine.request("DELETE", `/containers/${id}?force=1`)).expect(204);
      }
    });
  }

  get made(): number {
    return this.#made;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#goesOn = false;
    await Promise.all(this.#loops);
  }
}

dockerTest(`lists are fast and current during a storm of events${needsDocker}`, async (t) => {
  t.timeout(180_000);
  await using engine = await startEngine();
  await engine.images.build("svc/box:1");
  const steady = await engine.run("steady", { Image: "svc/box:1" });
  await using daemon = await startDaemon({ config: engine.config });
  const docker = daemon.client(DockerService, "grpc");
  const tookMs: number[] = [];
  const timed = async <T>(call: () => Promise<T>): Promise<T> => {
    const startedMs = performance.now();
    const answer = await call();
    tookMs.push(performance.now() - startedMs);
    return answer;
  };
  const names = async (): Promise<string[]> =>
    (await timed(() => docker.listContainers({ all: true }))).containers.map(({ name }) => name);
  await names();
  await using storm = new Storm(engine);
  const behindMs: number[] = [];
  // On a busy host the storm itself takes a while.
  let round = 0;
  for (; round < rounds || storm.made <= loops * 2; round++) {
    (await engine.request("POST", `/containers/${steady}/rename?name=steady-${round}`)).expect(204);
    const renamedMs = performance.now();
    for (;;) {
      const askedMs = performance.now();
      if ((await names()).includes(`steady-${round}`)) break;
      assert.ok(askedMs - renamedMs < boundMs, `a list is ${Math.round(askedMs - renamedMs)} ms old`);
    }
    behindMs.push(performance.now() - renamedMs);
    await Promise.all([
      timed(() => docker.listImages({})),
      timed(() => docker.listVolumes({})),
      timed(() => docker.listNetworks({})),
    ]);
  }
  // Concurrent callers share one window.
  const startedMs = performance.now();
  const answers = await Promise.all(
    Array.from({ length: callers }, () => docker.listContainerStats({ ids: [`steady-${round - 1}`] })),
  );
  const statsMs = performance.now() - startedMs;
  for (const { stats } of answers)
    t.deepEqual(
      stats.map(({ id }) => id),
      [steady],
    );
  t.true(statsMs < boundMs, `${callers} callers waited ${Math.round(statsMs)} ms`);
  t.true(Math.max(...tookMs) < boundMs, `a response took ${Math.round(Math.max(...tookMs))} ms`);
  const worst = (all: readonly number[]): string => `${Math.round(Math.max(...all))} ms`;
  t.log(
    `${storm.made} containers came and went; the slowest of ${tookMs.length} lists took ${worst(tookMs)}, ` +
      `the oldest was ${worst(behindMs)} behind, ${callers} callers of stats waited ${Math.round(statsMs)} ms`,
  );
});
