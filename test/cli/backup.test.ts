/** `svc backup …`, with a daemon whose archives exist only in memory. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import test from "ava";
import type { Command } from "commander";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import {
  BackupService,
  BackupStorageSchema,
  type CreateBackupRequest,
  type UpsertBackupStorageRequest,
} from "../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { notFound, SvcError } from "../../src/errors.ts";
import { createProgram } from "../../src/cli/program.ts";
import { unimplemented } from "../../src/server/rpc/bound-service.ts";
import { openGateway, type TestGateway } from "../server/http/support/gateway.ts";
import { runSvc, type SvcOptions } from "./support/run-svc.ts";
import { bindService } from "../support/bind-service.ts";

const name = "20260102T033000000Z-hello-u0-0a1b2c3d-4e5f60.tar.zst";
const archive = {
  ...{ name, storage: "local", appId: "hello", sizeBytes: BigInt(6 << 20), owner: 0 },
  createdAt: timestampFromMs(-86_400_000),
  ...{ node: "0a1b2c3d", fromThisNode: true },
};
/** Newer archives, of two other nodes that use the same storage. */
const theirs = ["aaaaaaaa", "bbbbbbbb"].map((node) => ({
  ...archive,
  ...{ name: name.replace("2026", "2027").replace("0a1b2c3d", node), node, fromThisNode: false },
}));
const listed: Readonly<Record<string, readonly (typeof archive)[]>> = {
  new: [],
  runs: [...theirs, archive],
  hello: [...theirs.slice(0, 1), archive],
  lost: theirs.slice(0, 1),
  skewed: [
    { ...archive, name: name.replace("2026", "2099"), createdAt: timestampFromMs(Date.UTC(2099, 0)) },
    archive,
  ],
  unclear: theirs,
};
const mebibyte = 1 << 20;
/** In the format of age-keygen. */
const [mine, yours] = [`age1${"q".repeat(58)}`, `age1${"p".repeat(58)}`] as const;

/** Reports six MiB of progress, one by one. */
async function* slowly<R>(step: string, result: R) {
  for (let done = 1; done <= 6; done++) {
    const value = { step, message: "", doneBytes: BigInt(done * mebibyte), totalBytes: archive.sizeBytes };
    yield { event: { case: "progress", value } as const };
    await Promise.resolve();
  }
  yield { event: { case: "result", value: result } as const };
}

interface Fake extends TestGateway {
  readonly upserts: UpsertBackupStorageRequest[];
  readonly restored: string[];
  /** The archives of all restores. */
  readonly archives: string[];
  readonly created: CreateBackupRequest[];
  svc(args: readonly string[], options?: SvcOptions): ReturnType<typeof runSvc>;
}

