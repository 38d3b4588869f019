/** A start that cannot succeed exits with a message; damaged databases. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  type FileHandle,
  chmod,
  chown,
  mkdir,
  mkdtemp,
  open,
  readFile,
  rm,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { claimStore } from "../../src/daemon/store-claim.ts";
import { counters, rowKinds } from "../../src/daemon/stored-rows.ts";
import { SvcError } from "../../src/errors.ts";
import { readUnprivilegedPortStart } from "../../src/runtimes/containers/container-policy.ts";
import type { Store } from "../../src/store/store.ts";
import { falsifyIndex, recordsOf } from "../store/support/falsify-index.ts";
import { openStore, temporaryDir } from "../store/support/temporary-store.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { main } from "../support/svc-main.ts";

// A start that cannot succeed exits with a message, and one that needs no socket continues without it.

const run = promisify(execFile);

/** A daemon with a configuration, and its output. */
async function start(directory: string, lines: Record<string, string>) {
  const { store = join(directory, "store"), socket = join(directory, "svc.sock"), apps = "" } = lines;
  const { listen = "127.0.0.1:0" } = lines;
  const file = join(directory, "svc.toml");
  await writeFile(
    file,
    `[api]\nlisten = "${listen}"\nsocket = "${socket}"\n[store]\ndir = "${store}"\n[apps]\n${apps}\n`,
  );
  const child = spawn(process.execPath, [main, "daemon", "--config", file], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let logged = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (bytes: Buffer) => (logged += bytes.toString()));
  return { child, logged: () => logged };
}

/** The duration of a successful start here while other tests keep the CPUs busy. */
let goodStartMs = 0;

test.before(async () => {
  const directory = await mkdtemp(join(tmpdir(), "svc-unusable-"));
  const begunMs = performance.now();
  const { child, logged } = await start(directory, {});
  try {
    await eventually(() => {
      if (!logged().includes("svc is ready")) throw new Error(logged());
    }, 60_000);
    goodStartMs = performance.now() - begunMs;
  } finally {
    child.kill("SIGKILL");
    await once(child, "close", { signal: AbortSignal.timeout(60_000) });
    await rm(directory, { recursive: true });
  }
});

/** Within 5 s, plus the margin of a busy host. */
async function expectEnd(
  t: ExecutionContext,
  directory: string,
  lines: Record<string, string>,
  sentence: RegExp,
) {
  const boundMs = 5_000 + 4 * goodStartMs;
  const begunMs = performance.now();
  const { child, logged } = await start(directory, lines);
  t.teardown(() => child.kill("SIGKILL"));
  const [code] = (await once(child, "close", { signal: AbortSignal.timeout(60_000) })) as [number | null];
  const tookMs = performance.now() - begunMs;
  t.not(code, 0);
  t.regex(logged(), sentence);
  t.true(tookMs < boundMs, `${Math.round(tookMs)} ms of ${Math.round(boundMs)}`);
}

for (const [title, lines, sentence] of [
  [
    "a store where no directory can be created",
    { store: "/proc/x/store" },
    /^svc: the directory \/proc\/x.* cannot be created: /m,
  ],
  [
    "a store below a file",
    { store: `${main}/store` },
    /^svc: the directory .*(?:main\.ts|svc\.cjs)\/store cannot be created: /m,
  ],
  [
    "a missing account",
    { apps: 'root_runs_as = "no-such-account"' },
    /^svc: .*no account "no-such-account"/m,
  ],
] as const) {
  test(`${title} fails the start`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "svc-unusable-"));
    t.teardown(() => rm(directory, { recursive: true }));
    await expectEnd(t, directory, lines, sentence);
  });
}

for (const [title, options, prepare, sentence] of [
  [
    "is read-only",
    "size=8m",
    "mount -o remount,ro",
    /^svc: the directory .*store cannot be created: read-only file system$/m,
  ],
  [
    "is read-only after its creation",
    "size=8m",
    "mkdir -m 711 $0/store && mount -o remount,ro",
    /^svc: the store .*store cannot be used: read-only file system$/m,
  ],
  [
    "is full",
    "size=1m",
    "head -c 1m /dev/zero > $0/fill; true",
    /^svc: the disk that holds the store is full; /m,
  ],
  [
    "is nearly full",
    "size=1m",
    "head -c 900k /dev/zero > $0/fill; true",
    /^svc: the disk that holds the store is full; /m,
  ],
  ["has no inode left", "nr_inodes=2", "true", /^svc: the disk that holds the store is full; /m],
] as const) {
  (isRoot ? test : test.skip)(
    `a store on a file system that ${title} ends the start${needsRoot}`,
    async (t) => {
      const directory = await mkdtemp(join(tmpdir(), "svc-unusable-"));
      t.teardown(() => rm(directory, { recursive: true }));
      const mounted = join(directory, "mounted");
      await mkdir(mounted);
      await run("mount", ["-t", "tmpfs", "-o", options, "none", mounted]);
      t.teardown(() => run("umount", [mounted]));
      await run("sh", ["-c", `${prepare} "$0"`, mounted]);
      await expectEnd(t, directory, { store: join(mounted, "store") }, sentence);
    },
  );
}

