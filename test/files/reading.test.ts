/** Reading files as a user: searching, following, measuring; limits of file operations and their cancellation. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  appendFile,
  chown,
  mkdir,
  mkdtempDisposable,
  readdir,
  rename,
  truncate,
  writeFile,
} from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import test from "ava";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { SvcError } from "../../src/errors.ts";
import { FileStages } from "../../src/files/file-stages.ts";
import { copyPath } from "../../src/run-as/helper/host/relocate.mjs";
import { Syscalls } from "../../src/run-as/helper/host/syscalls.mjs";
import { Walk } from "../../src/run-as/helper/host/walk.mjs";
import type { Stage } from "../../src/run-as/host-work.ts";
import type { UserHelpers } from "../../src/run-as/user-helpers.ts";
import { type Executor, currentExecutor } from "../../src/store/executors.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";
import { isRoot } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { type Ground, ownerUid } from "./support/ground.ts";
import { sharedGround } from "./support/shared-ground.ts";

// Searching, following and measuring as a user.

const rootTest = isRoot ? test : test.skip;
const newGround = sharedGround();

/** Nothing here may block a call. */
const traps = `mkfifo FIFO; ln -s /dev/zero zero; ln -s FIFO link; ln -s / root; ln -s . self; ln -s /proc/kmsg kmsg`;

async function search({ files }: Ground, searchRequest: Parameters<typeof files.searchFiles>[0]) {
  const events = await Array.fromAsync(files.searchFiles(searchRequest));
  const found = events.flatMap(({ event }) => (event.case === "match" ? [event.value] : []));
  const last = events.at(-1)?.event;
  assert.ok(last?.case === "result");
  const lines = found.map(({ entry, line, text: shown }) =>
    [entry?.path.slice(String(searchRequest.path).length + 1), line, shown]
      .filter((part) => part !== undefined)
      .join(":"),
  );
  return { lines: lines.sort(), result: last.value };
}

rootTest("files are found by name and by content, and nothing blocks the search", async (t) => {
  const ground = await newGround();
  const { home, as, files } = ground;
  await as(
    ownerUid,
    "sh",
    "-c",
    `cd ${home}; ${traps}; mkdir -p a/b .h shut
printf 'one\\nneedle here\\nthree needles' > a/one.txt; printf 'NEEDLE\\n' > a/b/two.TXT; printf 'a\\0needle\\n' > a/binary
echo needle > .h/x.txt; echo needle > .hidden.txt; echo needle > "a/$(printf 'caf\\351').txt"; echo needle > shut/x.txt; chmod 0 shut
yes 'no such thing' | head -n 100000 > a/long; printf 'needle at the end' >> a/long; printf 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\\n' > a/backtrack`,
  );
  const names = await search(ground, { path: home, name: "*.txt" });
  t.deepEqual(names.lines, ["a/caf\\xe9.txt:", "a/one.txt:"]);
  t.like(names.result, { matches: 2n, failedCount: 1n, truncated: false });
  t.deepEqual((await search(ground, { path: home, name: "*.txt", ignoreCase: true, hidden: true })).lines, [
    ".h/x.txt:",
    ".hidden.txt:",
    "a/b/two.TXT:",
    "a/caf\\xe9.txt:",
    "a/one.txt:",
  ]);
  t.deepEqual(
    (await search(ground, { path: home, name: "[!ab]?*" })).lines.sort(),
    ["FIFO:", "kmsg:", "link:", "long:", "one.txt:", "root:", "self:", "shut:", "two.TXT:", "zero:"]
      .map((name) =>
        ["long:", "one.txt:"].includes(name) ? `a/${name}` : name === "two.TXT:" ? `a/b/${name}` : name,
      )
      .concat("a/caf\\xe9.txt:")
      .sort(),
  );
  t.deepEqual((await search(ground, { path: home, content: "needle" })).lines, [
    "a/caf\\xe9.txt:1:needle",
    "a/long:100001:needle at the end",
    "a/one.txt:2:needle here",
    "a/one.txt:3:three needles",
  ]);
  t.deepEqual(
    (await search(ground, { path: home, content: "^needle$", regex: true, ignoreCase: true })).lines,
    ["a/b/two.TXT:1:NEEDLE", "a/caf\\xe9.txt:1:needle"],
  );
  t.deepEqual(
    (await search(ground, { path: join(home, "a"), name: "one*", content: "h(e|x)re", regex: true })).lines,
    ["one.txt:2:needle here"],
  );
  // A backtracking engine would practically never finish this.
  const backtrack = { path: join(home, "a"), name: "backtrack", content: "^(a|aa|a?)*(a*)*$", regex: true };
  t.deepEqual((await search(ground, backtrack)).lines, []);
  const few = await search(ground, { path: home, content: "needle", limit: 2 });
  t.like(few.result, { matches: 2n, truncated: true });
  t.like(await errorOf(files.searchFiles({ path: home })), { reason: "invalid_request" });
  const broken = await errorOf(files.searchFiles({ path: home, content: "(", regex: true }));
  t.like(broken, { reason: "invalid_request" });
  t.like(await errorOf(files.searchFiles({ path: "/root", name: "*" })), { reason: "denied" });
  t.like(await errorOf(files.searchFiles({ path: join(home, "nothing"), name: "*" })), {
    reason: "not_found",
  });
  // The kernel's files have size 0, and block when they are read.
  const kernel = await search(ground, { path: "/proc/sys/kernel", name: "ostype", content: "Linux" });
  t.deepEqual(kernel.lines, []);
  await as(ownerUid, "chmod", "700", `${home}/shut`);
});

