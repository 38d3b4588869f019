/** `svc docker` with an in-memory host: requests, output and exit codes. */
import test from "ava";
import { PassThrough } from "node:stream";
import { checkRun, type CommandCase } from "./support/command-case.ts";
import { startFakeDaemon } from "./support/fake-daemon.ts";
import { runSvc, type SvcOptions } from "./support/run-svc.ts";

async function svc(args: readonly string[], options: SvcOptions = {}) {
  await using daemon = await startFakeDaemon();
  return await runSvc(["docker", ...args, "--socket", daemon.socketPath], options);
}

const cases: CommandCase[] = [
  {
    args: ["ps"],
    stdout:
      /^ID +NAME +IMAGE +STATUS +PORTS +APP +PROJECT\nb{12} +svc-hello-1 +d{12} +Up 2 hours +hello\na{12} +web +demo:1 +Up 2 hours +127\.0\.0\.1:8080→80\/tcp, 53\/udp +shop\n$/,
  },
  { args: ["ps", "-a"], stdout: /\nc{12} +ended \\x1b\[2J +demo:1 +Exited \(0\) 1 day ago\n/ },
  { args: ["ps", "--size"], stdout: /PROJECT +SIZE\n[^\n]+2\.0 KiB\n/ },
  { args: ["stats"], stdout: /^NAME +CPU +MEMORY +LIMIT[^\n]*\nweb +12\.3% +1\.0 KiB +- +0 B \/ 512 B/ },
  {
    args: ["stats", "none"],
    stdout: /^$/,
    stderr: /No such container runs, or this host does not measure containers/,
  },
  {
    args: ["images"],
    stdout:
      /^TAGS +ID +CREATED +SIZE +CONTAINERS +PROTECTED\ndemo:1 +e{12} +1d ago +1\.0 KiB +2 +the installed app "hello" runs it\n<none> +f{12}/,
  },
  { args: ["volumes"], stdout: /^NAME +DRIVER +CREATED +CONTAINERS[^\n]*\ndata +local +1d ago +1\n$/ },
  { args: ["networks"], stdout: /\nbridge +1{12} +bridge +10\.0\.0\.0\/8\n$/ },
  { args: ["df"], stdout: /^WHAT +COUNT +SIZE\nimages +2 +3\.0 MiB\n[^]*build cache +0 +0 B\n$/ },
  { args: ["stop", "web"], stdout: /^Stopped web\n$/ },
  { args: ["unpause", "web"], stdout: /^Nothing to do for web: the container is running\n$/ },
  {
    args: ["stop", "nope", "web"],
    exitCode: 3,
    stdout: /^Stopped web\n$/,
    stderr: /^svc: no container "nope"; see them with: svc docker ps --all\n$/,
  },
  { args: ["start", "svc-hello-1"], exitCode: 5, stderr: /belongs to the app "hello"/ },
  {
    args: ["restart", "--project", "shop"],
    stdout: /^Restarted web\nNothing to do for ended \\x1b\[2J: the container is exited\n$/,
  },
  { args: ["stop", "-p", "none"], exitCode: 3, stderr: /no compose project "none"; see them with/ },
  { args: ["stop"], exitCode: 2, stderr: /name containers, or pass --project/ },
  { args: ["stop", "web", "--project", "shop"], exitCode: 2, stderr: /name containers, or pass --project/ },
  { args: ["rm", "web"], exitCode: 2, stderr: /; pass --yes to confirm/ },
  { args: ["rm", "nope"], exitCode: 3, stderr: /no container "nope"/ },
  { args: ["rm", "web", "--yes"], stdout: /^Removed web\n$/ },
  {
    args: ["inspect", "web"],
    stdout: /^Name: +web\n[^]*Policy: +always[^]*Mount: +\/data from volume data \(read only\)/,
  },
  { args: ["inspect", "nope"], exitCode: 3, stderr: /svc docker ps --all/ },
  { args: ["logs", "web", "--tail", "5"], stdout: /^5 of web \x1b\]0;title\x07\n$/ },
  { args: ["logs", "web", "-t"], stdout: /^2026-01-01T00:00:00Z 100 of web/ },
  { args: ["logs", "web", "-n", "3"], stderr: /its last 8 MiB/ },
  { args: ["logs", "web", "-n", "100001"], exitCode: 2, stderr: /must be 0 to 100000/ },
  { args: ["logs", "web", "-f"], stdout: /^first of web\nsecond\n$/ },
  {
    args: ["events"],
    stdout:
      /^2026-01-01 0\d:00:00 [+-]\d\d:\d\d {2}container start {2}web\n[^\n]+container die {2}x \\x1b\[2J \(app hello\)\n$/,
  },
  { args: ["events", "--type", "image", "--type", "volume"], stdout: / {2}image start {2}web\n/ },
  {
    args: ["prune", "images", "--dry-run"],
    stdout:
      /^WOULD BE REMOVED +SIZE\nf{12} +2\.0 KiB\n\nSTAYS +WHY\ndemo:1 +the installed app "hello" runs it\n$/,
    stderr: /^Would remove 1 item and free 2\.0 KiB\.\n$/,
  },
  {
    args: ["prune", "images", "--all", "-y"],
    stdout: /\nold:1 /,
    stderr: /^Removed 1 item and freed 2\.0 KiB/,
  },
  { args: ["prune", "build-cache", "-y"], stderr: /^There is nothing to remove\.\n$/ },
  { args: ["prune", "volumes"], exitCode: 2, stderr: /check with --dry-run, then pass --yes/ },
  { args: ["prune", "volumes", "--all", "--dangling-only"], exitCode: 2, stderr: /cannot be used with/ },
  {
    args: ["prune", "networks"],
    exitCode: 2,
    stderr: /^svc: unknown kind "networks"; choose one of: images, volumes, build-cache\n/,
  },
];

for (const expected of cases) {
  const { args } = expected;
  test(`svc docker ${args.join(" ")}`, async (t) => {
    const run = await svc(args);
    checkRun(t, run, expected);
  });
}

test("--json prints the REST response", async (t) => {
  const json = async (...args: string[]): Promise<unknown> =>
    JSON.parse((await svc([...args, "--json"])).stdout) as unknown;
  t.like(await json("ps"), { containers: { 0: { appId: "hello" }, 1: { composeProject: "shop" } } });
  t.like(await json("images"), { images: { 0: { svcProtected: true } } });
  t.like(await json("prune", "images", "--dry-run"), { dryRun: true, freedBytes: 2048 });
  t.like(await json("stop", "web"), { controlled: { 0: { name: "web" } }, skipped: [] });
  t.like(await json("inspect", "web"), { restartPolicy: "always", engine: { Id: "x" } });
  t.like(await json("df"), { buildCache: { count: 0, sizeBytes: 0 } });
  const lines = (await svc(["events", "--json"])).stdout.trimEnd().split("\n");
  t.like(JSON.parse(lines[1] ?? ""), { action: "die", appId: "hello" });
  const refused = await svc(["stop", "svc-hello-1", "--json"]);
  t.like(JSON.parse(refused.stderr), { reason: "owned_by_app", owned_by_app: { app_id: "hello" } });
});

for (const [answer, exitCode, stderr] of [
  ["y", 0, /Remove these\? \[y\/N\] Removed 1 item/],
  ["n", 5, /Nothing was changed\./],
] as const) {
  test(`a prune on a terminal shows its plan and accepts the answer "${answer}"`, async (t) => {
    const stdin = Object.assign(new PassThrough(), { isTTY: true });
    stdin.write(`${answer}\n`);
    const run = await svc(["prune", "images"], { terminal: true, host: { stdin } });
    t.is(run.exitCode, exitCode, run.stderr);
    t.regex(run.stdout, /REMOVED/);
    t.regex(run.stderr, /^Would remove 1 item/);
    t.regex(run.stderr, stderr);
  });
}

test("a log cannot move the cursor of a terminal", async (t) => {
  const { stdout } = await svc(["logs", "web"], { terminal: true });
  t.is(stdout, "100 of web \\x1b]0;title\\x07\n");
});

test("live statistics continue until Ctrl-C", async (t) => {
  const interrupted = new AbortController();
  setTimeout(() => interrupted.abort(), 800);
  const run = await svc(["stats", "--watch"], { host: { interrupted: interrupted.signal } });
  t.is(run.exitCode, 130, run.stderr);
  t.true(run.stdout.split("NAME").length > 2);
});
