/** Jobs and their schedules after exits and kills of the daemon, and with many processes on one store. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createClient, type Client } from "@connectrpc/connect";
import test from "ava";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { runningRuns, openWorld } from "../scheduler/support/world.ts";
import type { Acknowledged } from "../scheduler/support/writer.ts";
import { temporaryDir as storeDir } from "../store/support/temporary-store.ts";
import { bundledProgram } from "../support/bundled-program.ts";
import { socketTransport } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { fixtureEnvironment } from "../support/fixture-environment.ts";

const storeFixture = await bundledProgram(
  fileURLToPath(new URL("../scheduler/support/writer.ts", import.meta.url)),
);

// Jobs after the daemon's exit: for each way to exit, each activity of the job and each of its policies. The test has a
// fake clock; the daemons are real processes that are stopped and killed.

const jobFixture = await bundledProgram(
  fileURLToPath(new URL("../scheduler/support/clock-daemon.ts", import.meta.url)),
);
const minuteMs = 60_000;
/** The number of daemons started within one minute; more with SVC_LONG=1. */
const starts = process.env["SVC_LONG"] === undefined ? 12 : 100;

interface ClockDaemon extends AsyncDisposable {
  readonly schedules: Client<typeof ScheduleService>;
  pass(ms: number): Promise<void>;
  end(signal: NodeJS.Signals): Promise<void>;
}

async function startAt(dir: string, start: string): Promise<ClockDaemon> {
  const child = spawn(process.execPath, [jobFixture, dir, start], {
    stdio: ["pipe", "pipe", "inherit"],
    env: fixtureEnvironment,
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (word: string): Promise<void> => {
    assert.equal((await lines.next()).value, word);
  };
  await next("ready");
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, "exit");
    child.kill(signal);
    await exited;
  };
  return {
    schedules: createClient(ScheduleService, socketTransport(join(dir, "svc.sock"), "connect")),
    end,
    [Symbol.asyncDispose]: () => end("SIGKILL"),
    async pass(ms) {
      child.stdin.write(`${ms}\n`);
      await next("passed");
    },
  };
}