test("an address that this host does not have is a warning, and the socket is served", async (t) => {
  const { file, stderr } = await placeFor(t);
  await writeFile(
    file,
    `[api]\nlisten = "203.0.113.9:8420"\nsocket = "svc.sock"\n[store]\ndir = "${dirname(file)}/store"\n`,
  );
  const { code, logged } = await runTo(file, stderr, {});
  t.is(code, 0);
  t.regex(
    logged,
    /"level":40.*cannot listen on 203\.0\.113\.9:8420 \(EADDRNOTAVAIL\): .*set \[api\] listen .*127\.0\.0\.1"/,
  );
});

test("a start without a TCP address and without a socket fails with both reasons", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "svc-unusable-"));
  t.teardown(() => rm(directory, { recursive: true }));
  const lines = { listen: "203.0.113.9:8420", socket: "/proc/x/svc.sock" };
  await expectEnd(
    t,
    directory,
    lines,
    /^svc: cannot listen on 203\.0\.113\.9:8420 \(EADDRNOTAVAIL\): .*; the unix socket cannot be bound either: the directory \/proc\/x cannot be created/m,
  );
});

for (const [whose, uid] of [
  ["root's without the right to", undefined],
  ["a user's", 65534],
] as const) {
  (isRoot ? test : test.skip)(
    `a port that needs root is a warning for a daemon of ${whose}, and the socket serves${needsRoot}`,
    async (t) => {
      const port = (await readUnprivilegedPortStart()) - 1;
      if (port < 1) {
        t.pass("every port of this host is open to all users");
        return;
      }
      const { file, stderr } = await placeFor(t);
      if (uid !== undefined) await chown(dirname(file), uid, uid);
      await writeFile(
        file,
        `[api]\nlisten = "127.0.0.1:${port}"\nsocket = "svc.sock"\n[store]\ndir = "${dirname(file)}/store"\n`,
      );
      const { code, logged } = await runTo(
        file,
        stderr,
        {},
        uid === undefined
          ? ["setpriv", "--bounding-set", "-net_bind_service", "--inh-caps", "-net_bind_service"]
          : ["setpriv", `--reuid=${uid}`, `--regid=${uid}`, "--clear-groups"],
      );
      t.is(code, 0);
      t.regex(
        logged,
        new RegExp(`cannot listen on 127\\.0\\.0\\.1:${port} \\(EACCES\\): .*set \\[api\\] listen `),
      );
    },
  );
}

test("a socket directory that cannot be created is a warning, and TCP is served", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "svc-unusable-"));
  t.teardown(() => rm(directory, { recursive: true }));
  const { child, logged } = await start(directory, { socket: "/proc/x/svc.sock" });
  t.teardown(() => child.kill("SIGKILL"));
  await eventually(() => {
    if (!logged().includes("svc is ready")) throw new Error(logged());
  });
  t.regex(logged(), /the directory \/proc\/x cannot be created/);
  t.regex(logged(), /set \[api\] socket/);
  t.notRegex(logged(), /"stack"/);
  child.kill("SIGTERM");
  await once(child, "close", { signal: AbortSignal.timeout(60_000) });
});

for (const [title, content, sentence] of [
  ["an unknown key", '[api]\nlissten = "x"\n', /^svc: .*svc\.toml: .*api\.lissten.*\n$/],
  ["invalid TOML", "\n[api", /^svc: .*svc\.toml, line 6: .*\n$/],
  ["an invalid value", '[log]\nlevel = "loud"\n', /^svc: .*svc\.toml: .*log\.level.*\n$/],
  [
    "a missing account",
    '[apps]\nroot_runs_as = "no-such-account"\n',
    /^svc: .*no account "no-such-account".*\n$/,
  ],
  ["no file", undefined, /^svc: there is no configuration file \/.*\n$/],
] as const) {
  test(`a configuration with ${title} fails the start with one message, and an exit status without a restart by its unit`, async (t) => {
    const { file, stderr } = await placeFor(t);
    const own = `[api]\nlisten = "127.0.0.1:0"\n[store]\ndir = "${dirname(file)}/store"\n`;
    if (content !== undefined)
      await writeFile(file, content.startsWith("[api") ? content : `${own}${content}`);
    const { code, logged } = await runTo(file, stderr, {});
    t.is(code, 78);
    t.regex(logged, sentence);
  });
}

