/** What tells a service of a swarm from what another version would make of it. */
import test from "ava";
import type { HandedFile } from "../../src/runtimes/swarm/handed-files.ts";
import {
  besides,
  updateConfigs,
  withRelease,
  type ServicePlan,
} from "../../src/runtimes/swarm/stack-plan.ts";
import { releaseLabel } from "../../src/runtimes/stuck-containers.ts";
import { manifestOf } from "./support/fixture.ts";

test("a service that is handed another file is another one", (t) => {
  const spec = {
    Name: "web",
    Labels: {},
    TaskTemplate: { ContainerSpec: { Image: "web:1" } },
    Mode: { Replicated: { Replicas: 1 } },
  };
  const app = { version: "1", manifest: manifestOf(["true"]), settings: {} };
  const release = (content: HandedFile["content"]): string | undefined =>
    withRelease(app, spec, [{ kind: "configs", path: "/etc/web.conf", content }]).Labels[releaseLabel];
  t.is(release("a"), release(Buffer.from("a")));
  t.not(release("a"), release("b"));
  t.not(release(Buffer.from([0xff])), release(Buffer.from([0xfe])));
});

test("a service goes back although so many tasks are waited for: the swarm holds as many more at a time", (t) => {
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
  t.is(parallelism(besides(planOf(1), 0)), 1);
  t.is(parallelism(besides(planOf(1), 2)), 3);
  // All at a time stays that.
  t.is(parallelism(besides(planOf(0), 2)), 0);
});
