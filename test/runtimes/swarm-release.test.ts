/** The difference between a swarm service and another version's service. */
import test from "ava";
import type { TaskFile } from "../../src/runtimes/swarm/task-files.ts";
import {
  withExtraParallelism,
  updateConfigs,
  withRelease,
  type ServicePlan,
} from "../../src/runtimes/swarm/stack-plan.ts";
import { releaseLabel } from "../../src/runtimes/containers/blocked-containers.ts";
import { manifestOf } from "./support/fixture.ts";

test("a service with another config file is a different one", (t) => {
  const spec = {
    Name: "web",
    Labels: {},
    TaskTemplate: { ContainerSpec: { Image: "web:1" } },
    Mode: { Replicated: { Replicas: 1 } },
  };
  const app = { version: "1", manifest: manifestOf(["true"]), settings: {}, ownerUid: 0 };
  const release = (content: TaskFile["content"]): string | undefined =>
    withRelease(app, spec, [{ kind: "configs", path: "/etc/web.conf", content }]).Labels[releaseLabel];
  t.is(release("a"), release(Buffer.from("a")));
  t.not(release("a"), release("b"));
  t.not(release(Buffer.from([0xff])), release(Buffer.from([0xfe])));
});

test("a rollback does not wait for parallel tasks: the swarm replaces that many more at a time", (t) => {
  const parallelism = (plan: ServicePlan): number =>
    (plan.spec["UpdateConfig"] as { Parallelism: number }).Parallelism;
  const planOf = (parallel: number): ServicePlan => ({
    part: "",
    image: "web:1",
    files: [],
    spec: {
      Name: "web",
      Labels: {},
      TaskTemplate: {},
      Mode: { Replicated: { Replicas: 3 } },
      ...(updateConfigs(
        { manifest: { ...manifestOf(["true"]), upgrade: { parallel, watchMs: 1 } } },
        { ports: "host", hasPorts: true, hasMounts: false },
      ) as object),
    },
  });
  t.is(parallelism(withExtraParallelism(planOf(1), 0)), 1);
  t.is(parallelism(withExtraParallelism(planOf(1), 2)), 3);
  // All at a time stays unchanged.
  t.is(parallelism(withExtraParallelism(planOf(0), 2)), 0);
});