(isRoot ? test : test.skip)(
  `a system daemon does not start with a store that other users can replace${needsRoot}`,
  async (t) => {
    const { file, stderr } = await placeFor(t);
    const parent = join(dirname(file), "theirs");
    await mkdir(join(parent, "store"), { recursive: true });
    await chown(parent, 65_534, 65_534);
    await writeFile(file, `[api]\nlisten = "127.0.0.1:0"\n[store]\ndir = "${parent}/store"\n`);
    const { code, logged } = await runTo(file, stderr, {});
    t.is(code, 78);
    t.regex(
      logged,
      /^svc: cannot use \[store\] dir \S+store: other users can change \S+theirs; run chown root /m,
    );
  },
);

/** A directory for a configuration, and a file for its output. */
async function placeFor(t: ExecutionContext): Promise<{ file: string; stderr: FileHandle }> {
  const directory = await mkdtemp(join(tmpdir(), "svc-unusable-"));
  t.teardown(() => rm(directory, { recursive: true }));
  const stderr = await open(join(directory, "stderr"), "w+");
  t.teardown(() => stderr.close());
  return { file: join(directory, "svc.toml"), stderr };
}

/** Runs a daemon until it exits or is ready. */
async function runTo(
  file: string,
  stderr: FileHandle,
  env: Record<string, string>,
  by: readonly string[] = [],
) {
  const [program, ...args] = [...by, process.execPath, main, "daemon", "--config", file];
  const child = spawn(program, args, {
    stdio: ["ignore", "ignore", stderr.fd],
    env: { ...process.env, ...env },
  });
  const logged = (): Promise<string> => readFile(join(dirname(file), "stderr"), "utf8");
  const closed = once(child, "close", { signal: AbortSignal.timeout(60_000) }) as Promise<[number | null]>;
  const isReady = eventually(async () => {
    if (child.exitCode === null && !(await logged()).includes("svc is ready"))
      throw new Error(await logged());
  }, 60_000);
  try {
    await isReady;
  } finally {
    child.kill("SIGTERM");
  }
  const [code] = await closed;
  return { code, logged: await logged() };
}

