/**
 * Many processes with one store of schedules: edits, pushes and records never undo each other, and everything
 * acknowledged survives any kill. With SVC_LONG=1 20 times as much and 200 kills.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import type { Acknowledged } from "../scheduler/support/writer.ts";
import { runningRuns, openWorld } from "../scheduler/support/world.ts";
import { temporaryDir } from "../store/support/temporary-store.ts";
import { bundledProgram } from "../support/bundled-program.ts";
import { eventually } from "../support/eventually.ts";
import { fixtureEnvironment } from "../support/fixture-environment.ts";

const isLong = process.env["SVC_LONG"] !== undefined;
/** At least this many of each kind are acknowledged while all are active. */
const enough = { job: 200, managed: 40, closed: 200 };
const longer = isLong ? 20 : 1;
const kills = isLong ? 200 : 20;
const fixture = await bundledProgram(
  fileURLToPath(new URL("../scheduler/support/writer.ts", import.meta.url)),
);

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
  const child = spawn(process.execPath, [fixture, dir, role, String(number)], {
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
  await using dir = await temporaryDir();
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
  await world.registry.fresh();
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
  await using dir = await temporaryDir();
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