async function startFake(): Promise<Fake> {
  const upserts: UpsertBackupStorageRequest[] = [];
  const restored: string[] = [];
  const archives: string[] = [];
  const created: CreateBackupRequest[] = [];
  const far = {
    case: "s3",
    value: { endpoint: "https://s3.example.org", bucket: "backups", region: "eu", prefix: "a/", ca: "PEM" },
  } as const;
  const storages = [
    { name: "local", location: { case: "local", value: { dir: "/srv/backups" } } as const },
    { name: "far", location: far, maxBytesPerSec: 100_000n },
    { name: "theirs", managedBy: "platform", location: { case: "local", value: { dir: "/srv/t" } } as const },
    { name: "vault", recipients: [mine], location: { case: "local", value: { dir: "/srv/v" } } as const },
  ].map((each) => create(BackupStorageSchema, each));
  const backups: Partial<ServiceImpl<typeof BackupService>> = {
    listBackups: ({ appId, storage }) =>
      storage === "theirs"
        ? { errors: [{ storage, error: "the S3 server did not respond in time" }] }
        : { backups: [...(listed[appId] ?? [archive])] },
    getBackup: () => ({ archive }),
    deleteBackup: ({ name: deleted }) => ({ name: deleted }),
    browseBackup: () => ({ entries: [{ path: "data", type: "directory", mode: "0755" }] }),
    createBackupStream: (request) => {
      created.push(request);
      if (request.appId === "gone") throw notFound("app", "gone");
      return slowly("read", { results: [{ storage: "local", name }] });
    },
    verifyBackupStream: () => slowly("verify", { name }),
    restoreBackup: ({ appId, paths }) => {
      if (paths.includes("data/nope")) throw notFound("file", "data/nope", 'the archive has no "data/nope"');
      return { appId };
    },
    restoreBackupStream: ({ appId, stopApp, name: chosen }) => {
      archives.push(chosen);
      if (appId === "runs" && !stopApp)
        throw new SvcError("app_running", 'app "runs" is running; stop it before restoring it');
      restored.push(appId);
      const warnings = appId === "gone" ? ["data/log: file changed \u001b[31mas we read it"] : [];
      return slowly("restore", { appId, warnings });
    },
    downloadBackup: async function* () {
      for (let done = 0; done < 6; done++) {
        yield { content: { data: Buffer.alloc(mebibyte, "x") }, sizeBytes: archive.sizeBytes };
        await Promise.resolve();
      }
    },
    uploadBackup: async (requests) => {
      await Array.fromAsync(requests);
      return archive;
    },
    getBackupPolicy: ({ appId }) => ({ appId, mode: "live" }),
    setBackupPolicy: ({ appId, mode }) => ({ appId, mode }),
    listBackupStorages: () => ({ storages }),
    upsertBackupStorage: (request) => {
      upserts.push(request);
      return { name: request.name, location: request.location };
    },
    removeBackupStorage: ({ name: gone }) => ({
      name: gone,
      usedBy: [
        { kind: "policy", id: "hello" },
        { kind: "job", id: "nightly", owner: 33 },
      ],
    }),
    testBackupStorage: () => ({ checks: [{ name: "list", ok: true }] }),
  };
  const apps: Partial<ServiceImpl<typeof AppService>> = {
    getApp: ({ id }) => {
      if (id === "locked") throw new SvcError("internal", "it cannot be looked at");
      if (id !== "hello" && id !== "runs") throw notFound("app", id);
      const lastBackupAt = timestampFromMs(-3_600_000);
      const state = id === "runs" ? "RUNNING" : "STOPPED";
      return { id, state, backups: { lastBackupAt, storages: ["local", "far"], overdue: true } };
    },
  };
  const jobs: Partial<ServiceImpl<typeof ScheduleService>> = {
    listSchedules: () => ({
      schedules: [
        { id: "nightly", action: { type: "backup", app: "gone" }, disabledReason: "its app was removed" },
        { id: "hourly", action: { type: "backup", app: "gone" }, enabled: false },
        { id: "fine", action: { type: "backup", app: "gone" }, enabled: true },
        { id: "other", action: { type: "backup", app: "hello" }, enabled: false },
      ],
    }),
  };
  const rest = (service: typeof BackupService | typeof AppService | typeof ScheduleService) =>
    Object.fromEntries(service.methods.map(({ localName }) => [localName, unimplemented]));
  const daemon = await openGateway({
    services: [
      bindService(BackupService, { ...rest(BackupService), ...backups } as never),
      bindService(AppService, { ...rest(AppService), ...apps } as never),
      bindService(ScheduleService, { ...rest(ScheduleService), ...jobs } as never),
    ],
  });
  // Each reading of the clock advances it by a second.
  let nowMs = 0;
  const now = () => (nowMs += 1000);
  const svc = (args: readonly string[], options: SvcOptions = {}) =>
    runSvc(["backup", ...args, "--socket", daemon.socketPath], {
      ...options,
      host: { now, ...options.host },
    });
  return Object.assign(daemon, { upserts, restored, archives, created, svc });
}

function leaves(command: Command): Command[] {
  return [command, ...command.commands.flatMap(leaves)];
}

function pathOf(command: Command): string[] {
  return command.parent === null ? [] : [...pathOf(command.parent), command.name()];
}

test("an invalid --keep names its lower bound", async (t) => {
  const { exitCode, stderr } = await runSvc(["backup", "policy", "hello", "set", "--keep", "0"]);
  t.is(exitCode, 2);
  t.regex(stderr, /--keep must be a whole number, at least 1;/);
});

