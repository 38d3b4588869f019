/** A remote daemon over a real ssh: `svc -H ssh://…` here, `svc dial-stdio` there. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import anyTest from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { runSvc, type SvcRun } from "../../cli/support/run-svc.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { needsSsh, sshUser, startSshServer, type SshServer } from "../../support/ssh-server.ts";
import { main } from "../../support/svc-main.ts";

const test = needsSsh === "" ? anyTest.serial : anyTest.serial.skip;

let daemon: TestDaemon;
let server: SshServer;
if (needsSsh === "") {
  anyTest.before(async () => {
    [daemon, server] = await Promise.all([startDaemon(), startSshServer()]);
    const dir = join(daemon.dir, "package");
    await writePackage(dir, await freePort());
    await daemon.client(AppService).installApp({ spec: dir });
    await daemon.client(AppService).startApp({ id: "web" });
  });
  anyTest.after.always(async () => {
    await daemon.client(AppService).stopApp({ id: "web" });
    await daemon[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });
}

const address = (user = "root"): string => `ssh://${user}@127.0.0.1:${server.port}${daemon.socketPath}`;
const svc = (
  args: readonly string[],
  options: { user?: string; env?: Record<string, string> } = {},
): Promise<SvcRun> =>
  runSvc(["-H", address(options.user), ...args], {
    host: { env: { SVC_SSH: server.ssh, ...options.env }, uid: process.getuid?.() ?? 0 },
  });

for (const { user, uid, root } of [
  { user: "root", uid: 0, root: true },
  { user: sshUser.name, uid: sshUser.uid, root: false },
]) {
  test(`the remote kernel identifies the caller as ${user}${needsSsh}`, async (t) => {
    // The local sudo has no effect there.
    const run = await svc(["status", "--json"], { user, env: { SUDO_UID: "1234", SUDO_USER: "mallory" } });
    t.is(run.exitCode, 0, run.stderr);
    const { caller } = JSON.parse(run.stdout) as {
      caller: { uid: number; root: boolean; sudo_uid?: number };
    };
    t.like(caller, { uid, root });
    t.notRegex(run.stdout, /1234|mallory/);
  });
}

test(`a user sees the same there as in a local session${needsSsh}`, async (t) => {
  const [roots, users] = [await svc(["ls"]), await svc(["ls"], { user: sshUser.name })];
  t.regex(roots.stdout, /^web +.*RUNNING/m);
  t.regex(users.stderr, /No apps are installed/);
  t.is((await svc(["app", "stop", "web"], { user: sshUser.name })).exitCode, 3);
});

test(`all calls of a command use one connection${needsSsh}`, async (t) => {
  const count = (): number => server.log().match(/Accepted publickey/g)?.length ?? 0;
  const before = count();
  const run = await svc(["app", "restart", "web"]);
  t.is(run.exitCode, 0, run.stderr);
  t.regex(run.stdout, /RUNNING/);
  t.is(count() - before, 1);
});

test(`files survive a round trip unchanged${needsSsh}`, async (t) => {
  const [here, back] = [join(daemon.dir, "here"), join(daemon.dir, "back")];
  const bytes = randomBytes(9 * 1024 * 1024);
  await writeFile(here, bytes);
  const put = await svc(["file", "put", here, "web:data/blob"]);
  t.is(put.exitCode, 0, put.stderr);
  const got = await svc(["file", "get", "web:data/blob", back]);
  t.is(got.exitCode, 0, got.stderr);
  // A comparison with readable differences would take a minute for this many bytes on a busy host.
  t.true(bytes.equals(await readFile(back)));
});

function spawnSvc(args: readonly string[]) {
  const child = spawn(process.execPath, [main, "-H", address(), ...args], {
    env: { ...process.env, SVC_SSH: server.ssh, HOME: daemon.dir },
  });
  let text = "";
  for (const output of [child.stdout, child.stderr])
    output.on("data", (bytes: Buffer) => (text += String(bytes)));
  return { child, shown: () => text, ended: once(child, "close") as Promise<[number | null]> };
}

test(`a stream continues until it is closed${needsSsh}`, async (t) => {
  const startsIn = (text: string): number => text.match(/listening on/g)?.length ?? 0;
  const before = startsIn((await svc(["app", "logs", "web"])).stdout);
  const { child, shown, ended } = spawnSvc(["app", "logs", "-f", "web"]);
  // Earlier log lines come first: following starts after all of them have arrived.
  await eventually(() => assert.equal(startsIn(shown()), before), 60_000);
  await daemon.client(AppService).restartApp({ id: "web" });
  await eventually(() => assert.equal(startsIn(shown()), before + 1), 60_000);
  child.kill("SIGINT");
  await ended;
  t.pass();
});

test(`a console works there${needsSsh}`, async (t) => {
  const { child, shown, ended } = spawnSvc(["app", "shell", "web"]);
  child.stdin.end("echo one; echo two >&2; exit 7\n");
  const [code] = await ended;
  t.is(code, 7, shown());
  t.regex(shown(), /one/);
  t.regex(shown(), /two/);
});

/** Processes on the remote side. */
function dials(): string[] {
  return readdirSync("/proc").filter((pid) => {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      return command.includes("dial-stdio") && command.includes(daemon.socketPath);
    } catch {
      return false;
    }
  });
}