async function temporaryDir(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(join(tmpdir(), "svc-jobs-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** Lines of a file; none if it does not exist. */
async function linesOf(file: string): Promise<string[]> {
  const text = await readFile(file, "utf8").catch(() => "");
  return text.split("\n").filter((line) => line !== "");
}

const flags = {
  none: {},
  retries: { retries: 2 },
  "catch-up": { catchUp: "latest" },
  both: { retries: 2, catchUp: "latest" },
} as const;
type Flag = keyof typeof flags;

/** A job's activity when the daemon exits: its trigger, its command, and the outcome of its first run. */
const moments = {
  "run goes": { trigger: "0 12 * * *", command: "sleep 300" },
  "run succeeded": { trigger: "0 12 * * *", command: "true" },
  "run failed": { trigger: "0 12 * * *", command: "exit 3" },
  "not yet due": { trigger: "0 13 * * *", command: "true" },
} as const;
type Moment = keyof typeof moments;

/** How often a job has run after one, two and three exits of the daemon. */
const model: Record<Moment, Record<Flag, readonly number[]>> = {
  // Caught up once, with as many retries as allowed; the daemon that catches up exits in the same way.
  "run goes": { none: [1, 1, 1], retries: [2, 3, 3], "catch-up": [2, 2, 2], both: [2, 3, 3] },
  "run succeeded": { none: [1, 1, 1], retries: [1, 1, 1], "catch-up": [1, 1, 1], both: [1, 1, 1] },
  // Each daemon has time for one retry.
  "run failed": { none: [1, 1, 1], retries: [2, 3, 3], "catch-up": [1, 1, 1], both: [2, 3, 3] },
  // Missed while no daemon ran.
  "not yet due": { none: [0, 0, 0], retries: [0, 0, 0], "catch-up": [1, 1, 1], both: [1, 1, 1] },
};

const cases = (Object.keys(moments) as Moment[]).flatMap((moment) =>
  (Object.keys(flags) as Flag[]).map((flag) => ({
    moment,
    flag,
    id: `${moment}-${flag}`.replaceAll(" ", "-"),
  })),
);

for (const signal of ["SIGTERM", "SIGKILL"] as const) {
  test(`the daemon's exit by ${signal} × a job's activity × its policy`, async (t) => {
    t.timeout(300_000);
    await using dir = await temporaryDir();
    let daemon = await startAt(dir.path, "2026-01-15T11:59:50Z");
    await using stack = new AsyncDisposableStack();
    stack.defer(() => daemon.end("SIGKILL"));
    for (const { id, moment, flag } of cases) {
      const { trigger, command } = moments[moment];
      const action = { type: "shell", command };
      await daemon.schedules.upsertSchedule({ id, trigger, utc: true, action, ...flags[flag] });
    }
    /** The runs of all jobs, once no short one is active and the expected ones exist. */
    const counts = async (expected: (moment: Moment, flag: Flag) => number): Promise<number[]> => {
      const found: number[] = [];
      for (const { id, moment, flag } of cases) {
        const { runs } = await eventually(async () => {
          const answer = await daemon.schedules.listScheduleRuns({ id });
          assert.equal(answer.runs.length, expected(moment, flag), id);
          const going = answer.runs.filter(({ status }) => status === "RUNNING");
          if (moment !== "run goes") assert.equal(going.length, 0);
          return answer;
        }, 60_000);
        found.push(runs.length);
        t.deepEqual(
          runs.map(({ attempt }) => attempt),
          runs.map((_run, at) => runs.length - at),
          `${id}: each attempt once`,
        );
      }
      return found;
    };

    await daemon.pass(15_000);
    await counts((moment) => (moment === "not yet due" ? 0 : 1));
    const rows: string[] = [];
    const table = cases.map(({ id }) => [id]);
    for (const [at, start] of ["13:30", "13:40", "13:50"].entries()) {
      await daemon.end(signal);
      daemon = await startAt(dir.path, `2026-01-15T${start}:30Z`);
      await daemon.pass(at === 0 ? 31_000 : minuteMs + 1_000);
      const found = await counts((moment, flag) => model[moment][flag][at] ?? 0);
      for (const [row, count] of found.entries()) table[row]?.push(String(count));
    }
    for (const { id, moment } of cases) {
      if (moment !== "run goes") continue;
      const { runs } = await daemon.schedules.listScheduleRuns({ id });
      const ended = runs.filter(({ status }) => status !== "RUNNING").map(({ status }) => status);
      t.true(ended.every((status) => status === (signal === "SIGTERM" ? "CANCELED" : "INTERRUPTED")));
    }
    rows.push(...table.map(([id, ...found]) => `${(id ?? "").padEnd(24)} runs: ${found.join(", ")}`));
    t.log(`${signal}: ${cases.length} jobs, 3 exits\n${rows.join("\n")}`);
  });
}

test(`${starts} starts and kills within one minute catch up once`, async (t) => {
  t.timeout(starts * 20_000);
  await using dir = await temporaryDir();
  const ran = join(dir.path, "ran");
  {
    await using daemon = await startAt(dir.path, "2026-01-15T11:00:00Z");
    await daemon.schedules.upsertSchedule({
      id: "j",
      trigger: "0 12 * * *",
      utc: true,
      catchUp: "latest",
      action: { type: "shell", command: `echo ran >> ${ran}` },
    });
    await daemon.schedules.upsertSchedule({
      id: "later",
      trigger: "0 0 1 1 *",
      action: { type: "shell", command: "true" },
    });
    await daemon.end("SIGKILL");
  }
  /** Everything that a daemon does first has started: writes keep their order. */
  const settled = async ({ schedules }: ClockDaemon): Promise<void> => {
    const { run } = await schedules.runSchedule({ id: "later" });
    await eventually(async () => {
      const { runs } = await schedules.listScheduleRuns({ id: "later" });
      assert.equal(runs.find(({ id }) => id === run?.id)?.status, "SUCCEEDED");
    }, 60_000);
  };
  for (let start = 0; start < starts; start += 1) {
    await using daemon = await startAt(dir.path, "2026-01-15T13:00:20Z");
    // The first may finish the run; the others are killed at any point.
    if (start === 0) {
      await eventually(async () => {
        const { runs } = await daemon.schedules.listScheduleRuns({ id: "j" });
        assert.equal(runs[0]?.status, "SUCCEEDED");
      }, 60_000);
    } else if (start % 4 === 0) await settled(daemon);
    else await daemon.schedules.listScheduleRuns({ id: "j" });
    await daemon.end("SIGKILL");
  }
  await using daemon = await startAt(dir.path, "2026-01-15T13:00:20Z");
  await settled(daemon);
  const { runs } = await daemon.schedules.listScheduleRuns({ id: "j" });
  await daemon.end("SIGTERM");
  t.is(runs.length, 1);
  t.deepEqual(await linesOf(ran), ["ran"]);
});

test("a reboot is never caught up on, neither rejected at creation nor stored from an earlier version", async (t) => {
  t.timeout(120_000);
  await using dir = await temporaryDir();
  const reboots = join(dir.path, "reboots");
  const job = { id: "r", trigger: "0 12 * * *", utc: true, action: { type: "node_reboot" } };
  {
    await using daemon = await startAt(dir.path, "2026-01-15T11:00:00Z");
    await t.throwsAsync(daemon.schedules.upsertSchedule({ ...job, catchUp: "latest" }), {
      message: /catch_up:? must be "none" for node_reboot/,
    });
    await daemon.schedules.upsertSchedule({ ...job, retries: 3 });
    await daemon.end("SIGKILL");
  }
  const database = new DatabaseSync(join(dir.path, "store/svc.db"));
  database.exec("UPDATE jobs SET document = json_set(document, '$.catchUp', 'latest')");
  for (let boot = 0; boot < 3; boot += 1) {
    await using daemon = await startAt(dir.path, "2026-01-15T12:30:00Z");
    await daemon.pass(10_000);
    t.deepEqual((await daemon.schedules.listScheduleRuns({ id: "r" })).runs, []);
    await daemon.end("SIGKILL");
  }
  t.deepEqual(await linesOf(reboots), []);
});

// Many processes with one store of schedules: edits, pushes and records never undo each other, and everything
// acknowledged survives any kill. With SVC_LONG=1 20 times as much and 200 kills.

const isLong = process.env["SVC_LONG"] !== undefined;
/** At least this many of each kind are acknowledged while all are active. */
const enough = { job: 200, managed: 40, closed: 200 };
const longer = isLong ? 20 : 1;
const kills = isLong ? 200 : 20;

interface Writer {
  readonly facts: Acknowledged[];
  /** Resolves when it has acknowledged something. */
  readonly begun: Promise<undefined>;
  /** Exits after its current step. @throws Error if it failed */
  end(): Promise<void>;
  /** At once; its output so far is in `facts`. */
  kill(): Promise<void>;
}

function startWriter(dir: string, role: string, number: number): Writer {
  const child = spawn(process.execPath, [storeFixture, dir, role, String(number)], {
    stdio: ["pipe", "pipe", "pipe"],
    env: fixtureEnvironment,
  });
  const facts: Acknowledged[] = [];
  const begun = Promise.withResolvers<undefined>();
  let errors = "";
  child.stderr.on("data", (chunk: Buffer) => (errors += chunk.toString()));
  const lines = createInterface({ input: child.stdout });
  lines.on("line", (line) => {
    facts.push(JSON.parse(line) as Acknowledged);
    begun.resolve(undefined);
  });
  const read = once(lines, "close");
  const exited = once(child, "exit");
  void exited.then(() => begun.resolve(undefined));
  return {
    facts,
    begun: begun.promise,
    async end() {
      child.stdin.end();
      await Promise.all([read, exited]);
      if (child.exitCode !== 0) throw new Error(errors);
    },
    async kill() {
      child.kill("SIGKILL");
      await Promise.all([read, exited]);
      if (child.exitCode !== null) throw new Error(`it exited early: ${errors}`);
    },
  };
}

function integrityOf(dir: string): unknown {
  const database = new DatabaseSync(join(dir, "svc.db"), { readOnly: true });
  try {
    return Object.values(database.prepare("PRAGMA integrity_check").get() ?? {})[0];
  } finally {
    database.close();
  }
}

test("8 processes edit, push and record concurrently without losing a job or a run", async (t) => {
  t.timeout(longer * 240_000);
  await using dir = await storeDir();
  {
    await using _made = await openWorld({ dir: dir.path });
  }
  const roles = ["edit", "edit", "edit", "push", "push", "record", "record", "record"];
  const writers = roles.map((role, number) => startWriter(dir.path, role, number));
  await Promise.all(writers.map(({ begun }) => begun));
  await eventually(() => {
    const facts = writers.flatMap((writer) => writer.facts);
    for (const [kind, count] of Object.entries(enough)) {
      const found = facts.filter((fact) => fact.kind === kind).length;
      assert.ok(found >= count * longer, `${found} of ${kind}`);
    }
  }, longer * 120_000);
  await Promise.all(writers.map((writer) => writer.end()));

  await using world = await openWorld({ dir: dir.path });
  await world.registry.untilCurrent();
  const commentOf = (id: string): string | null => world.registry.get({ ownerUid: 0, id })?.comment ?? null;
  const facts = writers.flatMap((writer) => writer.facts);
  const jobs = new Map(facts.flatMap((fact) => (fact.kind === "job" ? [[fact.id, fact.comment]] : [])));
  t.deepEqual(new Map([...jobs.keys()].map((id) => [id, commentOf(id)])), jobs, "each job has its last edit");

  const managed = new Map(
    facts.flatMap((fact) => (fact.kind === "managed" ? [[fact.managedBy, fact.comments]] : [])),
  );
  for (const [managedBy, comments] of managed) {
    const theirs = world.registry.all().filter((job) => job.managedBy === managedBy);
    t.deepEqual(Object.fromEntries(theirs.map(({ id, comment }) => [id, comment])), comments, managedBy);
  }

  const closed = facts.filter((fact) => fact.kind === "closed");
  for (const [job, runs] of Map.groupBy(closed, (fact) => fact.job)) {
    t.deepEqual(
      world.log.list({ ownerUid: 0, id: job }).map(({ id, outcome }) => [id, outcome?.output]),
      runs
        .slice(-50)
        .reverse()
        .map(({ run, output }) => [run, output]),
      `the last runs of ${job}`,
    );
  }
  t.is(integrityOf(dir.path), "ok");
  t.deepEqual(await runningRuns(world), []);
  const counts = Object.fromEntries(
    [...Map.groupBy(facts, ({ kind }) => kind)].map(([kind, list]) => [kind, list.length]),
  );
  t.log(JSON.stringify(counts));
});

test(`${kills} kills while runs are recorded lose nothing that was acknowledged`, async (t) => {
  t.timeout(kills * 10_000 + 60_000);
  await using dir = await storeDir();
  await using world = await openWorld({ dir: dir.path });
  const { log } = world;
  /** By job: the run and its expected output; undefined if only its start was acknowledged. */
  const expected = new Map<string, Map<number, string | undefined>>();
  let interrupted = 0;
  for (let kill = 0; kill < kills; kill++) {
    const writer = startWriter(dir.path, "record", 0);
    await writer.begun;
    await wait(Math.random() * 60);
    await writer.kill();
    for (const fact of writer.facts) {
      if (fact.kind !== "opened" && fact.kind !== "closed") continue;
      const runs = expected.get(fact.job) ?? new Map<number, string | undefined>();
      expected.set(fact.job, runs.set(fact.run, fact.kind === "closed" ? fact.output : undefined));
    }
    await log.recover();
    t.deepEqual(await runningRuns(world), [], "runs that the process left are closed");
    for (const [job, runs] of expected) {
      const listed = new Map(log.list({ ownerUid: 0, id: job }).map((run) => [run.id, run.outcome]));
      const oldest = Math.min(...listed.keys());
      for (const [run, output] of runs) {
        if (run < oldest && listed.size === 50) runs.delete(run);
        else if (output === undefined) {
          // Its end may have been stored without an acknowledgment.
          const status = listed.get(run)?.status;
          t.true(status === "INTERRUPTED" || status === "SUCCEEDED", `run ${run} is ${String(status)}`);
          if (status === "INTERRUPTED") interrupted++;
        } else {
          t.like(listed.get(run), { status: "SUCCEEDED", output }, `run ${run}`);
        }
      }
    }
  }
  t.is(integrityOf(dir.path), "ok");
  t.log(`${kills} kills, seen ${interrupted} times INTERRUPTED`);
  t.true(interrupted > 0, "some kills fell into a run");
});
