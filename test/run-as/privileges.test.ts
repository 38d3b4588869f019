/** Users of the host, and the privileges of work as a user. Nothing runs if they cannot be dropped. */
import { execFile, execFileSync, spawn } from "node:child_process";
import { chmod, mkdtemp, open, rm, writeFile, readFile } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { createUsers, parsePasswdLine } from "../../src/run-as/user.ts";
import { assertFails, createWorld, rootTest, someUid } from "./support/world.ts";

// The privileges of work as a user. Nothing runs if they cannot be dropped.

const act = fileURLToPath(new URL("support/act.ts", import.meta.url));
const run = promisify(execFile);

interface Acted {
  stdout?: string;
  exitCode?: number;
  code?: string;
  message?: string;
}

function actArguments(request: object): string[] {
  return [process.execPath, act, JSON.stringify(request)];
}

async function directory(t: ExecutionContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-privileges-"));
  await chmod(dir, 0o755);
  t.teardown(() => rm(dir, { recursive: true }));
  return dir;
}

/** Runs act.ts with another /etc/passwd and /etc/group; `undefined` if mounts are not allowed. */
async function actAmong(
  t: ExecutionContext,
  files: { passwd: string; group: string },
  request: object,
): Promise<Acted | undefined> {
  const dir = await directory(t);
  for (const [name, content] of Object.entries(files)) {
    await writeFile(join(dir, name), content);
    await chmod(join(dir, name), 0o644);
  }
  const script =
    'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group || exit 99; exec "$@"';
  try {
    const argv = ["--mount", "sh", "-c", script, dir, ...actArguments(request)];
    return JSON.parse((await run("unshare", argv)).stdout) as Acted;
  } catch (error) {
    t.log(`skipped: no mount namespace here (${String(error)})`);
    return undefined;
  }
}

const passwd = "root:x:0:0::/root:/bin/sh\nann:x:7001:7001::/tmp:/bin/sh\n";
const group = "root:x:0:\nann:x:7001:\none:x:7002:ann\ntwo:x:7003:root,ann\n";

for (const uid of [1, 5, 65534]) {
  rootTest(`uid ${uid} works with its own IDs, all groups, no capabilities, no_new_privs`, async (t) => {
    await using userHelpers = createUserHelpers();
    const user = await userHelpers.as(uid);
    const { stdout } = await user.runCommand(["cat", "/proc/self/status"]);
    const field = (name: string) => new RegExp(`^${name}:\\s*(.*)$`, "m").exec(stdout)?.[1]?.trim();
    const groups = execFileSync("id", ["-G", user.user.name], { encoding: "utf8" }).trim();
    t.is(field("Uid"), Array(4).fill(uid).join("\t"));
    t.is(field("Gid"), Array(4).fill(user.user.gid).join("\t"));
    t.deepEqual(new Set(field("Groups")?.split(" ")), new Set(groups.split(" ")));
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) t.regex(field(set) ?? "", /^0+$/);
    t.is(field("NoNewPrivs"), "1");
  });
}

rootTest("a user has the groups of /etc/group", async (t) => {
  const acted = await actAmong(t, { passwd, group }, { uid: 7001, argv: ["id", "-G"] });
  if (acted) t.is(acted.stdout?.trim(), "7001 7002 7003", JSON.stringify(acted));
  else t.pass();
});

rootTest("work as a deleted user is rejected", async (t) => {
  const files = { passwd: "root:x:0:0::/root:/bin/sh\n", group };
  const acted = await actAmong(t, files, { uid: 7001, argv: ["id"] });
  if (acted) t.like(acted, { code: "failed_precondition" });
  else t.pass();
});

rootTest("work as a user deleted between lookup and launch is rejected", async (t) => {
  await using userHelpers = createUserHelpers({
    users: {
      byUid: async (uid) => Promise.resolve({ uid, gid: 7001, name: "ann", home: "/", shell: "/bin/sh" }),
      byName: async () => Promise.reject(new Error("not asked")),
      isUnused: () => Promise.resolve(false),
      groupsOf: async () => Promise.resolve([7001]),
      forget: () => undefined,
    },
  });
  const ann = await userHelpers.as(3_999_999_999);
  await assertFails(t, ann.runCommand(["id"]), "failed_precondition", /cannot act as user "ann"/);
});

rootTest("programs and jobs of a user leave others most of the kernel's processes", async (t) => {
  const kernelLimits = await Promise.all(
    ["threads-max", "pid_max"].map(async (name) =>
      Number(await readFile(`/proc/sys/kernel/${name}`, "utf8")),
    ),
  );
  const command = "grep '^Max processes' /proc/self/limits";
  await using userHelpers = createUserHelpers();
  const { stdout } = await (await userHelpers.as(5)).runCommand(["sh", "-c", command]);
  let ofJob = "";
  const output = (bytes: Buffer): void => void (ofJob += bytes.toString());
  const { signal } = new AbortController();
  await userHelpers.runJob(5, { command, cwd: "/", env: {}, output, keepChildren: false, signal });
  for (const text of [stdout, ofJob]) {
    const [, soft, hard] = /^Max processes +(\d+) +(\d+)/.exec(text) ?? [];
    t.true(Number(soft) <= Math.min(...kernelLimits, 4 * 65_536) / 4 + 1_024, text);
    t.is(hard, soft);
  }
});