rootTest("a search by token sees nothing of the daemon's own files", async (t) => {
  const ground = await newGround();
  const { daemon } = ground;
  const files = daemon.tokenClient(FileService);
  const looked = { path: daemon.dir, content: daemon.token.slice(0, 12), hidden: true };
  const byToken = await search({ ...ground, files }, looked);
  t.deepEqual(byToken.lines, []);
  t.true(byToken.result.failedCount > 0n);
  const byRoot = await search({ ...ground, files: daemon.client(FileService) }, looked);
  t.true(byRoot.lines.some((line) => line.startsWith("api.token:1:")));
  const named = { path: daemon.dir, name: "svc.db*", hidden: true };
  t.deepEqual((await search({ ...ground, files }, named)).lines, []);
  const database = await search({ ...ground, files: daemon.client(FileService) }, named);
  t.true(database.lines.includes("store/svc.db:"));
});

rootTest("only the beginning of a long line is searched, and less of it is shown", async (t) => {
  const ground = await newGround();
  const { home } = ground;
  await writeFile(join(home, "long"), `begin${"x".repeat(100_000)}needle\nneedle\n`);
  const found = await search(ground, { path: home, content: "begin" });
  t.is(found.lines.length, 1);
  t.true((found.lines[0] ?? "").length < 600, "the shown text is short");
  t.deepEqual((await search(ground, { path: home, content: "needle" })).lines, ["long:2:needle"]);
});

rootTest("the last lines are searched only in the last 4 MiB", async (t) => {
  const { home, files } = await newGround();
  const path = join(home, "long");
  await writeFile(path, `first\n${"x".repeat(6 << 20)}`);
  const pieces = await Array.fromAsync(files.tailFile({ path, lines: 2 }));
  const bytes = pieces.reduce((sum, { content }) => sum + (content?.data.length ?? 0), 0);
  t.is(bytes, 4 << 20);
});

rootTest("a tree is measured like du(1), with file systems and links distinguished", async (t) => {
  const ground = await newGround();
  const { home, as, files } = ground;
  await as(
    ownerUid,
    "sh",
    "-c",
    `cd ${home}; ${traps}; mkdir -p a/b/c d .e; head -c 300000 /dev/urandom > a/b/c/x
head -c 1000000 /dev/urandom > a/y; ln a/y d/y; ln a/y d/z; truncate -s 1G a/sparse; echo x > .e/x`,
  );
  const measure = async (depth: number) => {
    const events = await Array.fromAsync(files.getDiskUsage({ path: home, depth }));
    return events.flatMap(({ event }) =>
      event.case === "directory" || event.case === "result" ? [event.value] : [],
    );
  };
  for (const depth of [0, 1, 16]) {
    const ours = (await measure(depth)).map(({ path, diskBytes }) => `${diskBytes} ${path}`);
    const theirs = await as(
      ownerUid,
      "sh",
      "-c",
      `cd /; find ${home} -type d | sort >/dev/null; du -x --block-size=1 -d ${depth} ${home}`,
    );
    t.deepEqual(
      ours.sort(),
      theirs
        .trim()
        .split("\n")
        .map((line) => line.replace("\t", " "))
        .sort(),
      String(depth),
    );
  }
  const total = (await measure(0)).at(-1);
  t.like(total, {
    depth: 0,
    path: home,
    entries: 18n,
    failedCount: 0n,
    sizeBytes: BigInt(2 ** 30 + 1_300_002),
  });
  // A nested file system is skipped: /proc reports more than exists.
  await mkdir(join(home, "mnt"));
  execFileSync("mount", ["-t", "tmpfs", "none", join(home, "mnt")]);
  try {
    await writeFile(join(home, "mnt/x"), Buffer.alloc(100_000));
    t.is((await measure(0)).at(-1)?.entries, 18n);
  } finally {
    execFileSync("umount", [join(home, "mnt")]);
  }
  const file = await Array.fromAsync(files.getDiskUsage({ path: join(home, "a/y") }));
  t.like(file.at(-1)?.event.value, { sizeBytes: 1_000_000n, entries: 1n });
  t.like(await errorOf(files.getDiskUsage({ path: "/root" })), { reason: "denied" });
});