test(`no remote process is left when a command is killed${needsSsh}`, async (t) => {
  const { child, shown, ended } = spawnSvc(["app", "logs", "-f", "web"]);
  await eventually(() => assert.match(shown(), /listening on/), 60_000);
  t.true(dials().length > 0);
  child.kill("SIGKILL");
  await ended;
  await eventually(() => assert.deepEqual(dials(), []), 60_000);
  t.pass();
});

/** The sockets of a process that others could connect or send to, from the kernel's tables on its host. */
function listenersOf(pid: string): string[] {
  const inodes = new Set(
    readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      const [, inode] = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? [];
      return inode === undefined ? [] : [inode];
    }),
  );
  const rows = (table: string): string[][] =>
    readFileSync(`/proc/${pid}/net/${table}`, "utf8")
      .trim()
      .split("\n")
      .slice(1)
      .map((line) => line.trim().split(/\s+/));
  const [listening, accepts] = ["0A", 0x1_0000];
  return [
    ...["tcp", "tcp6"].flatMap((table) =>
      rows(table)
        .filter(([, , , state, , , , , , inode = ""]) => state === listening && inodes.has(inode))
        .map(([, at]) => `${table} ${at}`),
    ),
    ...["udp", "udp6"].flatMap((table) =>
      rows(table)
        .filter(([, , , , , , , , , inode = ""]) => inodes.has(inode))
        .map(([, at]) => `${table} ${at}`),
    ),
    ...rows("unix")
      .filter(([, , , flags = "0", , , inode = ""]) => {
        return (Number.parseInt(flags, 16) & accepts) !== 0 && inodes.has(inode);
      })
      .map((row) => `unix ${row[7] ?? ""}`),
  ];
}

test(`no port is opened, there or here, for a call${needsSsh}`, async (t) => {
  const { child, shown, ended } = spawnSvc(["app", "logs", "-f", "web"]);
  await eventually(() => assert.match(shown(), /listening on/), 60_000);
  const there = dials();
  t.true(there.length > 0);
  const ssh = readdirSync("/proc").filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ")[1] === String(child.pid);
    } catch {
      return false;
    }
  });
  t.true(ssh.length > 0);
  for (const pid of [...there, ...ssh, String(child.pid)]) t.deepEqual(listenersOf(pid), [], pid);
  // Only processes with readable tables are checked.
  t.true(listenersOf(String(daemon.pid)).some((listener) => listener.startsWith("unix ")));
  child.kill("SIGKILL");
  await ended;
});

const noisy = "echo 'Welcome \x1b]0;owned\x07 to the far side'";
for (const { title, prepare, args = [], env = {}, exitCode = 6, says } of [
  {
    title: "svc is not installed",
    prepare: () => server.install("svc", "exec nosuchprogram"),
    says: /^svc: svc was not found on 127\.0\.0\.1: install it there, in the PATH .*nosuchprogram/,
  },
  {
    title: "a start-up file prints something",
    prepare: () => server.install("svc", `${noisy}; exec cat > /dev/null`),
    says: /^svc: the response from 127\.0\.0\.1 is not from svc: check whether a shell start-up file there prints something/,
  },
  {
    title: "the remote side prints terminal escape sequences",
    prepare: () => server.install("svc", `${noisy} >&2; exit 1`),
    says: /^svc: on 127\.0\.0\.1: Welcome \\x1b\]0;owned\\x07 to the far side$/m,
  },
  {
    title: "ssh is denied",
    env: {
      SVC_SSH:
        "ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null",
    },
    says: /^svc: ssh cannot reach 127\.0\.0\.1: .*Host key verification failed/,
  },
  {
    title: "ssh is missing",
    env: { SVC_SSH: "/nonexistent/ssh" },
    says: /^svc: \/nonexistent\/ssh cannot be run to reach 127\.0\.0\.1: install an ssh client/,
  },
] as readonly {
  title: string;
  prepare?: () => Promise<void>;
  args?: string[];
  env?: Record<string, string>;
  exitCode?: number;
  says: RegExp;
}[]) {
  test(`if ${title}, the error explains what to do${needsSsh}`, async (t) => {
    const working = `exec '${process.execPath}' '${main}' "$@"`;
    await prepare?.();
    const run = await svc(["ls", ...args], { env });
    await server.install("svc", working);
    t.is(run.exitCode, exitCode, run.stderr);
    t.regex(run.stderr, says);
    t.is(run.stdout, "");
  });
}

test(`if no daemon runs, the error explains it${needsSsh}`, async (t) => {
  const run = await runSvc(["-H", `ssh://root@127.0.0.1:${server.port}/nonexistent.sock`, "ls"], {
    host: { env: { SVC_SSH: server.ssh } },
  });
  t.is(run.exitCode, 6);
  t.regex(
    run.stderr,
    /^svc: on 127\.0\.0\.1: there is no socket \/nonexistent\.sock; start a daemon: svc daemon/,
  );
});

test(`a local path is not taken for a remote one${needsSsh}`, async (t) => {
  const run = await svc(["install", "./web"]);
  t.is(run.exitCode, 2);
  t.regex(
    run.stderr,
    /\.\/web is a path on this machine, but ssh:.* reads its own files: use an absolute path on ssh:/,
  );
});
