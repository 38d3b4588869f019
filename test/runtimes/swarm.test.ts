/** Apps on a swarm: their state, their services, their images and their logs. */
import { Readable } from "node:stream";
import test from "ava";
import type { DockerEngine } from "../../src/engine/engine.ts";
import type { LogChunk } from "../../src/logs/log-chunk.ts";
import { releaseLabel } from "../../src/runtimes/containers/blocked-containers.ts";
import { serviceImage } from "../../src/runtimes/swarm/service-image.ts";
import {
  followAway,
  followTogether,
  readServiceLog,
  readTaskLog,
} from "../../src/runtimes/swarm/service-logs.ts";
import {
  withExtraParallelism,
  updateConfigs,
  withRelease,
  type ServicePlan,
} from "../../src/runtimes/swarm/stack-plan.ts";
import type { SwarmTask } from "../../src/runtimes/swarm/swarm-api.ts";
import type { TaskFile } from "../../src/runtimes/swarm/task-files.ts";
import { statusOfStack, type StackFacts } from "../../src/runtimes/swarm/task-status.ts";
import { manifestOf } from "./support/fixture.ts";

// The state of an app on a swarm, from what the swarm reports of its tasks.

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

// The difference between a swarm service and another version's service.

test("a service has another release if the content of a config file differs", (t) => {
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

// The image references that the nodes of a swarm pull.

const digest = (name: string, digit: string): string => `${name}@sha256:${digit.repeat(64)}`;

test("an image is referenced by its digest under its own name, and a locally built one by its ID", (t) => {
  const Id = `sha256:${"0".repeat(64)}`;
  const pulled = (image: string, ...RepoDigests: string[]): string =>
    serviceImage(image, { Id, RepoDigests });
  const [web, web2] = [digest("r.example/web", "1"), digest("r.example/web2", "2")];
  t.is(pulled("r.example/web2:1", web, web2), web2);
  t.is(pulled("r.example/web2:1", web), Id);
  t.is(pulled("nginx:1", digest("nginx", "3")), digest("nginx", "3"));
  t.is(pulled("docker.io/library/nginx:1", digest("nginx", "3")), digest("nginx", "3"));
  // With containerd's image store even these have a digest.
  const built = "svc.local/web:abc";
  t.is(serviceImage(built, { Id, RepoDigests: [digest("svc.local/web", "4")] }), Id);
});

// The merged log of several tasks.

const tasks = [1, 2].map(
  (slot) => ({ id: `task${slot}`, slot, nodeId: `id${slot}`, node: `node${slot}` }) as SwarmTask,
);

/** The engine's message for a line, or for a piece of one. */
function frame(task: string, second: number, text: string): Buffer {
  const time = new Date(Date.UTC(2026, 0, 1) + second * 1_000).toISOString();
  const prefix = "com.docker.swarm";
  const details = `${prefix}.node.id=n,${prefix}.service.id=s,${prefix}.task.id=${task}`;
  const body = Buffer.from(`${time} ${details} ${text}`);
  const header = Buffer.alloc(8);
  header[0] = 1;
  header.writeUInt32BE(body.length, 4);
  return Buffer.concat([header, body]);
}

/** The engine's message at the end if some output is missing. */
function complaint(reasons: string): Buffer {
  const said = `rpc error: code = Unknown desc = warning: incomplete log stream. some logs could not be retrieved for the following reasons: ${reasons}`;
  const body = Buffer.from(`Error grabbing logs: ${said}\n`);
  const header = Buffer.alloc(8);
  header[0] = 3;
  header.writeUInt32BE(body.length, 4);
  return Buffer.concat([header, body]);
}

function engineThatSends(frames: Iterable<Buffer>, path = ""): DockerEngine {
  const dial = (asked: { path: string }, done: (error: null, stream: Readable) => void): void =>
    done(null, Readable.from(asked.path.startsWith(path) ? frames : []));
  return {
    operate: (_what: string, work: (docker: unknown) => Promise<unknown>) => work({ modem: { dial } }),
  } as unknown as DockerEngine;
}

async function read(frames: Iterable<Buffer>, tail: number): ReturnType<typeof readServiceLog> {
  return readServiceLog(engineThatSends(frames), "s", { tail, part: "", tasks, hasTerminal: false });
}

test("the last lines of all tasks together are the latest by time, in any order of tasks", async (t) => {
  function* frames(): Generator<Buffer> {
    for (const at of [1, 3, 5, 7]) yield frame("task1", at, `at ${at}\n`);
    for (const at of [2, 4, 6]) yield frame("task2", at, `at ${at}\n`);
  }
  const { lines, truncated } = await read(frames(), 3);
  t.deepEqual(
    lines.map(({ text }) => text),
    ["1@node1 | at 5", "2@node2 | at 6", "1@node1 | at 7"],
  );
  t.false(truncated);
});

test("pieces of long lines are joined per task, and an unfinished line is included", async (t) => {
  const frames = [
    frame("task1", 1, "one "),
    frame("task2", 2, "two "),
    frame("task1", 1, "goes on\n"),
    frame("task2", 2, "goes on"),
  ];
  const { lines } = await read(frames, 10);
  t.deepEqual(
    lines.map(({ text }) => text),
    ["1@node1 | one goes on", "2@node2 | two goes on"],
  );
});

test("a log of more than 8 MiB is reduced to its last lines", async (t) => {
  const long = "x".repeat(64_000);
  function* frames(): Generator<Buffer> {
    for (let at = 0; at < 1_000; at++) yield frame(`task${(at % 2) + 1}`, at, `${at} ${long}\n`);
  }
  const { lines, truncated } = await read(frames(), 10_000);
  t.true(truncated);
  const sizeBytes = lines.reduce((sum, { text }) => sum + text.length, 0);
  t.true(sizeBytes > 7 * 2 ** 20 && sizeBytes <= 8 * 2 ** 20, `${sizeBytes} bytes`);
  t.regex(lines.at(-1)?.text ?? "", /^2@node2 \| 999 x/);
});

for (const [reasons, said] of [
  ["node id2 is not available", "node2 did not respond"],
  ["node id2 disconnected unexpectedly, node id1 is not available", "node1, node2 did not respond"],
  ["node abcdefghijklmnop is not available", "node abcdefghijkl did not respond"],
  ["node id2 is not available, disk is full", "node2 did not respond; disk is full"],
] as const) {
  test(`missing output is reported last by svc, also when the tail is full: ${reasons}`, async (t) => {
    const frames = [1, 2, 3].map((at) => frame("task1", at, `at ${at}\n`));
    const before = Date.now();
    const { lines } = await read([...frames, complaint(reasons)], 2);
    t.deepEqual(
      lines.map(({ stream, text }) => [stream, text]),
      [
        ["stdout", "1@node1 | at 3"],
        ["svc", `${said}: lines of its tasks are missing here`],
      ],
    );
    t.true((lines.at(-1)?.timeMs ?? 0) >= before);
  });
}

test("a task without a node is not missing, and a task's own output stays", async (t) => {
  const own = complaint("node id1 is not available").subarray(8).toString();
  const { lines } = await read([frame("task1", 1, own), complaint("task abc has not been scheduled")], 9);
  t.deepEqual(
    lines.map(({ text }) => text),
    [`1@node1 | ${own.trimEnd()}`],
  );
});

test("the last lines of one task are as it printed them, without the swarm's prefixes", async (t) => {
  const frames = [1, 2, 3].map((at) => frame("task1", at, `at ${at}\n`));
  const engine = engineThatSends([...frames, complaint("node id1 is not available")], "/tasks/task1/");
  t.deepEqual(await readTaskLog(engine, "task1", { tail: 2, hasTerminal: false }), ["at 2", "at 3"]);
});

test("a follower is notified once of a node that does not respond, and again after it returned", async (t) => {
  const leaving = new AbortController();
  const away = [[], ["id2", "other"], ["id2"], undefined, ["id2", "id1"], [], ["id1"]];
  let at = 0;
  const awayNow = (): Promise<ReadonlySet<string>> => {
    const now = away[at++];
    if (at === away.length) leaving.abort();
    return now === undefined ? Promise.reject(new Error("no leader")) : Promise.resolve(new Set(now));
  };
  const { signal } = leaving;
  const said: string[] = [];
  for await (const { lines } of followAway({ awayNow, tasksNow: () => tasks, signal, everyMs: 1 })) {
    said.push(...lines.map(({ stream, text }) => `${stream} ${text.replace(/:.*/, "")}`));
  }
  t.deepEqual(said, ["svc node2 did not respond", "svc node1 did not respond", "svc node1 did not respond"]);
});

test("a followed log ends with its services, whatever else arrives in between", async (t) => {
  const chunk = (text: string): LogChunk => ({
    lines: [{ timeMs: 0, stream: "stdout", text }],
    truncated: false,
    missedBytes: 0,
  });
  const beside = async function* (signal: AbortSignal): AsyncGenerator<LogChunk, void> {
    yield chunk("beside");
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
  };
  const service = async function* (): AsyncGenerator<LogChunk, void> {
    yield await new Promise<LogChunk>((resolve) => setTimeout(resolve, 20, chunk("one")));
  };
  const seen: string[] = [];
  for await (const { lines } of followTogether([service], beside, new AbortController().signal)) {
    seen.push(...lines.map(({ text }) => text));
  }
  t.deepEqual(seen, ["beside", "one"]);
});
