/** The merged log of several tasks. */
import { Readable } from "node:stream";
import test from "ava";
import type { DockerEngine } from "../../src/engine/engine.ts";
import {
  followAway,
  followTogether,
  readServiceLog,
  readTaskLog,
} from "../../src/runtimes/swarm/service-logs.ts";
import type { LogChunk } from "../../src/logs/log-chunk.ts";
import type { SwarmTask } from "../../src/runtimes/swarm/swarm-api.ts";

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
