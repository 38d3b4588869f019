/**
 * Moves of an app between two nodes: the app never runs on both, however the move ends. Uses two daemons with their own
 * stores.
 */
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import anyTest, { type ExecutionContext, type TestFn } from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { runSvc, type SvcRun } from "../../cli/support/run-svc.ts";
import { hasAge, needsAge, newAgeKey } from "../../support/age.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { writeFiles } from "../../support/packages.ts";
import { processesInEach } from "../../support/processes.ts";
import { main } from "../../support/svc-main.ts";

interface Nodes {
  readonly near: TestDaemon;
  readonly attic: TestDaemon;
  readonly home: string;
}

const test = anyTest as TestFn<Nodes>;
const deadlineMs = 60_000;
const accepts = "--accept-permissions";

test.before(async (t) => {
  t.timeout(120_000);
  const [near, attic, home] = await Promise.all([
    startDaemon(),
    startDaemon(),
    mkdtemp(join(tmpdir(), "svc-move-")),
  ]);
  t.context = { near, attic, home };
  for (const [name, { socketPath }] of Object.entries({ near, attic })) {
    assert.equal((await svc(t.context, "node", "add", name, `unix://${socketPath}`)).exitCode, 0);
  }
  assert.equal((await svc(t.context, "node", "use", "near")).exitCode, 0);
});

// Each remaining app keeps writing, and its daemon keeps supervising it.
test.afterEach.always(async ({ context: { near, attic } }) => {
  for (const daemon of [near, attic]) {
    const apps = daemon.client(AppService);
    await eventually(async () => {
      for (const { id } of (await apps.listApps({})).apps) await apps.removeApp({ id });
    }, deadlineMs);
  }
});

test.after.always(async ({ context: { near, attic, home } }) => {
  await Promise.all([near[Symbol.asyncDispose](), attic[Symbol.asyncDispose]()]);
  await rm(home, { recursive: true, force: true });
});

/** The other node accepts a move of root's app. */
function svc(nodes: Nodes, ...args: string[]): Promise<SvcRun> {
  return svcAsking(nodes, ...args, ...(args.includes("move") ? [accepts] : []));
}

function svcAsking({ home }: Nodes, ...args: string[]): Promise<SvcRun> {
  return runSvc(args, { host: { home, uid: process.getuid?.() ?? 0 } });
}

/** An operation of a killed daemon may lock the app for a while. */
function eventuallyDone(nodes: Nodes, ...args: string[]): Promise<SvcRun> {
  return eventually(async () => {
    const run = await svc(nodes, ...args);
    assert.equal(run.exitCode, 0, run.stderr);
    return run;
  }, deadlineMs);
}

/**
 * Fails to start below a directory that contains the file `no-start`. Records its start in its data, and keeps writing.
 */
const program = `
import { appendFileSync, existsSync } from "node:fs";
import { dirname, join } from "node:path";
for (let dir = process.cwd(); dir !== "/"; dir = dirname(dir)) {
  if (existsSync(join(dir, "no-start"))) process.exit(1);
}
appendFileSync(join(process.env.DATA, "starts"), process.cwd() + "\\n");
// Where a test wants time between the first copy and the second.
process.on("SIGTERM", () => setTimeout(() => process.exit(0), existsSync(join(process.env.DATA, "late")) ? 5_000 : 0));
setInterval(() => appendFileSync(join(process.env.DATA, "beats"), Date.now() + "\\n"), 20);
`;

const neverHealthy =
  "health: { exec: [/bin/test, -e, /nonexistent/ready], start_period: 600s, interval: 1s }";

function packageDir({ near }: Nodes, id: string): string {
  return join(near.dir, "packages", id);
}

/** An app that runs on the near node. @param more further lines of its manifest */
async function install(nodes: Nodes, id: string, more = ""): Promise<void> {
  const { near } = nodes;
  const dir = packageDir(nodes, id);
  await writeFiles(dir, {
    "svc.yaml": `id: ${id}
name: ${id}
version: "1"
process: { exec: [node, app.mjs], env: { DATA: "\${data}" } }
settings: { properties: { word: { type: string, default: old, env: WORD } } }
${more}
`,
    "app.mjs": program,
  });
  const apps = near.client(AppService);
  await apps.installApp({ spec: dir, settings: { word: "moin" } });
  await apps.startApp({ id });
}

async function stateAt(daemon: TestDaemon, id: string): Promise<string> {
  const { apps } = await daemon.client(AppService).listApps({});
  return apps.find((app) => app.id === id)?.state ?? "";
}

