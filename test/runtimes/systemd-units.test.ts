/** Units of packages: the directives that they may contain, and their journal. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { accessSync, existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import fc from "fast-check";
import type { Manifest } from "../../src/packages/manifest/manifest.ts";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { AppUnits } from "../../src/runtimes/systemd/app-unit.ts";
import { journalLines, parseExit, readJournal } from "../../src/runtimes/systemd/journal.ts";
import { userDirectives, rejectionOf } from "../../src/runtimes/systemd/unit-directives.ts";
import { parseUnit } from "../../src/runtimes/systemd/unit-file.ts";
import { unitStatus } from "../../src/runtimes/systemd/unit-status.ts";
import { environmentText, quoted, unitText } from "../../src/runtimes/systemd/unit-text.ts";
import { parseManifest } from "../packages/support/manifests.ts";
import { eventually } from "../support/eventually.ts";
import { signal } from "../support/processes.ts";

// The directives that a package's unit may contain: a closed list, whatever else systemd supports.

const run = promisify(execFile);
const systemd = "/lib/systemd/systemd";
const systemdTest = isThere(systemd) ? test : test.skip;

function isThere(path: string): boolean {
  try {
    accessSync(path);
    return true;
  } catch {
    return false;
  }
}

function entry(section: string, key: string, value: string) {
  return { section, key, value, line: 1 };
}

systemdTest(
  `every directive that this systemd supports and the list does not contain is rejected`,
  async (t) => {
    const { stdout } = await run(systemd, ["--dump-configuration-items"], { maxBuffer: 2 ** 24 });
    let section = "";
    const known: [section: string, key: string][] = [];
    for (const line of stdout.split("\n")) {
      section = /^\[(.+)\]$/.exec(line)?.[1] ?? section;
      const key = /^(\w+)=/.exec(line)?.[1];
      if (key !== undefined) known.push([section, key]);
    }
    t.true(known.length > 500, String(known.length));
    const harmless = ["yes", "1", "text", "/usr/bin/true", "exec", "0755"];
    const accepted = known.filter(([in_, key]) =>
      harmless.some((value) => rejectionOf(entry(in_, key, value)) === undefined),
    );
    const names = accepted.map(([in_, key]) => `${in_}.${key}`);
    t.deepEqual(
      names.filter((name) => !userDirectives.has(name)),
      [],
    );
    // Directives that would expose the host, by name, so that the list above cannot grow unnoticed.
    for (const key of [
      ...["User", "Group", "SupplementaryGroups", "AmbientCapabilities", "CapabilityBoundingSet", "PAMName"],
      ...["RootDirectory", "RootImage", "BindPaths", "ReadWritePaths", "EnvironmentFile", "LoadCredential"],
      ...["RuntimeDirectory", "StateDirectory", "DeviceAllow", "Slice", "Delegate", "PIDFile", "Sockets"],
      ...["NetworkNamespacePath", "StandardOutput", "StandardInput", "TTYPath", "BPFProgram", "LimitNPROC"],
      ...["FailureAction", "RebootArgument", "PermissionsStartOnly", "ExtensionImages", "WorkingDirectory"],
    ]) {
      t.not(rejectionOf(entry("Service", key, "yes")), undefined, key);
    }
    for (const key of [
      "Wants",
      "Requires",
      "OnFailure",
      "Before",
      "Conflicts",
      "SuccessAction",
      "JobTimeoutAction",
    ]) {
      t.not(rejectionOf(entry("Unit", key, "x.service")), undefined, key);
    }
  },
);

for (const [key, value] of [
  ["ExecStart", "+/bin/sh"],
  ["ExecStart", "-+/bin/sh"],
  ["ExecStart", "!/bin/sh"],
  ["ExecStartPre", "!!/bin/sh"],
  ["ExecStopPost", "|id"],
  ["ExecStart", '"+/bin/sh"'],
  ["ExecStart", String.raw`\x2b/bin/sh`],
  ["ExecStart", "-'!/bin/sh'"],
  ["ExecStart", "/bin/true ; +/bin/sh"],
  ["ExecStart", "/bin/true a\t;\t+/bin/sh"],
  ["ExecStart", "/bin/true \u2028b ; +/bin/sh"],
  ["ExecStartPre", "/bin/true \u2029a ;\t+/bin/sh"],
  ["ExecStart", "; +/bin/sh"],
  ["ExecStart", "/bin/true ;"],
  ["ExecStart", "/bin/echo %h"],
  ["NoNewPrivileges", "no"],
  ["PrivateTmp", "disconnected"],
  ["Nice", "-5"],
  ["OOMScoreAdjust", "-1000"],
  ["KillMode", "none"],
  ["Type", "forking"],
  ["TimeoutStartSec", "infinity"],
] as const) {
  test(`${key}=${value} is rejected`, (t) => t.not(rejectionOf(entry("Service", key, value)), undefined));
}

for (const [key, value] of [
  ["ExecStart", "/bin/sh -c 'exec sleep 5'"],
  ["ExecStart", "-@./bin/server argv0 100%%"],
  ["NoNewPrivileges", "yes"],
  ["Type", "notify"],
  ["Nice", "19"],
] as const) {
  test(`${key}=${value} is accepted`, (t) => t.is(rejectionOf(entry("Service", key, value)), undefined));
}

test("a unit is parsed as systemd parses it", (t) => {
  t.deepEqual(
    parseUnit("# c\n[Unit]\nDescription = a \\\n# in between\n  b\n\n; d\n[Service]\nExecStart=/x=y\n").map(
      ({ section, key, value, line }) => [section, key, value.replaceAll(/\s+/g, " "), line],
    ),
    [
      ["Unit", "Description", "a b", 3],
      ["Service", "ExecStart", "/x=y", 9],
    ],
  );
  for (const bad of [
    "ExecStart=/x",
    "[Service]\nfoo",
    "[Service]\nA=b\\",
    "[Service]\nA=\u0001",
    "[Service]\n=x",
  ]) {
    t.throws(() => parseUnit(bad), undefined, bad);
  }
});

test("values of a package stay within their line, whatever they contain", (t) => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      t.notRegex(quoted(text).slice(1, -1), /[\n\r]|(?<!\\)(?:\\\\)*"/);
      const [entry_, ...others] = parseUnit(`[Service]\nExecStart=:${quoted(text)}`);
      t.is(others.length, 0);
      t.is(entry_?.key, "ExecStart");
    }),
  );
  t.is(environmentText({ A: 'a"b\\c$d`e\nf' }), 'A="a\\"b\\\\c\\$d\\`e\nf"\n');
});

test("names and directories stay within their lines, and only root's own privileged units run as another user", async (t) => {
  const service = "service: { exec: [/bin/true], user: root }\npermissions: [privileged]";
  const manifest = await parseManifest(`id: a\nname: A\nversion: "1"\n${service}\n`);
  const bad = "x\0ExecStartPre=+/bin/sh\rUser=root\n[Service]\u000bNice=-9";
  const textOf = (isPrivileged: boolean): string =>
    unitText({
      ...{ storeId: "s", argv: ["/bin/true"], entries: [], environmentFile: "/e", isPrivileged },
      maxProcesses: 100,
      app: { id: "a", name: bad, uid: 7, directory: "/d", manifest },
      workingDir: `/d/${bad}`,
    });
  const lines = textOf(false).split(/[\0\r\n]/);
  t.false(lines.some((line) => /^(?:ExecStartPre|Nice|User=root)/.test(line)));
  t.is(lines.filter((line) => line.startsWith("[")).join(), "[Unit],[Service]");
  t.true(lines.includes("User=7"));
  t.true(lines.includes("LimitNPROC=100"));
  t.regex(textOf(true), /^User=root$/m);
});

test("a unit whose package declares no delay restarts after 100 ms", async (t) => {
  const delays = "restart: { delay: 0ms, max_delay: 0ms, max_attempts: 0 }";
  const manifest = await parseManifest(
    `id: a\nname: A\nversion: "1"\nservice: { exec: [/bin/true] }\n${delays}\n`,
  );
  const text = unitText({
    ...{ storeId: "s", argv: ["/bin/true"], entries: [], environmentFile: "/e", isPrivileged: false },
    maxProcesses: 100,
    app: { id: "a", name: "A", uid: 7, directory: "/d", manifest },
    workingDir: "/d",
  });
  t.regex(text, /^RestartSec=100ms$/m);
});

const restart = {
  policy: "on-failure",
  delayMs: 1_000,
  maxDelayMs: 1,
  maxAttempts: 1,
  resetAfterMs: 1,
} as const;
const desired = {
  manifest: { restart, runtime: { kind: "service", argv: ["/bin/true"] } } as Manifest,
  shouldRun: true,
  bootedAtMs: 1_000_000,
  lastLines: ["x"],
};
for (const [name, unit, expected] of [
  ["none of that name", undefined, { state: "STOPPED", isLost: true }],
  [
    "stopped by a user",
    {
      ActiveState: "inactive",
      ExecMainExitTimestampMonotonic: "9",
      ActiveExitTimestampMonotonic: "5",
      ExecMainCode: "1",
      ExecMainStatus: "0",
    },
    { state: "STOPPED", isLost: true, exitCode: 0 },
  ],
  [
    "exited by itself",
    {
      ActiveState: "inactive",
      ExecMainExitTimestampMonotonic: "5",
      ActiveExitTimestampMonotonic: "9",
      ExecMainCode: "1",
      ExecMainStatus: "0",
    },
    { state: "STOPPED", reason: "the restart policy is on-failure", exitCode: 0 },
  ],
  [
    "failed",
    {
      ActiveState: "failed",
      Result: "exit-code",
      ExecMainExitTimestampMonotonic: "5",
      ExecMainCode: "1",
      ExecMainStatus: "203",
    },
    {
      state: "CRASHED",
      reason: "the unit exited with code 203 (the program could not be executed)",
      lastLines: ["x"],
    },
  ],
  [
    "killed, waiting for its restart",
    {
      ActiveState: "activating",
      SubState: "auto-restart",
      Result: "signal",
      ExecMainExitTimestampMonotonic: "5",
      ExecMainCode: "2",
      ExecMainStatus: "9",
      NRestarts: "2",
      StateChangeTimestampMonotonic: "7000000",
    },
    {
      state: "STARTING",
      reason: "BACKOFF: the unit was killed by SIGKILL",
      exitSignal: "SIGKILL",
      restarts: 2,
      nextRestartAtMs: 1_008_000,
      endedReason: "the unit was killed by SIGKILL",
    },
  ],
  [
    "finished, and retained by systemd",
    {
      ActiveState: "active",
      SubState: "exited",
      ExecMainCode: "1",
      ExecMainStatus: "0",
      ExecMainExitTimestampMonotonic: "6000000",
    },
    { state: "STOPPED", reason: "the restart policy is on-failure", exitCode: 0 },
  ],
] as const) {
  test(`a unit that is ${name}`, (t) => t.like(unitStatus(unit, desired), expected));
}

test("a unit of more than 64 KiB is not read", async (t) => {
  await using userHelpers = createUserHelpers();
  const directory = await mkdtemp(join(tmpdir(), "svc-unit-"));
  t.teardown(() => rm(directory, { recursive: true }));
  await mkdir(join(directory, "repo"));
  const uid = process.getuid?.() ?? 0;
  const units = new AppUnits({
    userHelpers,
    storeId: "test",
    dir: join(directory, "env"),
    searchPath: "/bin",
  });
  const app = {
    ...{ id: "web", directory, uid, ownerUid: uid + 1 },
    manifest: { runtime: { kind: "service", unit: "web.service" }, permissions: [] },
  } as unknown as RunnableApp;
  const write = (comment: string) =>
    writeFile(join(directory, "repo/web.service"), `# ${comment}\n[Service]\nExecStart=/bin/true\n`);
  await write("x".repeat(60 * 1024));
  await t.notThrowsAsync(units.check(app));
  await write("x".repeat(64 * 1024));
  await t.throwsAsync(units.check(app), { message: /65536/ });
});
test("a unit that runs again shows how it had exited, until it exits once more", (t) => {
  const lastExit = { hasExited: true, status: 4 };
  const running = { ActiveState: "active", SubState: "running", NRestarts: "1" };
  t.like(unitStatus(running, { ...desired, lastExit }), { state: "RUNNING", exitCode: 4, restarts: 1 });
  const killed = { hasExited: false, status: 9 };
  t.like(unitStatus(running, { ...desired, lastExit: killed }), {
    exitSignal: "SIGKILL",
    exitCode: undefined,
  });
  const ended = { ExecMainExitTimestampMonotonic: "5", ExecMainCode: "2", ExecMainStatus: "15" };
  const status = unitStatus({ ...running, ...ended, ActiveState: "failed" }, { ...desired, lastExit });
  t.like(status, { exitSignal: "SIGTERM", exitCode: undefined });
});

for (const [json, expected] of [
  [`{"EXIT_CODE":"exited","EXIT_STATUS":"4"}`, { hasExited: true, status: 4 }],
  [`{"EXIT_CODE":"killed","EXIT_STATUS":"9"}`, { hasExited: false, status: 9 }],
  [`{"EXIT_CODE":"dumped","EXIT_STATUS":"11"}`, { hasExited: false, status: 11 }],
  [`{"EXIT_CODE":"exited"}`, undefined],
  [`{"EXIT_STATUS":"x"}`, undefined],
  ["-- no entries --", undefined],
] as const) {
  test(`how the journal reports the exit of a process: ${json}`, (t) =>
    t.deepEqual(parseExit(json), expected));
}

test("megabytes in one journal message are skipped, and the next lines are read", async (t) => {
  const message = JSON.stringify({ MESSAGE: Array.from({ length: 400_000 }, () => 255) });
  async function* printed(): AsyncGenerator<string> {
    for (let at = 0; at < message.length; at += 65_536) yield message.slice(at, at + 65_536);
    yield '\n{"MESSAGE":"next"}\n';
  }
  t.deepEqual(await Array.fromAsync(journalLines(printed())), ['{"MESSAGE":"next"}']);
});

// journalctl's output is complete, or an error.

const question = { unit: "svc-none.service", uid: undefined, sinceMs: 0, from: { fromMs: 0 } } as const;

const journalTest = existsSync("/usr/bin/journalctl") ? test.serial : test.serial.skip;

async function journalctls(): Promise<number[]> {
  const pids = (await readFile(`/proc/self/task/${process.pid}/children`, "latin1"))
    .trim()
    .split(" ")
    .map(Number);
  const names = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/comm`, "latin1").catch(() => "")));
  return pids.filter((_, at) => names[at] === "journalctl\n");
}

journalTest("a journal that was not read to its end is an error", async (t) => {
  const next = readJournal({ ...question, follow: true, signal: undefined }).next();
  next.catch(() => undefined);
  await eventually(async () => assert.equal((await journalctls()).length, 1));
  for (const pid of await journalctls()) signal(pid, "SIGKILL");
  await t.throwsAsync(next, { message: "the journal cannot be read: journalctl failed (SIGKILL)" });
});

journalTest("an aborted one, and one without lines, are not failures", async (t) => {
  const left = new AbortController();
  const next = readJournal({ ...question, follow: true, signal: left.signal }).next();
  await eventually(async () => assert.equal((await journalctls()).length, 1));
  left.abort();
  t.true((await next).done);
  t.deepEqual(await Array.fromAsync(readJournal({ ...question, follow: false, signal: undefined })), []);
});