rootTest("without setpriv nothing runs", async (t) => {
  await using userHelpers = createUserHelpers({ setprivDirs: ["/nonexistent"] });
  const user = await userHelpers.as(5);
  await assertFails(t, user.runCommand(["id"]), "failed_precondition", /setpriv is not installed/);
});

const asGames = (options: string) =>
  `while [ "$1" != -- ]; do shift; done; exec setpriv --reuid=5 --regid=60 ${options} "$@"`;

for (const [what, script] of [
  ["does not drop anything", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'],
  ["gives root's group", asGames("--groups=0,60 --no-new-privs --inh-caps=-all --bounding-set=-all")],
  ["leaves the bounding set", asGames("--init-groups --no-new-privs")],
  ["leaves new privileges open", asGames("--init-groups --inh-caps=-all --bounding-set=-all")],
  ["fails", "exit 1"],
] as const) {
  rootTest(`when setpriv ${what}, nothing runs`, async (t) => {
    const dir = await directory(t);
    await writeFile(join(dir, "setpriv"), `#!/bin/sh\n${script}\n`);
    await chmod(join(dir, "setpriv"), 0o755);
    await using userHelpers = createUserHelpers({ setprivDirs: [dir] });
    const user = await userHelpers.as(5);
    await assertFails(t, user.runCommand(["id"]), "failed_precondition", /cannot act as user "games"/);
  });
}

rootTest("a helper that claims to be another user is not believed", async (t) => {
  const dir = await directory(t);
  await writeFile(
    join(dir, "setpriv"),
    '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n',
  );
  await chmod(join(dir, "setpriv"), 0o755);
  const helperPath = join(dir, "helper.mjs");
  await writeFile(
    helperPath,
    'const j = Buffer.from(`{"hello":1}`), p = Buffer.alloc(8); p.writeUInt32BE(j.length); process.stdout.write(Buffer.concat([p, j])); process.stdin.resume();',
  );
  await using userHelpers = createUserHelpers({ setprivDirs: [dir], helperPath });
  const user = await userHelpers.as(5);
  await assertFails(
    t,
    user.runCommand(["id"], { timeoutMs: 5000 }),
    "failed_precondition",
    /wrong identity: Uid is 0 0 0 0/,
  );
});

rootTest("a daemon that is not root works only as its own user", async (t) => {
  const as = ["--reuid=5", "--regid=60", "--clear-groups", "--"];
  const own = await run("setpriv", [...as, ...actArguments({ uid: 5, argv: ["id", "-u"] })]);
  t.deepEqual(JSON.parse(own.stdout), { stdout: "5\n", exitCode: 0 });
  for (const uid of [0, 1]) {
    const other = await run("setpriv", [...as, ...actArguments({ uid, argv: ["id", "-u"] })]);
    t.like(JSON.parse(other.stdout), { code: "permission_denied" });
  }
});

test("commands get a clean environment and no inherited descriptors", async (t) => {
  const dir = await directory(t);
  await using canary = await open(join(dir, "canary"), "w");
  const argv = ["sh", "-c", "env; ls -l /proc/self/fd /proc/$PPID/fd"];
  const [command = "", ...args] = actArguments({ uid: someUid, argv });
  const stdio = Array.from({ length: 260 }, (_, fd) =>
    fd < 3 ? (["ignore", "pipe", "inherit"] as const)[fd] : fd === 3 || fd > 257 ? canary.fd : "ignore",
  );
  const child = spawn(command, args, { stdio, env: { ...process.env, CANARY: "canary-value" } });
  const { stdout } = JSON.parse(Buffer.concat(await child.stdout!.toArray()).toString()) as Acted;
  t.notRegex(stdout ?? "", /canary/i);
  t.regex(stdout ?? "", /^HOME=/m);
  const names = [...(stdout ?? "").matchAll(/^([A-Z_]+)=/gm)].map(([, name]) => name).sort();
  const expected = ["HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "SVC_RUN_ID", "TMPDIR", "USER"];
  t.deepEqual(
    names.filter((name) => !["OLDPWD", "SHLVL", "_"].includes(name ?? "")),
    expected,
  );
});

test("a caller's environment is not passed to anything that runs as root", async (t) => {
  await using world = await createWorld();
  const { stdout } = await world.user.runCommand(
    ["sh", "-c", "cat /proc/$PPID/environ; echo; echo $LD_NOTE"],
    {
      env: { LD_NOTE: "theirs" },
    },
  );
  const [helper, own] = stdout.split("\n");
  t.notRegex(helper ?? "", /LD_NOTE/);
  t.is(own, "theirs");
});

test("no signal opens a helper to debuggers", async (t) => {
  await using world = await createWorld();
  const { stdout } = await world.user.runCommand(["sh", "-c", "grep SigCgt: /proc/$PPID/status"]);
  const caught = BigInt(`0x${stdout.split("\t")[1]?.trim()}`);
  t.not(caught & (1n << BigInt(constants.signals.SIGTERM - 1)), 0n);
  t.is(caught & (1n << BigInt(constants.signals.SIGUSR1 - 1)), 0n);
});

test("the memory limit of a helper does not apply to programs that it starts", async (t) => {
  await using world = await createWorld();
  const script = 'cat /proc/$PPID/environ; echo; echo "own $NODE_OPTIONS"';
  const { stdout } = await world.user.runCommand(["sh", "-c", script]);
  const [helper, own] = stdout.split("\n");
  t.regex(helper ?? "", /\0NODE_OPTIONS=--max-semi-space-size=4 --disable-sigusr1\0/);
  t.is(own, "own ");
});

async function makeDir(t: ExecutionContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-users-"));
  t.teardown(() => rm(dir, { recursive: true }));
  return dir;
}

for (const line of [
  "",
  "# x",
  "+::::::",
  "a:x:-1:0::/:/bin/sh",
  "a:x:4294967295:0::/:/bin/sh",
  "a:x:0:0::/",
]) {
  test(`passwd line ${JSON.stringify(line)} is not a user`, (t) => t.is(parsePasswdLine(line), undefined));
}

test("a user is found by uid and by name, with all groups", async (t) => {
  const users = createUsers();
  const daemon = await users.byUid(1);
  t.is(daemon.name, "daemon");
  t.deepEqual(await users.byName("daemon"), daemon);
  const expected = execFileSync("id", ["-G", "daemon"], { encoding: "utf8" }).trim();
  t.is((await users.groupsOf(daemon)).join(" "), expected);
});

test("a uid without a passwd entry is rejected", async (t) => {
  await assertFails(t, createUsers().byUid(3_999_999_999), "failed_precondition", /no passwd entry/);
});

for (const uid of [-1, 4294967295, Number.NaN, 1.5]) {
  test(`the number ${uid} is not a uid`, async (t) => {
    await assertFails(t, createUsers().byUid(uid), "invalid_argument", /must be a number/);
  });
}

for (const name of ["", "-x", "a:b", "a\nb", "a\0b", "x".repeat(300)]) {
  test(`${JSON.stringify(name.slice(0, 10))} is not a user name`, async (t) => {
    await assertFails(t, createUsers().byName(name), "invalid_argument", /is not a valid user name/);
  });
}

test("digits are not treated as the name of the user with that uid", async (t) => {
  await assertFails(t, createUsers().byName("0"), "failed_precondition");
});

test("root is found without a process, and a program is started at its path", async (t) => {
  const [empty, dir] = [await makeDir(t), await makeDir(t)];
  const passwdFile = join(dir, "passwd");
  await writeFile(passwdFile, "root:x:0:0::/root:/bin/sh\n");
  const started = join(dir, "started");
  const line = "ann:x:1234:1235::/home/ann:/bin/sh";
  await writeFile(join(dir, "getent"), `#!/bin/sh\necho "$2" >> ${started}\necho ${line}\n`, { mode: 0o755 });
  const users = createUsers({ searchPath: `${empty}:${dir}:/usr/bin:/bin`, passwdFile });
  t.is((await users.byUid(0)).name, "root");
  await t.throwsAsync(readFile(started), { code: "ENOENT" });
  t.is((await users.byUid(1234)).name, "ann");
  t.is(await readFile(started, "utf8"), "1234\n");
});

test("root is looked up if the passwd file lacks it", async (t) => {
  const dir = await makeDir(t);
  await writeFile(join(dir, "getent"), "#!/bin/sh\necho admin:x:0:0::/root:/bin/sh\n", { mode: 0o755 });
  const users = createUsers({ searchPath: `${dir}:/usr/bin:/bin`, passwdFile: join(dir, "passwd") });
  t.is((await users.byUid(0)).name, "admin");
});

test("without getent the passwd file is read; results are cached for a while", async (t) => {
  const dir = await makeDir(t);
  const passwdFile = join(dir, "passwd");
  await writeFile(passwdFile, "root:x:0:0::/root:/bin/sh\nann:x:1234:1235:Ann,,,:/home/ann:\n");
  let now = 0;
  const users = createUsers({ searchPath: dir, passwdFile, ttlMs: 1000, now: () => now });
  const ann = { name: "ann", uid: 1234, gid: 1235, home: "/home/ann", shell: "/bin/sh" };
  t.deepEqual(await users.byUid(1234), ann);
  await writeFile(passwdFile, "root:x:0:0::/root:/bin/sh\n");
  now = 999;
  t.deepEqual(await users.byUid(1234), ann);
  now = 1001;
  await assertFails(t, users.byUid(1234), "failed_precondition");
  await assertFails(t, users.byName("ann"), "failed_precondition");
});