async function expectStates({ near, attic }: Nodes, id: string, states: [string, string]): Promise<void> {
  await eventually(
    async () => assert.deepEqual([await stateAt(near, id), await stateAt(attic, id)], states),
    deadlineMs,
  );
}

interface Ending {
  /** Default: SIGKILL. */
  readonly signal?: NodeJS.Signals;
  /** A further condition for that step. */
  readonly when?: () => Promise<boolean>;
}

/**
 * Runs the command as a child process and signals it when the move reaches this step. @returns its exit code and signal
 */
async function endAt(
  { home }: Nodes,
  id: string,
  step: string,
  { signal = "SIGKILL", when = () => Promise.resolve(true) }: Ending = {},
): Promise<readonly [number | null, string | null]> {
  const child: ChildProcess = spawn(process.execPath, [main, "app", "move", id, "--to", "attic", accepts], {
    env: { ...process.env, HOME: home, XDG_CONFIG_HOME: "" },
    stdio: "ignore",
  });
  const ended = once(child, "exit");
  const path = join(home, ".config/svc/moves", `near,${id}.json`);
  const endMs = performance.now() + deadlineMs;
  while (performance.now() < endMs && child.exitCode === null) {
    const text = await readFile(path, "utf8").catch(() => "");
    if (text.includes(`"step":"${step}"`) && (await when())) break;
    await wait(2);
  }
  assert.equal(child.exitCode, null, `the move finished before ${step}`);
  child.kill(signal);
  return (await ended) as [number | null, string | null];
}

async function killAt(nodes: Nodes, id: string, step: string, when?: Ending["when"]): Promise<void> {
  const [, signal] = await endAt(nodes, id, step, when === undefined ? {} : { when });
  assert.equal(signal, "SIGKILL", `the move finished before ${step}`);
}

async function expectNothingLeft(t: ExecutionContext<Nodes>, id: string): Promise<void> {
  const names = await readdir(join(t.context.home, ".config/svc/moves"));
  t.deepEqual(
    names.filter((name) => name.includes(`,${id}.json`)),
    [],
  );
}

test.serial("an app is moved with its data and settings, and is down only during the switch", async (t) => {
  t.timeout(180_000);
  const { near, attic } = t.context;
  await install(t.context, "web");
  const plan = await svc(t.context, "app", "move", "web", "--to", "attic", "--dry-run");
  t.is(plan.exitCode, 0, plan.stderr);
  t.regex(plan.stdout, /^web would be moved to attic \(.* are free there\); its owner there is \S+$/m);
  t.is(await stateAt(attic, "web"), "");

  const moved = await svc(t.context, "app", "move", "web", "--to", "attic");
  t.is(moved.exitCode, 0, moved.stderr);
  t.false(moved.stderr.includes("copying all data again"), moved.stderr);
  t.regex(
    moved.stdout,
    /^Moved web to attic \(.*; downtime \d+\.\d s\)\. On near it is stopped; remove it there with: svc -N near remove web$/m,
  );
  t.log(moved.stdout.trim());
  await expectStates(t.context, "web", ["STOPPED", "RUNNING"]);
  const { values } = await attic.client(AppService).getAppSettings({ id: "web" });
  t.is(values?.["word"], "moin");
  const starts = (await svc(t.context, "-N", "attic", "file", "cat", "web:data/starts")).stdout;
  t.is(starts.split("\n").filter((line) => line !== "").length, 2, starts);
  const here = (await svc(t.context, "file", "cat", "web:data/beats")).stdout;
  const there = (await svc(t.context, "-N", "attic", "file", "cat", "web:data/beats")).stdout;
  t.not(here, "");
  t.true(there.startsWith(here), "everything it wrote until it was stopped");
  for (const daemon of [near, attic]) {
    t.deepEqual((await daemon.client(BackupService).listBackups({})).backups, []);
  }
  await expectNothingLeft(t, "web");

  const again = await svc(t.context, "app", "move", "web", "--to", "attic");
  t.is(again.exitCode, 5);
  t.regex(again.stderr, /attic already has an app web; compare both with: svc ls --all-nodes/);
  t.is((await svc(t.context, "app", "move", "web", "--abort")).exitCode, 5);
  t.is((await svc(t.context, "app", "move", "web", "--to", "near")).exitCode, 2);
  t.is((await svc(t.context, "app", "move", "web", "--abort", "--dry-run")).exitCode, 2);
  t.is((await svc(t.context, "app", "move", "web", "--abort", "--remove", "--yes")).exitCode, 2);

  await near.client(AppService).removeApp({ id: "web" });
  const back = await svc(t.context, "-N", "attic", "app", "move", "web", "--to", "near", "--remove", "--yes");
  t.is(back.exitCode, 0, back.stderr);
  await expectStates(t.context, "web", ["RUNNING", ""]);
});