rootTest(
  "a file is followed through growth, truncation and rotation, until its caller disconnects",
  async (t) => {
    const ground = await newGround();
    const { home, connection, as, daemon } = ground;
    const path = join(home, "app.log");
    const lines = Array.from({ length: 50_000 }, (_, index) => `line ${index}`);
    await writeFile(path, `${lines.join("\n")}\n`);
    await chown(path, ownerUid, 60);
    const files = connection.client(FileService, "grpc");
    const last = async (count: number) =>
      Buffer.concat(
        (await Array.fromAsync(files.tailFile({ path, lines: count }))).map(
          ({ content }) => content?.data ?? Buffer.alloc(0),
        ),
      ).toString();
    t.is(await last(0), "");
    t.is(await last(2), "line 49998\nline 49999\n");
    t.is(await last(40_000), `${lines.slice(10_000).join("\n")}\n`);
    t.is(await last(100_000), `${lines.join("\n")}\n`);
    const rest = await new Promise<string>((resolve, reject) => {
      const query = new URLSearchParams({ path, lines: "1" }).toString();
      request({ socketPath: connection.socketPath, path: `/v1/files/tail?${query}` }, (response) => {
        text(response).then(resolve, reject);
      })
        .on("error", reject)
        .end();
    });
    t.is(rest, "line 49999\n");

    const stop = new AbortController();
    let seen = "";
    const following = (async () => {
      for await (const { content } of files.tailFile(
        { path, lines: 1, follow: true },
        { signal: stop.signal },
      )) {
        seen += Buffer.from(content?.data ?? []).toString();
      }
    })();
    following.catch(() => undefined);
    const sees = (ending: string) =>
      eventually(() => assert.ok(seen.endsWith(ending), seen.slice(-200)), 30_000);
    await sees("line 49999\n");
    await appendFile(path, "half");
    await sees("half");
    await appendFile(path, " whole\n");
    await sees("half whole\n");
    await truncate(path, 0);
    await appendFile(path, "afresh\n");
    await sees("afresh\n");
    // Rotated: the old one is written to for a moment, then there is none, then a new one.
    await rename(path, `${path}.1`);
    await appendFile(`${path}.1`, "last words\n");
    await sees("last words\n");
    await writeFile(`${path}.new`, "successor\n");
    await chown(`${path}.new`, ownerUid, 60);
    await rename(`${path}.new`, path);
    await sees("successor\n");
    // Neither a FIFO nor a file of another user replaces it.
    await as(ownerUid, "sh", "-c", `mv ${path} ${path}.2; mkfifo ${path}`);
    await appendFile(`${path}.2`, "still here\n");
    await sees("still here\n");
    const helpers = async () => {
      const open = [];
      for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
        try {
          const links = execFileSync("sh", ["-c", `readlink /proc/${pid}/fd/* 2>/dev/null || true`], {
            encoding: "utf8",
          });
          if (links.includes(`${path}.2`)) open.push(pid);
        } catch {
          // The process has ended.
        }
      }
      return open;
    };
    t.is((await helpers()).length, 1);
    stop.abort();
    await t.throwsAsync(following);
    await eventually(async () => assert.deepEqual(await helpers(), []), 30_000);
    for (const place of [home, `${home}/app.log`, "/etc/shadow", "/dev/zero", `${home}/none`]) {
      t.truthy(await errorOf(files.tailFile({ path: place, follow: true })), place);
    }
    const token = daemon.tokenClient(FileService);
    t.like(await errorOf(token.tailFile({ path: join(daemon.dir, "api.token") })), { reason: "protected" });
  },
);

// Limits of a caller's concurrent file operations, and their cancellation.

const mostCalls = 16;
const waitMs = 30_000;

rootTest("a user's concurrent file operations are limited, and nobody else waits for them", async (t) => {
  const { home, connection, daemon, as } = await newGround();
  const path = join(home, "log");
  await as(ownerUid, "sh", "-c", `echo line > ${path}`);
  const files = connection.client(FileService, "grpc");
  const left = Array.from({ length: mostCalls }, () => new AbortController());
  for (const { signal } of left) {
    const tail = files.tailFile({ path, lines: 1, follow: true }, { signal })[Symbol.asyncIterator]();
    assert.equal((await tail.next()).done, false);
    void tail.next().catch(() => undefined);
  }
  const refused = await errorOf(files.statPath({ path }));
  t.like(refused, { code: "ResourceExhausted", reason: "too_many" });
  t.regex(refused.message, /16 of your file operations are running/);
  t.is((await daemon.client(FileService).statPath({ path })).name, "log");
  left[0]?.abort();
  await eventually(async () => assert.equal((await files.statPath({ path })).name, "log"), waitMs);
  for (const each of left) each.abort();
});

