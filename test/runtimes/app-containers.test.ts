import test from "ava";
import type { DockerEngine } from "../../src/docker/engine.ts";
import { SvcError } from "../../src/errors.ts";
import { AppContainers, type AppContainersOptions } from "../../src/runtimes/app-containers.ts";

/** An engine whose starts end as `ends` says, one after the other. */
function containersOn(ends: (SvcError | undefined)[]) {
  let starts = 0;
  const engine: Pick<DockerEngine, "operate"> = {
    operate: () => {
      const end = ends[starts++];
      return end === undefined ? Promise.resolve(undefined as never) : Promise.reject(end);
    },
  };
  const options: Partial<AppContainersOptions> = { engine: engine as DockerEngine };
  return { containers: new AppContainers("web", options as AppContainersOptions), starts: () => starts };
}

const id = "93d24bf1b19513abc54c446a3cc87e926c2c3fe907d995db856024149a033ecf";
const leftOver = new SvcError("not_possible", `could not start: task ${id}: already exists`);
const refused = new SvcError("already_exists", "could not start: the name already exists");

test("a start waits for what a killed engine has left of the container", async (t) => {
  const { containers, starts } = containersOn([leftOver, leftOver, undefined]);
  await containers.start(id);
  t.is(starts(), 3);
});

test("what goes on being in the way, and every other refusal, is told", async (t) => {
  const stuck = containersOn(Array.from({ length: 20 }, () => leftOver));
  t.is(await t.throwsAsync(stuck.containers.start(id)), leftOver);
  t.is(stuck.starts(), 8);
  const other = containersOn([refused]);
  t.is(await t.throwsAsync(other.containers.start(id)), refused);
  t.is(other.starts(), 1);
});