for (const step of ["copying", "handing", "starting"]) {
  test.serial(
    `after a kill during ${step}, the app runs on one node, and the same command resumes`,
    async (t) => {
      t.timeout(240_000);
      const id = `on-${step}`;
      await install(t.context, id);
      await killAt(t.context, id, step);
      const { home, near, attic } = t.context;
      t.is((await stat(join(home, ".config/svc/moves", `near,${id}.json`))).mode & 0o777, 0o600);
      await eventually(async () => {
        const states = await Promise.all([stateAt(near, id), stateAt(attic, id)]);
        assert.ok(
          states.filter((state) => ["RUNNING", "STARTING"].includes(state)).length <= 1,
          String(states),
        );
        assert.ok(
          !states.some((state) => ["RESTORING", "STARTING", "STOPPING"].includes(state)),
          String(states),
        );
      }, deadlineMs);
      const other = await svc(t.context, "node", "add", "third", "unix:///nonexistent");
      t.is(other.exitCode, 0, other.stderr);
      const elsewhere = await svc(t.context, "app", "move", id, "--to", "third");
      t.regex(elsewhere.stderr, /has an unfinished move to attic: continue with/);
      await svc(t.context, "node", "remove", "third");
      await eventuallyDone(t.context, "app", "move", id);
      await expectStates(t.context, id, ["STOPPED", "RUNNING"]);
      const starts = (await svc(t.context, "-N", "attic", "file", "cat", `${id}:data/starts`)).stdout;
      t.true(starts.includes(near.storeDir), starts);
      await expectNothingLeft(t, id);
    },
  );

  test.serial(`after a kill during ${step}, --abort restores the app on its first node`, async (t) => {
    t.timeout(240_000);
    const { attic } = t.context;
    const id = `off-${step}`;
    const isLast = step === "starting";
    // It waits there for its health check.
    await install(t.context, id, isLast ? neverHealthy : "");
    await killAt(t.context, id, step, async () => !isLast || (await stateAt(attic, id)) === "RUNNING");
    const back = await eventuallyDone(t.context, "app", "move", id, "--abort");
    t.regex(back.stdout, new RegExp(`^${id} is on near as before`, "m"));
    const there = await stateAt(attic, id);
    t.is(/attic has no copy/.test(back.stdout), there === "", back.stdout);
    await expectStates(t.context, id, ["RUNNING", there === "" ? "" : "STOPPED"]);
    await expectNothingLeft(t, id);
  });
}

test.serial("an app that fails to start on the other node runs on its first node", async (t) => {
  t.timeout(180_000);
  const { attic } = t.context;
  await install(t.context, "shy");
  await writeFile(join(attic.dir, "no-start"), "");
  const failed = await svc(t.context, "app", "move", "shy", "--to", "attic");
  t.not(failed.exitCode, 0);
  await expectStates(t.context, "shy", ["RUNNING", "STOPPED"]);

  await attic.client(AppService).removeApp({ id: "shy" });
  await attic.client(AppService).installApp({ spec: packageDir(t.context, "shy") });
  const other = await svc(t.context, "app", "move", "shy", "--to", "attic");
  t.is(other.exitCode, 5, other.stderr);
  t.regex(other.stderr, /attic has another app shy/);
  await expectStates(t.context, "shy", ["RUNNING", "STOPPED"]);
  await attic.client(AppService).removeApp({ id: "shy" });

  await rm(join(attic.dir, "no-start"));
  const done = await svc(t.context, "app", "move", "shy", "--to", "attic");
  t.is(done.exitCode, 0, done.stderr);
  await expectStates(t.context, "shy", ["STOPPED", "RUNNING"]);
  await expectNothingLeft(t, "shy");
});

