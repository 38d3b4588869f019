/**
 * `svc schedule` with a real daemon: the tour of a new user, every command, the platform's pushes, and without a
 * daemon.
 */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { runSvc } from "../../cli/support/run-svc.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { isRoot, needsRoot, type TestDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { main } from "../../support/svc-main.ts";
import { asUserWithoutSvc } from "../../support/without-svc.ts";

const rootTest = isRoot ? test : test.skip;
const emptyDaemon = sharedDaemon();

interface Run {
  code: number | null;
  out: string;
  err: string;
}

interface SvcOptions {
  socketPath?: string | undefined;
  env?: Readonly<Record<string, string>>;
  input?: string;
  /** The user that the command runs as; needs root. */
  uid?: number | undefined;
  /** The command that starts it. */
  launcher?: readonly string[];
}

/** The CLI as a child process; `interrupt` is Ctrl-C. */
function start(args: readonly string[], { socketPath, env = {}, input, uid, launcher = [] }: SvcOptions) {
  const socket = socketPath === undefined ? [] : ["--socket", socketPath];
  const drop =
    uid === undefined ? [] : ["setpriv", `--reuid=${uid}`, `--regid=${uid}`, "--clear-groups", "--"];
  const [command = "", ...rest] = [
    ...launcher,
    ...drop,
    process.execPath,
    main,
    "schedule",
    ...args,
    ...socket,
  ];
  const child = spawn(command, rest, {
    env: { PATH: process.env["PATH"] ?? "", HOME: "/nonexistent", ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  child.stdin.end(input ?? "");
  const output = { out: "", err: "" };
  child.stdout.on("data", (chunk) => (output.out += String(chunk)));
  child.stderr.on("data", (chunk) => (output.err += String(chunk)));
  const ended = once(child, "close").then(([code]): Run => ({ code: code as number | null, ...output }));
  return { ended, output: () => output, interrupt: () => child.kill("SIGINT") };
}

/** In this process, which takes a tenth of the CPU time: for commands without an interrupt, as the test's own user. */
async function svc({ socketPath }: Pick<TestDaemon, "socketPath">, ...args: string[]): Promise<Run> {
  const host = { uid: process.getuid?.() ?? 0, now: Date.now };
  const { exitCode, stdout, stderr } = await runSvc(["schedule", ...args, "--socket", socketPath], { host });
  return { code: exitCode, out: stdout, err: stderr };
}

/** @throws AssertionError with the command's output if it failed */
async function good(daemon: Pick<TestDaemon, "socketPath">, ...args: string[]): Promise<string> {
  const run = await svc(daemon, ...args);
  assert.equal(run.code, 0, run.err);
  return run.out;
}

test("the tour: add, list, run, runs", async (t) => {
  const daemon = await emptyDaemon();
  const added = await svc(daemon, "add", "*/5 * * * *", "shell", "--command", "echo hi");
  t.is(added.code, 0, added.err);
  t.regex(
    added.out,
    /^Added echo\. Next run (now|in [1-4]?m? ?\d*s?), at \d{4}-\d\d-\d\d \d\d:\d[05]:00 [+-]/,
  );
  t.regex(
    await good(daemon, "list"),
    /^ID +TRIGGER +ACTION +NEXT RUN +LAST RUN\necho +\*\/5 \* \* \* \* +run "echo hi" +(now|in \d[^\n]*)\n$/,
  );
  const run = await svc(daemon, "run", "echo");
  t.deepEqual([run.code, run.out], [0, "hi\n"], run.err);
  t.regex(run.err, /^Run \d+ succeeded: exit 0, took \d/);
  t.regex(
    await good(daemon, "runs", "echo"),
    /^RUN +STATUS +TRIGGER +STARTED +TOOK +RESULT\n +\d+ +SUCCEEDED +manual +(now|\d+s ago) +\d+\.\ds +exit 0\n$/,
  );
  t.is(await good(daemon, "runs", "echo", "--output"), "hi\n");
  t.regex(await good(daemon, "list"), /SUCCEEDED (now|\d+s ago)/);
});

test("a job is shown, changed, disabled, enabled, and removed", async (t) => {
  const daemon = await emptyDaemon();
  await good(
    daemon,
    "add",
    "daily@03:30",
    "http",
    "--id",
    "ping",
    "--url",
    "http://127.0.0.1:1/",
    "--header",
    "X-Key: geheim",
    "--timeout",
    "90s",
    "--catch-up",
    "--time-zone",
    "Europe/Berlin",
    "--comment",
    "a note",
  );
  const shown = await good(daemon, "show", "ping", "--utc");
  t.regex(
    shown,
    /Trigger: +daily@03:30 Europe\/Berlin[^]*Header: +X-Key: \*\*\*[^]*Next run: +\d{4}-\d\d-\d\d 0[12]:30:00Z \(in [^]*Timeout: +1m 30s[^]*Catch up:[^]*Comment: +a note/,
  );
  t.notRegex(shown, /geheim/);
  t.regex(
    await good(daemon, "edit", "ping", "--trigger", "hourly", "--header", "X-Other: 1", "--utc"),
    /^Changed ping/,
  );
  const job = JSON.parse(await good(daemon, "show", "ping", "--json")) as Record<string, unknown>;
  t.like(job, {
    id: "ping",
    trigger: "hourly",
    utc: true,
    time_zone: "",
    timeout: 90,
    comment: "a note",
    catch_up: "latest",
  });
  t.deepEqual((job["action"] as { headers: object }).headers, { "X-Key": "***", "X-Other": "***" });
  t.is(await good(daemon, "disable", "ping"), "Disabled ping\n");
  t.regex(await good(daemon, "ls"), /ping [^\n]* disabled/);
  t.regex(await good(daemon, "enable", "ping"), /^Enabled ping\. Next run in/);
  const taken = await svc(daemon, "add", "hourly", "node_reboot", "--id", "ping");
  t.is(taken.code, 5);
  t.regex(taken.err, /job "ping" already exists.*--replace/);
  t.is((await svc(daemon, "remove", "ping")).code, 2);
  t.is(await good(daemon, "remove", "ping", "--yes"), "Removed ping\n");
  const gone = await svc(daemon, "show", "ping");
  t.is(gone.code, 3);
  t.regex(gone.err, /"ping"; see the jobs with: svc schedule list/);
});

/** Creates five jobs without a name at once, then changes four fields of one at once; each must exist afterwards. */
async function writeConcurrently(
  t: ExecutionContext,
  run: (...args: string[]) => Promise<Run>,
): Promise<void> {
  const all = async (...lines: string[][]) => {
    const runs = await Promise.all(lines.map((args) => run(...args)));
    for (const { code, err } of runs) t.is(code, 0, err);
  };
  const texts = ["a", "b", "c", "d", "e"];
  await all(...texts.map((text) => ["add", "daily@04:00", "shell", "--command", `echo ${text}`]));
  const { schedules } = JSON.parse((await run("list", "--json")).out) as {
    schedules: { id: string; action: { command: string } }[];
  };
  t.deepEqual(
    schedules.map(({ id }) => id),
    ["echo", "echo-2", "echo-3", "echo-4", "echo-5"],
  );
  t.deepEqual(
    schedules.map(({ action }) => action.command).sort(),
    texts.map((text) => `echo ${text}`),
  );
  await all(
    ["edit", "echo", "--trigger", "hourly"],
    ["edit", "echo", "--comment", "a note"],
    ["edit", "echo", "--timeout", "90s"],
    ["disable", "echo"],
  );
  t.like(JSON.parse((await run("show", "echo", "--json")).out), {
    trigger: "hourly",
    comment: "a note",
    timeout: 90,
    enabled: false,
  });
}

test("concurrent commands do not undo each other", async (t) => {
  const daemon = await emptyDaemon();
  await writeConcurrently(t, (...args) => svc(daemon, ...args));
});

test("concurrent commands of separate processes without a daemon do not undo each other", async (t) => {
  await using home = await createHome();
  await home.begin("list").ended;
  await writeConcurrently(t, (...args) => home.begin(...args).ended);
});

test("the daemon validates the fields of a job and names them", async (t) => {
  const daemon = await emptyDaemon();
  for (const [args, said] of [
    [["add", "61 * * * *", "node_reboot"], /trigger: .*"61" must be 0 to 59/],
    [["add", "@fortnightly", "node_reboot"], /trigger/],
    [["add", "hourly", "node_reboot", "--time-zone", "Nowhere/Land"], /time_zone: "Nowhere\/Land"/],
    [["add", "hourly", "http", "--url", "ftp://x"], /^svc: url must be an http or https URL, not "ftp:/],
    [["add", "hourly", "node_reboot", "--id", "a b"], /id/],
  ] as const) {
    const run = await svc(daemon, ...args);
    t.is(run.code, 2, run.err);
    t.regex(run.err, said);
  }
});

test("next shows firings and marks a clock change", async (t) => {
  const daemon = await emptyDaemon();
  const march = await svc(daemon, "next", "30 2 * 3 *", "--time-zone", "Europe/Berlin", "-n", "31");
  t.is(march.code, 0, march.err);
  t.is(march.out.split("\n").length, 33);
  t.regex(march.out, /-03-\d\dT03:00:00\+02:00 +in [^\n]* the clock skips this time/);
  t.regex(march.err, /read in Europe\/Berlin/);
  const none = await svc(daemon, "next", "0 0 30 2 *");
  t.deepEqual([none.code, none.out], [2, ""]);
  t.regex(none.err, /"0 0 30 2 \*" never fires: there is no 30 February/);
});

for (const [title, command, code, out, err] of [
  ["a command's exit code", "echo out; echo err >&2; exit 3", 3, "out\nerr\n", /failed: exit 3/],
  ["a job that takes too long", "echo first; sleep 30", 124, "first\n", /timed out/],
  ["raw bytes", "printf '\\033[2J\\377'", 0, "\x1b[2J\ufffd", /succeeded/],
] as const) {
  test(`run ends with ${title}`, async (t) => {
    const daemon = await emptyDaemon();
    await good(daemon, "add", "hourly", "shell", "--id", "job", "--command", command, "--timeout", "2s");
    const run = await svc(daemon, "run", "job");
    t.deepEqual([run.code, run.out], [code, out], run.err);
    t.regex(run.err, err);
  });
}

test("run prints output as it arrives, and Ctrl-C cancels the run", async (t) => {
  const daemon = await emptyDaemon();
  await good(daemon, "add", "hourly", "shell", "--id", "job", "--command", "echo one; sleep 60; echo two");
  const running = start(["run", "job"], { socketPath: daemon.socketPath });
  await eventually(async () => assert.equal(running.output().out, "one\n"));
  running.interrupt();
  const run = await running.ended;
  t.deepEqual([run.code, run.out], [130, "one\n"]);
  t.regex(run.err, /Canceled run \d+ of job/);
  await eventually(async () => assert.match(await good(daemon, "runs", "job"), /CANCELED/), 15_000);
});

test("a run in progress is followed; leaving does not cancel it, cancel does", async (t) => {
  const daemon = await emptyDaemon();
  await good(daemon, "add", "hourly", "shell", "--id", "job", "--command", "sleep 60");
  t.regex(await good(daemon, "run", "job", "--detach"), /^Started run \d+ of job/);
  t.regex(await good(daemon, "run", "job", "--detach"), /^Run \d+ of job is already in progress/);
  const left = start(["run", "job"], { socketPath: daemon.socketPath });
  await eventually(async () => assert.match(left.output().err, /is already in progress/));
  left.interrupt();
  const { code, err } = await left.ended;
  t.is(code, 130);
  t.regex(err, /continues\. Cancel it: svc schedule cancel job/);
  const following = start(["run", "job"], { socketPath: daemon.socketPath });
  await eventually(async () => assert.match(following.output().err, /is already in progress/));
  t.regex(await good(daemon, "cancel", "job"), /^Run \d+ of job is CANCELED\n$/);
  t.is((await following.ended).code, 130);
  t.is((await svc(daemon, "cancel", "job")).code, 5);
});

test("runs --follow prints runs of every job as they start and end", async (t) => {
  const daemon = await emptyDaemon();
  await good(daemon, "add", "hourly", "shell", "--command", "echo hi");
  const following = start(["runs", "--follow"], { socketPath: daemon.socketPath });
  await eventually(async () => {
    await good(daemon, "run", "echo");
    assert.match(
      following.output().out,
      /echo {2}run \d+ {2}RUNNING\n[^]*echo {2}run \d+ {2}SUCCEEDED +took/,
    );
  }, 30_000);
  following.interrupt();
  t.is((await following.ended).code, 130);
});

test("an http job exits with 1 if it fails, and with 0 if it succeeds", async (t) => {
  const server = createServer((request, response) => {
    response.statusCode = request.headers["x-key"] === "right" ? 200 : 403;
    response.end("answer\n");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const daemon = await emptyDaemon();
  await good(daemon, "add", "hourly", "http", "--id", "ping", "--url", url, "--header", "X-Key: wrong");
  const failed = await svc(daemon, "run", "ping");
  t.is(failed.code, 1);
  t.regex(failed.err, /failed: HTTP 403/);
  await good(daemon, "edit", "ping", "--header", "x-key: right");
  const run = await svc(daemon, "run", "ping", "--json");
  t.is(run.code, 0, run.err);
  t.like(JSON.parse(run.out), { status: "SUCCEEDED", http_status: 200 });
});

test("an app's job runs in its directory, and app_restart restarts it", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const app = (...args: string[]) =>
    execute(process.execPath, [main, ...args, "--socket", daemon.socketPath]);
  await app("install", dir, "--accept-license");
  await good(
    daemon,
    "add",
    "hourly",
    "shell",
    "--app",
    "web",
    "--id",
    "where",
    "--command",
    'echo "$SVC_APP_ID"; test "$PWD" = "$SVC_APP_DIR" && pwd',
  );
  t.regex(await good(daemon, "run", "where"), /^web\n\/.*apps\/web\n$/);
  await good(daemon, "add", "hourly", "app_restart", "--app", "web");
  t.regex(await good(daemon, "list"), /^web-restart +hourly +restart web/m);
  await good(daemon, "run", "web-restart");
  t.regex(await app("ls"), /web [^\n]* RUNNING/);
  await app("app", "stop", "web");
});

function execute(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(command, args, { env: { PATH: process.env["PATH"] ?? "" } }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(`${command} ${args.join(" ")}: ${stderr}`, { cause: error }));
    });
  });
}

const pushed = (id: string) => ({ id, trigger: "daily@04:00", action: { type: "shell", command: "true" } });

test("a push as platform over REST and gRPC replaces its own jobs, is rejected as a whole on a collision, and edits print a warning", async (t) => {
  const daemon = await emptyDaemon();
  const url = `http://127.0.0.1:${daemon.port}/v1/schedules/managed/platform`;
  const curl = (...ids: string[]) =>
    execute("curl", [
      "--silent",
      "--show-error",
      "--write-out",
      "\n%{http_code}",
      "--request",
      "PUT",
      url,
      "--header",
      `Authorization: Bearer ${daemon.token}`,
      "--header",
      "Content-Type: application/json",
      "--data",
      JSON.stringify({ schedules: ids.map(pushed) }),
    ]);
  const grpc = daemon.tokenClient(ScheduleService, "grpc");
  const push = (...ids: string[]) =>
    grpc.replaceManagedSchedules({ managedBy: "platform", schedules: ids.map(pushed) });
  const ids = async () =>
    (JSON.parse(await good(daemon, "list", "--json")) as { schedules: { id: string }[] }).schedules.map(
      ({ id }) => id,
    );

  await good(daemon, "add", "hourly", "shell", "--id", "mine", "--command", "true");
  t.regex(await curl("one", "two"), /\n200$/);
  t.deepEqual(await ids(), ["mine", "one", "two"]);
  t.regex(
    await good(daemon, "list", "--managed-by", "platform"),
    /^ID[^\n]*MANAGED BY\none [^\n]*platform\ntwo [^\n]*platform\n$/,
  );

  t.regex(await curl("three", "mine"), /"reason":"job_owned"[^]*\n409$/);
  t.like(await errorOf(push("four", "mine")), { code: "FailedPrecondition", reason: "job_owned" });
  t.deepEqual(await ids(), ["mine", "one", "two"], "nothing of a rejected push is written");

  for (const [args, said] of [
    [["edit", "one", "--comment", "by hand"], /^Changed one/],
    [["disable", "one"], /^Disabled one\n$/],
    [["enable", "one"], /^Enabled one/],
    [["remove", "two", "--yes"], /^Removed two\n$/],
  ] as const) {
    const run = await svc(daemon, ...args);
    t.is(run.code, 0, run.err);
    t.regex(run.out, said);
    t.regex(run.err, /^warning: \w+ is managed by "platform": its next sync overwrites this change\n$/);
  }
  t.like(JSON.parse(await good(daemon, "show", "one", "--json")), {
    comment: "by hand",
    managed_by: "platform",
  });

  await push("two", "five");
  t.deepEqual(
    await ids(),
    ["five", "mine", "two"],
    "a push over gRPC replaces the platform's jobs and no others",
  );
});

test("a job's leftover processes keep running only if the job says so", async (t) => {
  const daemon = await emptyDaemon();
  const command = "sleep 300 > /dev/null 2>&1 & echo $!";
  const pidOf = (output: string) => Number(output.split("\n", 1)[0]);
  const isThere = async (pid: number) => {
    const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "State:\tZ");
    return !/^State:\tZ/m.test(status);
  };
  await good(daemon, "add", "hourly", "shell", "--id", "left", "--command", command);
  const said = await good(daemon, "run", "left");
  t.regex(said, /^\d+\n\[stopped 1 background process\]\n$/);
  t.false(await isThere(pidOf(said)));

  await good(daemon, "edit", "left", "--keep-children");
  t.like(JSON.parse(await good(daemon, "show", "left", "--json")), { action: { keep_children: true } });
  t.regex(await good(daemon, "show", "left"), /background processes keep running/);
  const kept = await good(daemon, "run", "left");
  t.regex(kept, /^\d+\n$/);
  const pid = pidOf(kept);
  t.true(await isThere(pid));
  process.kill(pid, "SIGKILL");

  await good(daemon, "edit", "left", "--no-keep-children");
  t.regex(await good(daemon, "run", "left"), /stopped 1 background process/);
});

const crontab = `# m h  dom mon dow   command
MAILTO=root
GREETING="it's me"
# greets
0 3 * * mon-fri echo "$GREETING" at \\%
@weekly cat%one%two
`;

test("import creates jobs that do what cron did", async (t) => {
  const daemon = await emptyDaemon();
  const run = (...args: string[]) =>
    start(["import", "-", ...args], { socketPath: daemon.socketPath, input: crontab }).ended;
  const dry = await run("--dry-run");
  t.is(dry.code, 0, dry.err);
  const never = await start(["import", "-"], {
    ...{ socketPath: daemon.socketPath, input: "0 3 * * * true\n0 3 31 4,6 * true\n" },
  }).ended;
  t.is(never.code, 2);
  t.regex(
    never.err,
    /^line 2: [^\n]*"0 3 31 4,6 \*" never fires: there is no 31 April\n[^]*nothing was written/m,
  );
  t.regex(await good(daemon, "list", "--json"), /"schedules": \[\]/);
  const first = await run("--disabled");
  t.is(first.code, 0, first.err);
  t.like(JSON.parse(await good(daemon, "show", "echo", "--json")), {
    trigger: "0 3 * * 1-5",
    comment: "greets",
    enabled: false,
  });
  t.is(await good(daemon, "run", "echo"), "it's me at %\n");
  t.is(await good(daemon, "run", "cat"), "one\ntwo\n");
  const again = await run();
  t.regex(
    again.err,
    /line 5: already exists as job echo\nline 6: already exists as job cat\nThere is nothing to import/,
  );
});

rootTest(`import --system runs each line as its user${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  const input = "0 1 * * * nobody id -u\n0 2 * * * root id -u\n";
  const imported = await start(["import", "-", "--system"], { socketPath: daemon.socketPath, input }).ended;
  t.is(imported.code, 0, imported.err);
  t.is(await good(daemon, "run", "id"), "65534\n");
  t.is(await good(daemon, "run", "id-2"), "0\n");
});

rootTest(
  `a regular user has jobs only on their own apps, invisible to others; root names them with --owner${needsRoot}`,
  async (t) => {
    const daemon = await emptyDaemon();
    const nobody = (...args: string[]) => start(args, { socketPath: daemon.socketPath, uid: 65534 }).ended;
    for (const [args, advice] of [
      [
        ["shell", "--command", "true"],
        /; name one of your apps \(see: svc ls\): svc schedule add hourly shell --command true .*--app ID; or run it with sudo\n$/,
      ],
      // An app of the user does not change that.
      [
        ["node_reboot"],
        /^svc: action: node_reboot .*backup_verify, shell; run it as root: sudo svc schedule add hourly node_reboot /,
      ],
    ] as const) {
      const refused = await nobody("add", "hourly", ...args);
      t.is(refused.code, 2);
      t.regex(refused.err, advice);
    }
    for (const dryRun of [[], ["--dry-run"]]) {
      const options = { socketPath: daemon.socketPath, uid: 65534, input: "0 1 * * * true\n" };
      const refused = await start(["import", "-", ...dryRun], options).ended;
      t.is(refused.code, 2);
      t.regex(
        refused.err,
        /^svc: app is required: .*svc schedule import - .*--app ID; or run it with sudo\n$/,
      );
    }
    const dir = join(daemon.dir, "package");
    await writePackage(dir, await freePort());
    await execute("setpriv", [
      "--reuid=65534",
      "--regid=65534",
      "--clear-groups",
      process.execPath,
      main,
      "install",
      dir,
      "--socket",
      daemon.socketPath,
    ]);
    const added = await nobody(
      "add",
      "hourly",
      "shell",
      "--app",
      "web",
      "--id",
      "mine",
      "--command",
      "id -u",
    );
    t.is(added.code, 0, added.err);
    t.is((await nobody("run", "mine")).out, "65534\n");
    await good(daemon, "add", "hourly", "shell", "--id", "mine", "--command", "id -u");
    t.is((await nobody("list")).out.split("\n").length, 3, "root's job with the same ID is not visible");
    t.regex(await good(daemon, "list"), /OWNER\nmine [^]*root\nmine [^\n]*nobody\n$/);
    t.is(await good(daemon, "run", "mine"), "0\n");
    t.is(await good(daemon, "run", "mine", "--owner", "nobody"), "65534\n");
    t.regex(await good(daemon, "disable", "mine", "--owner", "65534"), /Disabled mine/);
    t.regex((await nobody("list")).out, /disabled/);
    t.is((await nobody("show", "mine", "--owner", "0")).code, 4);
  },
);

/** A home directory for a regular user. */
async function createHome() {
  const dir = await mkdtemp(join(tmpdir(), "svc-home-"));
  await chmod(dir, 0o777);
  const env = {
    HOME: dir,
    XDG_STATE_HOME: join(dir, "state"),
    XDG_CONFIG_HOME: join(dir, "config"),
    XDG_RUNTIME_DIR: join(dir, "runtime"),
    XDG_CACHE_HOME: join(dir, "cache"),
  };
  return {
    begin: (...args: string[]) => start(args, { env, launcher: asUserWithoutSvc }),
    dir,
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true, maxRetries: 3 }),
  };
}

test("without a socket every command works in this process", async (t) => {
  await using home = await createHome();
  const run = (...args: string[]) => home.begin(...args).ended;
  const added = await run("add", "*/5 * * * *", "shell", "--command", "echo hi; exit 4");
  t.is(added.code, 0, added.err);
  const ran = await run("run", "echo");
  t.deepEqual([ran.code, ran.out], [4, "hi\n"], ran.err);
  t.regex((await run("list")).out, /^echo .*FAILED/m);
  t.regex((await run("runs", "echo")).out, /FAILED +manual .*exit 4/);
  t.regex((await run("next", "hourly")).out, /^TIME/);
  const detached = await run("run", "echo", "--detach");
  t.is(detached.code, 6);
  t.regex(detached.err, /needs a daemon that continues the run/);
  t.is((await run("rm", "echo", "--yes")).out, "Removed echo\n");
});

test("Ctrl-C in this process cancels the run and everything that it started", async (t) => {
  await using home = await createHome();
  const mark = join(home.dir, "mark");
  await writeFile(mark, "");
  await chmod(mark, 0o666);
  await home.begin("add", "hourly", "shell", "--id", "job", "--command", `echo on; sleep 3; echo x > ${mark}`)
    .ended;
  const running = home.begin("run", "job");
  await eventually(async () => assert.equal(running.output().out, "on\n"), 20_000);
  running.interrupt();
  t.is((await running.ended).code, 130);
  t.regex((await home.begin("runs", "job").ended).out, /CANCELED/);
});