test("output to the journal has priorities, and other output has none", async (t) => {
  const { file, stderr } = await placeFor(t);
  const directory = dirname(file);
  // The start logs a warning about it.
  const config = `[api]\nlisten = "127.0.0.1:0"\nsocket = "/proc/x/svc.sock"\n[store]\ndir = "${directory}/store"\n`;
  await writeFile(file, config);
  const { dev, ino } = await stderr.stat();
  const journal = { JOURNAL_STREAM: `${dev}:${ino}` };
  const { logged } = await runTo(file, stderr, journal);
  t.regex(logged, /^<4>\{"level":40,.*cannot be created.*\}$/m);
  t.regex(logged, /^<6>\{"level":30,.*svc is ready.*\}$/m);
  t.notRegex(logged, /^(?!<[2-7]>\{)./m);

  await writeFile(file, "[nothing]\n");
  await stderr.truncate();
  t.regex((await runTo(file, stderr, journal)).logged, /<3>svc: .*svc\.toml: .*nothing/);

  // Its standard error is not the unit's.
  const other = await placeFor(t);
  await writeFile(other.file, config.replace(directory, dirname(other.file)));
  const redirected = await runTo(other.file, other.stderr, journal);
  t.regex(redirected.logged, /^\{"level":40,/m);
  t.notRegex(redirected.logged, /^</m);
});

// A large database is checked while the daemon's services are built: no response comes from a damaged one.

const pageBytes = 4_096;
const rows = 10_000;

for (const [what, place] of [
  ["that is not read at the start", 1_000],
  ["in its first page", 1],
  ["in a page that the start needs", "store_id"],
] as const) {
  test(`a large database with damage ${what} is restored before any response`, async (t) => {
    await using daemon = await startDaemon();
    await daemon.stop();
    const path = join(daemon.storeDir, "svc.db");
    {
      await using store = await openStore({ dir: daemon.storeDir });
      await fill(store);
    }
    await damage(path, place);
    await daemon.restart();
    t.is(daemon.log().split("its last good snapshot was restored").length, 2, daemon.log());
    t.true((await daemon.client(DaemonService).getStatus({})).version !== "");
    await daemon.stop();
    using database = new DatabaseSync(path, { readOnly: true });
    t.is(database.prepare("SELECT count(*) AS n FROM meta").get()?.["n"], rows);
  });
}

test("an audit index that differs from its records is rebuilt without loss", async (t) => {
  await using daemon = await startDaemon();
  await daemon.stop();
  {
    await using store = await openStore({ dir: daemon.storeDir });
    await fill(store);
    await store.write([...recordsOf("second"), { sql: "INSERT INTO meta VALUES ('later', '')" }]);
  }
  await falsifyIndex(daemon.storeDir, "audit_by_target", "second", "sXcond");
  await daemon.restart();
  await daemon.stop();
  t.is(daemon.log().split("rebuilt the index of the audit log").length, 2, daemon.log());
  t.false(daemon.log().includes("snapshot was restored"));
  await using store = await openStore({ dir: daemon.storeDir });
  t.is(store.restoration, undefined);
  t.truthy(store.get("SELECT 1 FROM meta WHERE key = 'later'"));
  t.truthy(store.get("SELECT 1 FROM audit INDEXED BY audit_by_target WHERE target = 'second'"));
});

/** More than is checked before the rest of the daemon is loaded, with a snapshot of it. */
async function fill(store: Store): Promise<void> {
  const columns = [
    Array.from({ length: rows }, (_, row) => `key-${row}`),
    Array.from({ length: rows }, () => "x".repeat(1_000)),
  ];
  await store.write([{ sql: "INSERT INTO meta VALUES (?, ?)", columns }]);
  await store.housekeep();
}

/** Overwrites a page, or the root of a table. */
async function damage(path: string, place: number | string): Promise<void> {
  let page = place;
  if (typeof place === "string") {
    using database = new DatabaseSync(path, { readOnly: true });
    const row = database.prepare("SELECT rootpage FROM sqlite_schema WHERE name = ?").get(place);
    page = Number(row?.["rootpage"]);
  }
  const file = await open(path, "r+");
  await file.write(Buffer.alloc(pageBytes, 0xff), 0, pageBytes, (Number(page) - 1) * pageBytes);
  await file.close();
}

// The search for damaged rows covers every table.

test("each table is covered, with the rule of each of its columns", async (t) => {
  await using dir = await temporaryDir();
  await (await openStore({ dir: dir.path }))[Symbol.asyncDispose]();
  using database = new DatabaseSync(join(dir.path, "svc.db"), { readOnly: true });
  const tables = database
    .prepare(
      `SELECT t.name, json_group_array(c.name) AS columns FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
       WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' GROUP BY t.name`,
    )
    .all() as { name: string; columns: string }[];
  t.deepEqual(
    Object.fromEntries(
      tables.map(({ name, columns }) => [name, (JSON.parse(columns) as string[]).toSorted()] as const),
    ),
    Object.fromEntries([
      ...rowKinds.map(({ table, columns }) => [table, Object.keys(columns).toSorted()] as const),
      ...counters.map((name) => {
        const { columns = "[]" } = tables.find((each) => each.name === name) ?? {};
        return [name, (JSON.parse(columns) as string[]).toSorted()] as const;
      }),
    ]),
  );
});

// A store has one daemon: jobs of two would fire twice, and each would stop what the other starts.

test("a second daemon of a store exits with a message, whatever else it listens on", async (t) => {
  await using daemon = await startDaemon();
  const file = join(daemon.dir, "second.toml");
  await writeFile(
    file,
    `[api]\nlisten = "127.0.0.1:0"\nsocket = "${join(daemon.dir, "second.sock")}"\n[store]\ndir = "${daemon.storeDir}"\n`,
  );
  const second = spawn(process.execPath, [main, "daemon", "--config", file], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let logged = "";
  second.stderr.setEncoding("utf8").on("data", (text: string) => {
    logged += text;
    // Nothing else would stop it.
    if (logged.includes("svc is ready")) second.kill();
  });
  t.deepEqual(await nextEvent(second, "close"), [6, null], logged);
  t.regex(
    logged,
    new RegExp(`^svc: another svc daemon works with the store ${daemon.storeDir}; stop that one`, "m"),
  );
  t.notRegex(logged, /svc is ready/);
  await t.notThrowsAsync(daemon.client(DaemonService).getStatus({}));
  // The next daemon after a killed one gets the store.
  await daemon.kill();
  await daemon.restart();
  t.pass();
});

test("a store is available to the next daemon as soon as the previous one releases it", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-claim-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const first = await claimStore(dir);
  const next = claimStore(dir);
  await first[Symbol.asyncDispose]();
  const claim = await next;
  const error = await t.throwsAsync(claimStore(dir), { instanceOf: SvcError });
  t.is(error.code, "unavailable");
  await claim[Symbol.asyncDispose]();
});

(isRoot ? test : test.skip)(
  `a user who may read the store's directory cannot keep the daemon from it${needsRoot}`,
  async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-claim-"));
    t.teardown(() => rm(dir, { recursive: true }));
    await chmod(dir, 0o755);
    const locked = "exec flock --no-fork --nonblock . sh -c 'echo locked; exec sleep 60'";
    const drop = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    const user = spawn("setpriv", [...drop, "sh", "-c", locked], {
      cwd: dir,
      stdio: ["ignore", "pipe", "inherit"],
    });
    t.teardown(() => user.kill());
    await nextEvent(user.stdout, "data");
    await using claim = await claimStore(dir);
    t.truthy(claim);
  },
);