test.serial("Ctrl-C during the switch restores the app on its first node", async (t) => {
  t.timeout(180_000);
  const { near } = t.context;
  await install(t.context, "brief");
  const when = async () => (await stateAt(near, "brief")) === "STOPPED";
  const [code] = await endAt(t.context, "brief", "handing", { signal: "SIGINT", when });
  t.is(code, 130);
  await expectStates(t.context, "brief", ["RUNNING", "STOPPED"]);
  await eventuallyDone(t.context, "app", "move", "brief");
  await expectStates(t.context, "brief", ["STOPPED", "RUNNING"]);
  await expectNothingLeft(t, "brief");
});

test.serial(
  "an app that was started on the other node after a kill is not started on the first one",
  async (t) => {
    t.timeout(180_000);
    const { near } = t.context;
    await install(t.context, "both");
    await killAt(t.context, "both", "handing", async () => (await stateAt(near, "both")) === "STOPPED");
    await eventuallyDone(t.context, "-N", "attic", "app", "start", "both");
    const refused = await svc(t.context, "app", "move", "both");
    t.is(refused.exitCode, 5, refused.stderr);
    t.regex(
      refused.stderr,
      /both was started on attic during the move, so it is not started on near: stop it on attic/,
    );
    await expectStates(t.context, "both", ["STOPPED", "RUNNING"]);
    // The user who started it on both has to choose one: a rejection stops neither.
    await near.client(AppService).startApp({ id: "both" });
    t.is((await svc(t.context, "app", "move", "both")).exitCode, 5);
    await expectStates(t.context, "both", ["RUNNING", "RUNNING"]);
    const back = await svc(t.context, "app", "move", "both", "--abort", "--json");
    t.is(back.exitCode, 0, back.stderr);
    t.deepEqual(JSON.parse(back.stdout), { id: "both", node: "near" });
    await expectStates(t.context, "both", ["RUNNING", "STOPPED"]);
    await expectNothingLeft(t, "both");
  },
);

test.serial(
  "an app that was started on the first node after a kill is not started on the other one",
  async (t) => {
    t.timeout(180_000);
    await install(t.context, "here");
    await killAt(t.context, "here", "starting");
    await eventuallyDone(t.context, "app", "start", "here");
    const refused = await svc(t.context, "app", "move", "here");
    t.is(refused.exitCode, 5, refused.stderr);
    t.regex(
      refused.stderr,
      /here was started on near during the move: stop it and repeat the move, or undo the move with .* --abort/,
    );
    await eventuallyDone(t.context, "app", "move", "here", "--abort");
    await expectStates(t.context, "here", ["RUNNING", "STOPPED"]);
    await expectNothingLeft(t, "here");
  },
);

test.serial("while the app is stopped, only changes since the first copy are transferred", async (t) => {
  t.timeout(180_000);
  const { near, attic } = t.context;
  await install(t.context, "bulky");
  const { directory } = await near.client(AppService).getApp({ id: "bulky" });
  const data = join(directory, "data");
  const bulkBytes = 32 << 20;
  await writeFile(join(data, "bulk"), randomBytes(bulkBytes));
  await writeFile(join(data, "late"), "");
  await mkdir(join(data, "deep/er"), { recursive: true });
  for (const name of ["kept", "changed", "removed"])
    await writeFile(join(data, "deep/er", name), `${name} before\n`);
  // Files changed just now have no mark.
  await wait(2_500);
  // In the middle of the move, after the first copy has arrived.
  const journal = join(t.context.home, ".config/svc/moves/near,bulky.json");
  const changed = (async () => {
    await eventually(
      async () => assert.match(await readFile(journal, "utf8"), /"step":"copying","holder"|copying/),
      deadlineMs,
    );
    await eventually(async () => assert.equal(await stateAt(attic, "bulky"), "STOPPED"), deadlineMs);
    await writeFile(join(data, "deep/er/changed"), "changed since!!\n");
    await rm(join(data, "deep/er/removed"));
    await rename(join(data, "deep/er/kept"), join(data, "deep/er/moved"));
  })();
  const moved = await svc(t.context, "app", "move", "bulky", "--to", "attic", "--json");
  await changed;
  t.is(moved.exitCode, 0, moved.stderr);
  t.false(moved.stderr.includes("copying all data again"), moved.stderr);
  const { restored_bytes: bytes, paused_ms: pausedMs } = JSON.parse(moved.stdout) as Record<string, number>;
  t.log(`down for ${pausedMs} ms, with ${bytes} bytes`);
  t.true((bytes ?? bulkBytes) < bulkBytes, String(bytes));
  const there = (await attic.client(AppService).getApp({ id: "bulky" })).directory;
  const [here, far] = await Promise.all([directory, there].map((dir) => readFile(join(dir, "data/bulk"))));
  t.true(here?.equals(far ?? Buffer.alloc(0)));
  t.is((await stat(join(there, "data/bulk"))).nlink, 1);
  t.deepEqual(
    (await readdir(join(there, "data/deep/er"))).sort(),
    (await readdir(join(data, "deep/er"))).sort(),
  );
  for (const daemon of [near, attic]) {
    t.deepEqual((await daemon.client(BackupService).listBackups({ appId: "bulky" })).backups, []);
  }
});