rootTest("a canceled deletion leaves the rest, and so does a canceled mode change", async (t) => {
  const { home, connection, as } = await newGround();
  const files = connection.client(FileService, "grpc");
  const many = 60_000;
  await as(ownerUid, "sh", "-c", `mkdir ${home}/t; cd ${home}/t; seq ${many} | xargs touch`);
  const stop = new AbortController();
  const cut = await errorOf(
    (async () => {
      const events = files.deletePathsStream({ paths: [`${home}/t`] }, { signal: stop.signal });
      for await (const { event } of events) if (event.case === "progress") stop.abort();
    })(),
  );
  t.is(cut.code, "Canceled");
  // The helper process is notified a moment later.
  const rest = await eventually(async () => {
    const before = (await readdir(join(home, "t"))).length;
    await new Promise((resolve) => setTimeout(resolve, 500));
    const after = (await readdir(join(home, "t"))).length;
    assert.equal(after, before);
    return after;
  }, waitMs);
  t.true(rest > 0 && rest < many, `${rest} are left`);
});

test("the first thousand failures in a tree are stored, and all are counted", (t) => {
  const walk = new Walk("/tree", { leaf: () => undefined });
  const denied = Object.assign(new Error("x".repeat(10_000)), { code: "EACCES" });
  for (let count = 0; count < 1_100; count++) walk.fail(`/tree/${count}`, denied);
  t.deepEqual([walk.failures.length, walk.failureCount], [1_000, 1_100]);
  t.is(walk.failures[0]?.message.length, 256);
});

test("a canceled copy of a large file stops in the middle of it", async (t) => {
  await using place = await mkdtempDisposable(join(tmpdir(), "svc-bounds-"));
  // Another file system, so that the blocks cannot be shared.
  await using far = await mkdtempDisposable("/dev/shm/svc-bounds-");
  const piece = 1 << 20;
  await writeFile(join(far.path, "large"), Buffer.alloc(16 * piece, "x"));
  let pieces = 0;
  class InPieces extends Syscalls {
    override nextData(_fd: number, from: number, size: number) {
      pieces++;
      return from < size ? { start: from, end: from + piece } : undefined;
    }
  }
  const stop = new AbortController();
  const args = {
    ...{ from: join(far.path, "large"), to: join(place.path, "copy") },
    ...{ overwrite: false, temporary: ".svc-0.tmp" },
  };
  const copying = copyPath(new InPieces(), args, () => stop.abort(new Error("stopped")), stop.signal);
  await t.throwsAsync(copying, { message: "stopped" });
  t.true(pieces <= 2, `${pieces} pieces`);
  t.deepEqual(await readdir(place.path), []);
});

// Records of temporary files of file operations: who removes them, and when.

async function world() {
  const { store, ...rest } = await temporaryStore();
  const discarded: Stage[] = [];
  const warnings: unknown[] = [];
  const userHelpers = {
    hostFiles: (uid: number) =>
      uid === 404
        ? Promise.reject(new SvcError("not_found", "user not found"))
        : Promise.resolve({
            discard: (stage: Stage) => {
              discarded.push(stage);
              return Promise.resolve();
            },
          }),
  } as unknown as UserHelpers;
  const say = (...said: unknown[]): void => void warnings.push(said);
  const log = { warn: say, error: say };
  const stagesOf = (executor: Executor) => new FileStages({ store, executor, userHelpers, log });
  /** Starts another daemon over the same store; resolves when it has cleaned up. */
  const sweep = async (): Promise<void> => {
    await using stages = stagesOf(await currentExecutor());
    stages.start();
  };
  const kept = () => store.all<{ name: string }>("SELECT name FROM file_stages").map(({ name }) => name);
  return { ...rest, discarded, warnings, stagesOf, sweep, kept };
}

test("temporary files of an exited process are removed, and those of a running one are not", async (t) => {
  await using w = await world();
  const own = await currentExecutor();
  // Another process had this PID before.
  const ended = { ...own, startTicks: own.startTicks + 1 };
  const stage = (name: string, uid = 5): Stage => ({ name, uid, beside: ["/srv/a", "/srv/b/x"] });
  await w.stagesOf(ended).keep(stage("left"));
  await w.stagesOf(ended).keep(stage("nobody's", 404));
  await w.stagesOf(own).keep(stage("working"));
  await w.sweep();
  t.deepEqual(w.discarded, [stage("left")]);
  t.deepEqual(w.kept(), ["working"]);
  t.is(w.warnings.length, 1, "neither is requested again");
  await w.stagesOf(own).forget("working");
  t.deepEqual(w.kept(), []);
});