test("the examples in each command's help are valid", async (t) => {
  const host = { args: [], version: "", stdout: process.stdout, stderr: process.stderr };
  const newProgram = () =>
    createProgram(
      host as never,
      () => () => Promise.resolve(),
      () => Promise.resolve(),
    );
  const backup = (await newProgram()).commands.find((each) => each.name() === "backup");
  const commands = backup === undefined ? [] : leaves(backup);
  t.true(commands.length > 15);
  for (const command of commands) {
    const path = pathOf(command);
    const { stdout: help } = await runSvc([...path, "--help"]);
    const [, examples = ""] = /\nExamples?:\n((?: {2}.*\n)+)/.exec(help) ?? [];
    const lines = [...examples.matchAll(/svc (backup [^|<>\n]*)/g)].map(([, line = ""]) => line.trim());
    t.true(
      lines.some((line) => line.startsWith(path.join(" "))),
      `${path.join(" ")}: ${help}`,
    );
    for (const line of lines) {
      const words = [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? "");
      await t.notThrowsAsync((await newProgram()).exitOverride().parseAsync(words, { from: "user" }), line);
    }
  }
});

test("bytes, rate and remaining time are shown only on a terminal", async (t) => {
  await using fake = await startFake();
  const file = join(fake.directory, "hello.tar.zst");
  await writeFile(file, Buffer.alloc(6 << 20, "x"));
  const shown = "of 6.0 MiB \\(\\d+%\\) · (1.0 MiB|256 KiB)/s · \\d+s left";
  for (const [args, what] of [
    [["create", "hello"], "backup hello: Reading"],
    [["verify", "hello", "latest"], "verify hello: Verifying"],
    [["restore", "hello", "latest", "-y"], "restore hello: Restoring"],
    [["download", "hello", "latest"], "download hello: Receiving"],
    [["upload", file], "upload to local: Sending"],
  ] as const) {
    const line = args.join(" ");
    const terminal = await fake.svc(args, { terminal: true });
    t.is(terminal.exitCode, 0, line);
    t.regex(terminal.stderr, new RegExp(`\\r\\x1b\\[K${what} \\d\\.\\d MiB ${shown}`), line);
    t.regex(terminal.stderr, /\r\x1b\[K$/, `${line} leaves a clean line`);
    t.is((await fake.svc(args)).stderr, "", `${line} in a pipe`);
    const json = await fake.svc([...args, "--json"], { terminal: true });
    t.is(json.stderr, "", `${line} --json`);
  }
});

test("every command prints JSON with --json", async (t) => {
  await using fake = await startFake();
  const file = join(fake.directory, "hello.tar.zst");
  await writeFile(file, "x");
  for (const line of [
    "create hello",
    "ls",
    "ls hello --storage local",
    "show hello latest",
    "browse hello latest data",
    "verify hello latest --deep",
    "restore hello latest --yes",
    "restore hello latest --dry-run",
    "rm hello latest --yes",
    `upload ${file}`,
    "policy hello",
    "policy hello set --mode pause",
    "policy hello reset",
    "storage",
    "storage ls",
    "storage add disk --dir /srv/disk",
    "storage edit far --max-rate 65536",
    "storage test far",
    "storage rm far",
  ]) {
    const { exitCode, stdout, stderr } = await fake.svc([...line.split(" "), "--json"]);
    t.is(exitCode, 0, `${line}: ${stderr}`);
    t.is(stderr, "", line);
    t.is(typeof JSON.parse(stdout), "object", line);
  }
  for (const line of ["show hello nope", "storage edit nope --max-rate 65536"]) {
    const { exitCode, stdout, stderr } = await fake.svc([...line.split(" "), "--json"]);
    t.is(exitCode, 3, line);
    t.is(stdout, "");
    t.like(JSON.parse(stderr), { reason: "not_found" });
  }
});

test("removing a storage names the policies and jobs that still use it", async (t) => {
  await using fake = await startFake();
  const { exitCode, stdout, stderr } = await fake.svc(["storage", "rm", "far"]);
  t.is(exitCode, 0);
  t.is(stdout, "Removed far from the list of storages; its archives stay\n");
  t.is(
    stderr,
    "The policy of hello still uses far. Choose another storage: svc backup policy hello set --storage NAME\n" +
      "The job nightly (of user id 33) still uses far. Choose another storage: " +
      "svc schedule edit nightly --storage NAME --owner 33\n",
  );
});

test("a restore asks only if it replaces an app", async (t) => {
  await using fake = await startFake();
  for (const args of [[], ["--paths", "data/notes"], ["--json"]]) {
    const refused = await fake.svc(["restore", "hello", "latest", ...args]);
    t.is(refused.exitCode, 2, args.join(" "));
    t.regex(refused.stderr, /this replaces \S.*; pass --yes to confirm/);
  }
  t.deepEqual(fake.restored, []);
  for (const args of [["--yes"], ["--dry-run"], ["--as-new"]]) {
    t.is((await fake.svc(["restore", "hello", "latest", ...args])).exitCode, 0, args.join(" "));
  }
  const gone = await fake.svc(["restore", "gone", name, "--storage", "local"]);
  t.is(gone.exitCode, 0, gone.stderr);
  const locked = await fake.svc(["restore", "locked", name, "--storage", "local"]);
  t.is(locked.exitCode, 1, "fails if the app's existence is unknown");
  t.deepEqual(fake.restored, ["hello", "hello", "hello", "gone"]);
  t.regex(gone.stderr, /^warning: data\/log: file changed \S+as we read it$/m);
  t.notRegex(gone.stderr, /\x1b/);
});

test("a restore of a running app is rejected before the question", async (t) => {
  await using fake = await startFake();
  const run = await fake.svc(["restore", "runs", name, "--storage", "local"]);
  t.is(run.exitCode, 5);
  t.regex(run.stderr, /^svc: app "runs" is running; stop it before .*: svc stop runs; or pass --stop\n$/);
  const stopped = await fake.svc(["restore", "runs", name, "--storage", "local", "--stop"]);
  t.regex(stopped.stderr, /this replaces runs; pass --yes to confirm/);
});

test("a policy is set in either order of the app and the action", async (t) => {
  await using fake = await startFake();
  for (const words of [
    ["hello", "set"],
    ["set", "hello"],
  ]) {
    const run = await fake.svc(["policy", ...words, "--trigger", "03:30"]);
    t.is(run.exitCode, 0, run.stderr);
    t.regex(run.stdout, /^App: +hello\n/);
  }
  const unknown = await fake.svc(["policy", "hello", "sett"]);
  t.is(unknown.exitCode, 2);
  t.regex(unknown.stderr, /unknown action "sett"; choose one of: show, set, reset/);
});

test("the restore of a removed app names its disabled jobs, and says that its backup policy is missing", async (t) => {
  await using fake = await startFake();
  const { stderr } = await fake.svc(["restore", "gone", name, "--storage", "local"]);
  t.regex(stderr, /^Jobs of gone are disabled\. Enable them: svc schedule enable nightly hourly$/m);
  t.regex(
    stderr,
    /^The backup policy of gone was not restored, .*: svc backup policy gone set --trigger 03:30$/m,
  );
  const replaced = await fake.svc(["restore", "hello", name, "--storage", "local", "--yes"]);
  t.notRegex(replaced.stderr, /policy|disabled/, "an app that exists keeps both");
});

test("a path that the archive lacks is rejected before the question", async (t) => {
  await using fake = await startFake();
  const run = await fake.svc(["restore", "hello", name, "--storage", "local", "--paths", "data/nope"]);
  t.is(run.exitCode, 3);
  t.is(run.stderr, 'svc: the archive has no "data/nope"\n');
  t.deepEqual(fake.restored, []);
});

test("a restore prints what it restored; for a running app it advises a stop, unless it is a dry run", async (t) => {
  await using fake = await startFake();
  const restore = (...args: string[]) => fake.svc(["restore", ...args, "--storage", "local", "--yes"]);
  const some = await restore("hello", name, "--paths", "data/notes", "data/photos");
  t.regex(some.stdout, /^Restored data\/notes, data\/photos of hello \(/);
  t.regex((await restore("hello", name)).stdout, /^Restored hello \(/);
  const running = await restore("runs", name);
  t.is(running.exitCode, 5);
  t.is(
    running.stderr,
    'svc: app "runs" is running; stop it before restoring it: svc stop runs; or pass --stop\n',
  );
  t.is((await restore("runs", name, "--dry-run")).exitCode, 0);
  t.is((await restore("runs", name, "--stop")).exitCode, 0);
});

test("a failed backup of one app does not prevent the others", async (t) => {
  await using fake = await startFake();
  const { exitCode, stdout, stderr } = await fake.svc(["create", "gone", "hello"]);
  t.is(exitCode, 3);
  t.regex(stderr, /^svc: no app "gone"/m);
  t.regex(stdout, /^Backed up hello to local/);
  t.deepEqual(
    fake.created.map(({ appId }) => appId),
    ["gone", "hello"],
  );
});

test("a list of a single storage fails if that storage cannot be listed", async (t) => {
  await using fake = await startFake();
  for (const json of [[], ["--json"]]) {
    const { exitCode, stdout, stderr } = await fake.svc(["ls", "--storage", "theirs", ...json]);
    t.is(exitCode, 6);
    t.is(stdout, "");
    t.true(stderr.includes("storage theirs: the S3 server did not respond in time"), stderr);
  }
});

test("lists show the age of archives, and name the app that has none", async (t) => {
  await using fake = await startFake();
  const all = (await fake.svc(["ls"])).stdout.split("\n").map((line) => line.split(/ {2,}/));
  t.deepEqual(all[0], ["NAME", "APP", "STORAGE", "NODE", "CREATED", "SIZE", "VERIFIED"]);
  t.deepEqual(all[1]?.slice(3, 5), ["this node", "1d ago"]);
  const [newest] = (await fake.svc(["ls", "-q"])).stdout.split("\n");
  t.is(newest, all[1]?.[0]);
  t.is((await fake.svc(["show", "hello", newest ?? ""])).exitCode, 0, "a listed name is accepted");
  t.is((await fake.svc(["ls", "new"])).stderr, "No backups of new yet. Create one: svc backup create new\n");
  const none = await fake.svc(["show", "new", "latest"]);
  t.is(none.exitCode, 3);
  t.is(none.stderr, 'svc: no backup of app "new"; list the backups with: svc backup ls\n');
  const { stdout: policy } = await fake.svc(["policy", "hello"]);
  t.regex(policy, /^Last: +1h ago to local, far; never verified; overdue$/m);
});

test("the start of a name is enough to open an archive, but not to delete it", async (t) => {
  await using fake = await startFake();
  const open = (...args: string[]) => fake.svc(["restore", "hello", ...args, "--stop", "--yes"]);
  t.is((await open("20260102")).exitCode, 0);
  t.is((await open("20260102", "--storage", "local")).exitCode, 0);
  t.deepEqual(fake.archives, [name, name]);
  t.like(await open("202"), {
    exitCode: 2,
    stderr: 'svc: name: "202" is the start of 2 backups of "hello": type more of it\n',
  });
  t.is((await fake.svc(["rm", "hello", "20260102", "--yes"])).exitCode, 3);
});

test("several archives are deleted after one question", async (t) => {
  await using fake = await startFake();
  const names = [...theirs.slice(0, 1), archive].map((each) => each.name);
  const asked = await fake.svc(["rm", "hello", ...names]);
  t.like(asked, { exitCode: 2, stderr: "svc: deleting archives cannot be undone; pass --yes to confirm\n" });
  const deleted = await fake.svc(["rm", "hello", ...names, "--yes"]);
  t.like(deleted, { exitCode: 0, stdout: names.map((each) => `Deleted ${each}\n`).join("") });
});

test("the names of archives are whole in a terminal of 80 columns", async (t) => {
  await using fake = await startFake();
  t.true((await fake.svc(["ls"], { terminal: true })).stdout.includes(`${name} `));
});

test("a template prints a line per archive", async (t) => {
  await using fake = await startFake();
  const [newest] = (await fake.svc(["ls", "-q"])).stdout.split("\n");
  t.is((await fake.svc(["ls", "--format", "{{.name}}"])).stdout, `${newest}\n`);
});

test("latest skips archives from the future if there are others", async (t) => {
  await using fake = await startFake();
  await fake.svc(["restore", "skewed", "latest", "--stop", "--yes"]);
  t.deepEqual(fake.archives, [name]);
});

test("the latest archive is one of this node, unless only one other node has the app", async (t) => {
  await using fake = await startFake();
  const restore = (app: string) => fake.svc(["restore", app, "latest", "--stop", "--yes"]);
  t.is((await restore("hello")).exitCode, 0);
  t.is((await restore("runs")).exitCode, 0);
  const lost = await restore("lost");
  t.is(lost.exitCode, 0);
  t.regex(lost.stderr, /^This node has no backup of lost; using the newest one of node aaaaaaaa\.$/m);
  t.deepEqual(fake.archives, [name, name, theirs[0]?.name]);
  const unclear = await restore("unclear");
  t.is(unclear.exitCode, 2);
  t.regex(
    unclear.stderr,
    /"unclear" has backups of several other nodes \(aaaaaaaa, bbbbbbbb\); pass the name of an archive instead of "latest", such as \S+\n/,
  );
  const { stdout } = await fake.svc(["ls", "hello"]);
  t.deepEqual(
    stdout
      .split("\n")
      .slice(1, 3)
      .map((line) => line.split(/ {2,}/)[3]),
    ["aaaaaaaa", "this node"],
  );
});

test("a backup sends the retention options that are set, and no others", async (t) => {
  await using fake = await startFake();
  for (const [args, expected] of [
    [[], {}],
    [["--keep", "3"], { keep: 3 }],
    [["--keep-daily", "7", "--keep-monthly", "12"], { keepDaily: 7, keepMonthly: 12 }],
    [["--keep", "1", "--keep-weekly", "4", "--mode", "stop"], { keep: 1, keepWeekly: 4 }],
  ] as const) {
    const { exitCode, stderr } = await fake.svc(["create", "hello", ...args]);
    t.is(exitCode, 0, stderr);
    const { keep, keepDaily, keepWeekly, keepMonthly } = fake.created.splice(0)[0] ?? {};
    const none = { keep: undefined, keepDaily: undefined, keepWeekly: undefined, keepMonthly: undefined };
    t.deepEqual({ keep, keepDaily, keepWeekly, keepMonthly }, { ...none, ...expected });
  }
});

test("editing a storage changes only the given properties", async (t) => {
  await using fake = await startFake();
  const secret = join(fake.directory, "secret");
  await writeFile(secret, "hush\n");
  const far = {
    endpoint: "https://s3.example.org",
    bucket: "backups",
    region: "eu",
    prefix: "a/",
    ca: "PEM",
  };
  const edit = async (...args: string[]) => {
    const run = await fake.svc(["storage", "edit", ...args]);
    return { ...run, sent: fake.upserts.splice(0)[0] };
  };
  for (const [args, changed, rate] of [
    [["--max-rate", "65536"], {}, 65_536n],
    [["--no-max-rate"], {}, undefined],
    [["--region", "", "--bucket", "other"], { region: "", bucket: "other" }, 100_000n],
    [["--path-style"], { pathStyle: true }, 100_000n],
    [["--no-path-style"], { pathStyle: false }, 100_000n],
    [["--no-ca"], { ca: "" }, 100_000n],
    [["--access-key", "ID"], { accessKey: "ID" }, 100_000n],
    [["--secret-key-file", secret], { secretKey: "hush" }, 100_000n],
    [
      ["--s3", "https://other.example.org", "--access-key", "ID", "--secret-key-file", secret],
      { endpoint: "https://other.example.org", accessKey: "ID", secretKey: "hush" },
      100_000n,
    ],
  ] as const) {
    const { stdout, stderr, sent } = await edit("far", ...args);
    t.is(stdout, "Changed far. Try it: svc backup storage test far\n", stderr);
    const { $typeName: _, ...value } = sent?.location.value as Record<string, unknown>;
    const kept = { accessKey: undefined, secretKey: undefined, pathStyle: undefined };
    t.like(value, { ...kept, ...far, ...changed }, args.join(" "));
    t.is(sent?.maxBytesPerSec, rate, args.join(" "));
  }
  const moved = await edit("local", "--dir", "/mnt/other");
  t.like(moved.sent, { name: "local", location: { case: "local", value: { dir: "/mnt/other" } } });
  const theirs = await edit("theirs", "--max-rate", "65536");
  t.regex(theirs.stderr, /^warning: theirs is managed by "platform": its next sync overwrites/);
  t.like(theirs.sent, { managedBy: "platform", maxBytesPerSec: 65_536n });

  for (const [args, recipients] of [
    [["edit", "vault", "--max-rate", "65536"], [mine]],
    [["edit", "vault", "--dir", "/mnt/other"], [mine]],
    [["edit", "vault", "--recipient", yours], [yours]],
    [
      ["edit", "vault", "--recipient", mine, "--recipient", yours],
      [mine, yours],
    ],
    [["edit", "vault", "--no-recipient"], []],
    [["add", "vault", "--dir", "/mnt/other"], [mine]],
    [["add", "vault", "--dir", "/mnt/other", "--no-recipient"], []],
    [["add", "new", "--dir", "/mnt/new"], []],
  ] as const) {
    const { exitCode, stderr } = await fake.svc(["storage", ...args]);
    t.is(exitCode, 0, stderr);
    t.deepEqual(fake.upserts.splice(0)[0]?.recipients, [...recipients], args.join(" "));
  }

  const added = await fake.svc(["storage", "add", "new", "--dir", "/mnt/new"]);
  t.is(added.stdout, "Added new. Try it: svc backup storage test new\n");
  t.regex(
    added.stderr,
    /^warning: \/mnt\/new does not exist yet: the first backup creates it; .*mount it first\n$/,
  );
  t.is((await fake.svc(["storage", "add", "new", "--dir", "/tmp"])).stderr, "");
  const bucket = ["--bucket", "backups", "--s3"];
  const again = await fake.svc(["storage", "add", "far", ...bucket, far.endpoint]);
  t.is(again.exitCode, 0, again.stderr);
  for (const [to, endpoint] of [
    ["far", "https://other.example.org"],
    ["new", far.endpoint],
  ] as const) {
    const { exitCode, stderr } = await fake.svc(["storage", "add", to, ...bucket, endpoint]);
    t.is(exitCode, 2);
    t.is(stderr, "svc: --s3 needs --access-key\n");
  }
  fake.upserts.splice(0);

  for (const [args, exitCode, said] of [
    [["far"], 2, /pass an option to change/],
    [["nope", "--max-rate", "65536"], 3, /no storage "nope"/],
    [["far", "--dir", "/srv"], 2, /far is a bucket/],
    [["local", "--bucket", "other"], 2, /local is a directory: --bucket/],
    [["far", "--s3", "https://other.example.org"], 2, /a different --s3 endpoint needs its --access-key/],
    [["far", "--s3", "https://other.example.org", "--access-key", "ID"], 2, /pass --secret-key-file/],
  ] as const) {
    const { sent, stderr, ...run } = await edit(...args);
    t.is(run.exitCode, exitCode, args.join(" "));
    t.regex(stderr, said);
    t.is(sent, undefined);
  }
});

test("an upload names the local file that cannot be read", async (t) => {
  await using fake = await startFake();
  const here = await mkdtemp(join(tmpdir(), "svc-cli-backup-"));
  t.teardown(() => rm(here, { recursive: true, force: true }));
  for (const [file, why] of [
    [join(here, "nothing"), "no such file or directory"],
    [here, "is a directory"],
  ] as const) {
    const { exitCode, stderr } = await fake.svc(["upload", file]);
    t.is(exitCode, 2);
    t.is(stderr, `svc: cannot use ${file}: ${why}\n`);
  }
});