const rootSerial = isRoot ? test.serial : test.serial.skip;

rootSerial(`a node asks before an app of another node becomes root's there${needsRoot}`, async (t) => {
  await install(t.context, "roots");
  const plan = await svcAsking(t.context, "app", "move", "roots", "--to", "attic", "--dry-run");
  t.regex(plan.stdout, /; its owner there is root$/m);
  const refused = await svcAsking(t.context, "app", "move", "roots", "--to", "attic");
  t.not(refused.exitCode, 0);
  t.regex(refused.stderr, /roots requires .*the app belongs to root here.* or pass --accept-permissions/);
  await expectStates(t.context, "roots", ["RUNNING", ""]);
  for (const daemon of [t.context.near, t.context.attic])
    t.deepEqual((await daemon.client(BackupService).listBackups({ appId: "roots" })).backups, []);
  const moved = await svc(t.context, "app", "move", "roots", "--to", "attic");
  t.is(moved.exitCode, 0, moved.stderr);
  await expectStates(t.context, "roots", ["STOPPED", "RUNNING"]);
});

const ageSerial = hasAge ? test.serial : test.serial.skip;

ageSerial(`an archive that its node encrypts goes with --identity, and not without${needsAge}`, async (t) => {
  t.timeout(180_000);
  const { near } = t.context;
  const key = await newAgeKey(near.dir, "move-key.txt");
  const backups = near.client(BackupService);
  await install(t.context, "sealed");
  const dir = join(near.dir, "sealed-archives");
  await mkdir(dir, { mode: 0o700 });
  const location = { case: "local", value: { dir } } as const;
  await backups.upsertBackupStorage({ name: "local", location, recipients: [key.recipient] });
  try {
    const refused = await svc(t.context, "app", "move", "sealed", "--to", "attic");
    t.not(refused.exitCode, 0);
    t.regex(refused.stderr, /identity/);
    await expectStates(t.context, "sealed", ["RUNNING", ""]);
    const moved = await svc(t.context, "app", "move", "sealed", "--to", "attic", "--identity", key.file);
    t.is(moved.exitCode, 0, moved.stderr);
    // The state to compare with is encrypted like the rest.
    t.regex(moved.stderr, /copying all data again/);
    await expectStates(t.context, "sealed", ["STOPPED", "RUNNING"]);
    for (const daemon of [near, t.context.attic]) t.false(daemon.log().includes(key.secret.slice(15, 60)));
  } finally {
    await backups.removeBackupStorage({ name: "local" });
  }
});

const victims = {
  command: "the command",
  from: "the source daemon",
  to: "the target daemon",
};
/** The number of kills of each victim, at random moments. */
const kills = process.env["SVC_LONG"] === undefined ? 2 : 34;

