/** The state of an app on a swarm, from what the swarm reports of its tasks. */
import test from "ava";
import type { SwarmTask } from "../../src/runtimes/swarm/swarm-api.ts";
import { statusOfStack, type StackFacts } from "../../src/runtimes/swarm/task-status.ts";

const complete: SwarmTask = {
  ...{
    id: "task",
    serviceId: "web",
    appId: "web",
    slot: 1,
    nodeId: "n",
    node: "n",
    nodeAddress: "",
    nodeState: "ready",
  },
  ...{ state: "complete", desired: "shutdown", error: "", sinceMs: 1, createdAtMs: 1, containerId: "c" },
  ...{ exitCode: 0, release: "" },
};

function serviceWith(healthcheck: string[]): StackFacts["services"] {
  const template = { ContainerSpec: { Healthcheck: { Test: healthcheck } } };
  const mode = { Replicated: { Replicas: 1 } };
  return [
    {
      ...{ id: "web", part: "", replicas: 1 },
      spec: { Name: "web", Labels: {}, TaskTemplate: template, Mode: mode },
    },
  ];
}

test("a task with a health check that exits with 0 counts as failed", (t) => {
  const services = serviceWith(["CMD", "true"]);
  const status = statusOfStack({ services, tasks: [complete], shouldRun: true });
  t.like(status, { state: "CRASHED", exitCode: 0 });
  t.regex(status.reason, /failed health check; restart the app$/);
});

test("a task without a health check that exits with 0 counts as stopped", (t) => {
  const services = serviceWith(["NONE"]);
  t.like(statusOfStack({ services, tasks: [complete], shouldRun: true }), { state: "STOPPED", exitCode: 0 });
});

for (const [title, lost, reason] of [
  ["one task", [{ node: "a", nodeState: "down" }], "a is down: 1 earlier task may still run there"],
  [
    "tasks on two nodes",
    [
      { node: "b", nodeState: "down" },
      { node: "a", nodeState: "disconnected" },
      { node: "b", nodeState: "down" },
    ],
    "a is disconnected: 1 earlier task may still run there; b is down: 2 earlier tasks may still run there",
  ],
  ["a task on a node that is ready", [{ node: "a", nodeState: "ready" }], ""],
] as const) {
  test(`a status lists the nodes that may still run earlier tasks: ${title}`, (t) => {
    const tasks = lost.map((at) => ({ ...complete, ...at, state: "running", serviceId: "removed" }));
    t.like(statusOfStack({ services: [], tasks, shouldRun: false }), { state: "STOPPED", reason });
  });
}