for (const [victim, words] of Object.entries(victims)) {
  test.serial(
    `after ${kills} kills of ${words} at random moments, the app runs on at most one node, and the same command finishes the move`,
    async (t) => {
      t.timeout(60_000 + kills * 60_000);
      const nodes = t.context;
      const id = `hunted-${victim}`;
      await install(nodes, id);
      const begunMs = performance.now();
      const first = await svc(nodes, "app", "move", id, "--to", "attic");
      const wholeMs = performance.now() - begunMs;
      t.is(first.exitCode, 0, first.stderr);
      let [from, to]: [NodeName, NodeName] = ["attic", "near"];
      const outcomes = new Map<string, number>();
      for (let kill = 1; kill <= kills; kill += 1) {
        // The app from the previous move stays there, stopped.
        await eventually(async () => {
          if ((await stateAt(nodes[to], id)) !== "") await nodes[to].client(AppService).removeApp({ id });
        }, deadlineMs);
        const before = await dataAt(nodes[from], id);
        const afterMs = Math.random() * wholeMs * 1.2;
        const killed = { command: undefined, from: nodes[from], to: nodes[to] }[victim];
        const ended = await moveAndKill(nodes, { id, from, to, afterMs, killed });
        const context = `kill ${kill} after ${Math.round(afterMs)} ms: ${ended.output}`;
        const goesBack = kill % 2 === 0;
        const command = ["-N", from, "app", "move", id, ...(goesBack ? ["--abort"] : ["--to", to])];
        if (ended.exitCode !== 0) {
          await eventually(async () => {
            const done = await svc(nodes, ...command);
            // Either nothing had started yet, or the move had finished.
            const wasNothing = /has no unfinished move to undo|already has an app \S+/.test(done.stderr);
            assert.ok(done.exitCode === 0 || wasNothing, `${context}; then: ${done.stderr}`);
          }, deadlineMs);
        }
        const states = await eventually(async () => {
          const both = await Promise.all([stateAt(nodes[from], id), stateAt(nodes[to], id)]);
          const running = both.filter((state) => state === "RUNNING");
          assert.equal(running.length, 1, `${context}; then ${both.join(" and ")}`);
          return both;
        }, deadlineMs);
        t.deepEqual(await runningCopies(nodes, id), [states[0] === "RUNNING" ? from : to], context);
        if (states[1] === "RUNNING") [from, to] = [to, from];
        const after = await dataAt(nodes[from], id);
        for (const name of dataFiles)
          t.true(after[name]?.startsWith(before[name] ?? ""), `${context}: ${name} lost data`);
        const outcome = `${ended.exitCode === 0 ? "done" : ended.exitCode === null ? "killed" : "failed"}, ${states.join(" and ")}`;
        outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
      }
      t.log(Object.fromEntries(outcomes));
      await svc(nodes, "-N", from, "app", "stop", id);
    },
  );
}

type NodeName = "near" | "attic";
const dataFiles = ["starts", "beats"] as const;

/** The lines that the app wrote on this node. */
async function dataAt(
  daemon: TestDaemon,
  id: string,
): Promise<Partial<Record<(typeof dataFiles)[number], string>>> {
  const { directory } = await daemon.client(AppService).getApp({ id });
  const read = dataFiles.map(async (name) => [name, await readFile(join(directory, "data", name), "utf8")]);
  return Object.fromEntries(await Promise.all(read)) as Record<string, string>;
}

/** Where the app's program runs, independent of the daemons. */
async function runningCopies(nodes: Nodes, id: string): Promise<NodeName[]> {
  const found: NodeName[] = [];
  const names = ["near", "attic"] as const;
  const all = processesInEach(names.map((name) => join(nodes[name].storeDir, "apps", id)));
  for (const [at, name] of names.entries()) {
    // The files for its restore are there, too.
    const commands = all[at]?.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")) ?? [];
    if ((await Promise.all(commands)).some((command) => command.includes("app.mjs"))) found.push(name);
  }
  return found;
}

interface Kill {
  readonly id: string;
  readonly from: NodeName;
  readonly to: NodeName;
  readonly afterMs: number;
  /** Starts the victim again later. Without a function, the command itself is killed. */
  readonly killed: TestDaemon | undefined;
}

/**
 * Asserts throughout that the app runs on at most one node. @returns how the command exited, `null` if it was killed
 */
async function moveAndKill(
  nodes: Nodes,
  { id, from, to, afterMs, killed }: Kill,
): Promise<{ exitCode: number | null; output: string }> {
  const child = spawn(process.execPath, [main, "-N", from, "app", "move", id, "--to", to, accepts], {
    env: { ...process.env, HOME: nodes.home, XDG_CONFIG_HOME: "" },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let output = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (output += text));
  const ended = once(child, "close") as Promise<[number | null]>;
  const over = new AbortController();
  const strike = async (): Promise<void> => {
    await wait(afterMs);
    if (killed === undefined) {
      child.kill("SIGKILL");
      return;
    }
    await killed.kill();
    await wait(Math.random() * 1_000);
    await killed.restart();
  };
  const both: number[] = [];
  const begunMs = performance.now();
  const struck = Promise.all([strike(), ended]).finally(() => over.abort());
  struck.catch(() => undefined);
  while (!over.signal.aborted) {
    const copies = await runningCopies(nodes, id);
    if (copies.length > 1) both.push(Math.round(performance.now() - begunMs));
    await wait(25);
  }
  const [, [exitCode]] = await struck;
  assert.deepEqual(both, [], `killed after ${Math.round(afterMs)} ms, it ran on both nodes: ${output}`);
  return { exitCode, output };
}
