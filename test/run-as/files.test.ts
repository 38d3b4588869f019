/** Files as a user: created, replaced, copied and read. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { chmod, link, lstat, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import test from "ava";
import fc from "fast-check";
import { writeFile as writeWhole } from "../../src/run-as/helper/files.mjs";
import { Syscalls } from "../../src/run-as/helper/host/syscalls.mjs";
import type { CopyProgress } from "../../src/run-as/user-helper-types.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { assertFails, createWorld, rootTest, someUid } from "./support/world.ts";

test("directories and files are made with the exact mode, as their owner", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.makeDirs(app, ["a/b", join(app, "c"), "."]);
  await user.writeFile(app, "a/b/f", "text");
  for (const [path, mode] of [
    ["a", 0o700],
    ["a/b", 0o700],
    ["c", 0o700],
    ["a/b/f", 0o600],
  ] as const) {
    const stats = await lstat(join(app, path));
    t.deepEqual([stats.uid, stats.mode & 0o7777], [someUid, mode], path);
  }
  await chmod(join(app, "a"), 0o2775);
  await user.makeDirs(app, ["a", "a/d"]);
  t.is((await lstat(join(app, "a/d"))).mode & 0o7777, 0o700, "not its parent's group either");
  t.is((await lstat(join(app, "a"))).mode & 0o777, 0o775, "one that exists is left as it is");
});

test("a file is replaced as a whole, and no temporary file is left", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const content = Buffer.alloc(3_000_000, "x");
  await user.writeFile(app, "f", content);
  await user.writeFile(app, "f", "short");
  t.is((await user.readFile(app, "f")).toString(), "short");
  t.deepEqual(await user.list(app, "."), [{ name: "f", type: "file" }]);
  await user.writeFile(app, "f", content);
  t.true((await user.readFile(app, "f")).equals(content));
  await assertFails(t, user.readFile(app, "f", { maxBytes: 2_999_999 }), "resource_exhausted");
  t.is((await user.readFile(app, "f", { maxBytes: 3_000_000 })).length, 3_000_000);
});

test("a file has no name until it is on disk, so nothing stays of an interrupted upload", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-unnamed-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const seen: string[][] = [];
  class Watched extends Syscalls {
    override link(fd: number, parent: number, name: string): void {
      seen.push(readdirSync(dir));
      super.link(fd, parent, name);
    }
  }
  const write = (text: string) => writeWhole(new Watched(), { root: dir, path: "f" }, Buffer.from(text));
  await write("one");
  await write("two");
  t.deepEqual(seen, [[], ["f"]]);
  t.deepEqual(readdirSync(dir), ["f"]);
  t.is(await readFile(join(dir, "f"), "utf8"), "two");
});

test("stat and list return the entries", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.writeFile(app, "f", "12345");
  await chmod(join(app, "f"), 0o640);
  await user.makeDirs(app, ["d"]);
  await symlink("/nowhere", join(app, "l"));
  t.like(await user.stat(app, "f"), { type: "file", sizeBytes: 5, mode: 0o640, uid: someUid });
  t.is((await user.stat(app, "l"))?.type, "symlink");
  t.is((await user.stat(app, "."))?.type, "directory");
  t.is(await user.stat(app, "none"), undefined);
  t.is(await user.stat(app, "f/none"), undefined);
  t.deepEqual(await user.list(app, "."), [
    { name: "d", type: "directory" },
    { name: "f", type: "file" },
    { name: "l", type: "symlink" },
  ]);
  await assertFails(t, user.list(app, ".", { maxEntries: 2 }), "resource_exhausted");
  await assertFails(t, user.list(app, "f"), "failed_precondition");
  await assertFails(t, user.list(app, "none"), "not_found");
});

test("rename moves, replaces a file, and rejects a directory that is not empty", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.makeDirs(app, ["a", "b/c"]);
  await user.writeFile(app, "a/f", "new");
  await user.writeFile(app, "b/f", "old");
  await user.rename(app, "a/f", "b/f");
  t.is((await user.readFile(app, "b/f")).toString(), "new");
  await assertFails(t, user.rename(app, "a", "b"), "failed_precondition", /not empty/);
  await assertFails(t, user.rename(app, "none", "x"), "not_found");
  await assertFails(t, user.rename(app, ".", "x"), "invalid_argument");
});

test("measure agrees with du, hard links counted once", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.makeDirs(app, ["a/deep/er", "b"]);
  await user.writeFile(app, "a/deep/er/f", Buffer.alloc(100_000));
  await user.writeFile(app, "b/g", Buffer.alloc(50_000));
  await link(join(app, "a/deep/er/f"), join(app, "b/f"));
  await user.runCommand(["truncate", "-s", "1G", "sparse"], { cwd: app });
  await symlink("/usr", join(app, "b/usr"));
  const du = (...paths: string[]) =>
    execFileSync("du", ["-s", "-B1", ...paths.map((path) => join(app, path))], { encoding: "utf8" })
      .trim()
      .split("\n")
      .map((line) => Number(line.split("\t")[0]));
  t.deepEqual((await user.measure(app, ["a", "b"])).sizes, du("a", "b"));
  t.deepEqual((await user.measure(app, ["b", "a"])).sizes, du("b", "a"));
  t.deepEqual((await user.measure(app, ["."])).sizes, du("."));
  t.deepEqual((await user.measure(app, ["b/g", "none"])).sizes, [...du("b/g"), 0]);
});

test("destroying a stream cancels its work, even if no data arrives", async (t) => {
  await using world = await createWorld();
  const path = join(world.app, "f");
  await world.user.writeFile(world.app, "f", "line\n");
  const files = await world.userHelpers.hostFiles(someUid);
  const following = files.tail(path, { lines: 1, follow: true });
  await nextEvent(following, "data");
  const script = 'readlink /proc/[0-9]*/fd/* 2>/dev/null | grep -cFx -- "$0"; true';
  const readers = () => execFileSync("sh", ["-c", script, path], { encoding: "utf8" }).trim();
  t.is(readers(), "1");
  following.destroy();
  await eventually(() => assert.equal(readers(), "0"));
});

test("openRead streams from an offset, with backpressure, and ends when it is destroyed", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const content = Buffer.from(Array.from({ length: 5_000_000 }, (_, index) => index % 251));
  await user.writeFile(app, "f", content);
  t.true((await buffer(user.openRead(app, "f", { offset: 7 }))).equals(content.subarray(7)));
  t.is((await buffer(user.openRead(app, "f", { offset: 9_000_000 }))).length, 0);
  const cut = user.openRead(app, "f");
  for await (const chunk of cut) {
    t.true((chunk as Buffer).length > 0);
    break;
  }
  await assertFails(t, buffer(user.openRead(app, "none")), "not_found");
  t.is((await user.stat(app, "f"))?.sizeBytes, 5_000_000, "the helper goes on working");
});

test("a tar stream is unpacked as the user, without special bits", async (t) => {
  await using world = await createWorld();
  const { app, dir, user } = world;
  await mkdir(join(dir, "src/sub"), { recursive: true });
  await writeFile(join(dir, "src/sub/run"), "#!/bin/sh\n");
  await chmod(join(dir, "src/sub/run"), 0o4755);
  const tar = execFileSync("tar", ["-c", "-C", join(dir, "src"), "."]);
  await user.extractTar(app, "repo", Readable.from([tar]));
  const stats = await lstat(join(app, "repo/sub/run"));
  t.deepEqual([stats.uid, stats.mode & 0o7777], [someUid, 0o755]);
  const tooMuch = user.extractTar(app, "repo2", Readable.from([tar]), { maxBytes: 1000 });
  await assertFails(t, tooMuch, "resource_exhausted");
  await assertFails(
    t,
    user.extractTar(app, "repo3", Readable.from([Buffer.from("no tar")])),
    "failed_precondition",
  );
  const broken = new Readable({
    read() {
      this.destroy(new Error("git died"));
    },
  });
  await t.throwsAsync(user.extractTar(app, "repo4", broken), { message: "git died" });
});

test("every operation rejects an invalid path and names it", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const hostile = fc.oneof(
    fc.tuple(fc.string(), fc.string()).map(([before, after]) => `${before}\0${after}`),
    fc.tuple(fc.string(), fc.string()).map(([before, after]) => `${before}/../${after}`),
    fc.constantFrom(
      "..",
      "../app/f",
      "a/..",
      "/etc/passwd",
      "\ud800",
      "a/\udfff",
      `${app}-evil/f`,
      `${app}/../app/f`,
    ),
  );
  await fc.assert(
    fc.asyncProperty(hostile, async (path) => {
      for (const work of [
        user.stat(app, path),
        user.list(app, path),
        user.readFile(app, path),
        user.writeFile(app, path, "x"),
        user.makeDirs(app, [path]),
        user.rename(app, path, "x"),
        user.rename(app, "x", path),
        user.removeTree(app, path),
        user.measure(app, [path]),
        user.readTail(app, [path], { maxLines: 1 }),
        user.copyTree({ root: app, path }, { root: app, path: "x" }),
        user.extractTar(app, path, Readable.from([])),
        user.spawnDetached(["true"], { log: { root: app, path } }),
      ]) {
        await assertFails(t, work, "invalid_argument");
      }
    }),
    { numRuns: 30 },
  );
  t.deepEqual(await user.list(app, "."), []);
});

test("unusual but valid names work", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  for (const name of ["-rf", "a b", "..x", "...", "~", "ä€𝄞", "new\nline", "*", "%2e%2e", "x".repeat(255)]) {
    await user.writeFile(app, name, name);
    t.is((await user.readFile(app, name)).toString(), name);
    await user.removeTree(app, name);
    t.is(await user.stat(app, name), undefined);
  }
  await assertFails(t, user.writeFile(app, "x".repeat(256), ""), "invalid_argument");
});

rootTest("the kernel decides: another user's files are out of reach", async (t) => {
  await using world = await createWorld();
  const { dir, user } = world;
  await mkdir(join(dir, "private"), { mode: 0o700 });
  await writeFile(join(dir, "private/f"), "root's");
  await writeFile(join(dir, "open"), "root's", { mode: 0o600 });
  for (const work of [
    user.readFile(dir, "open"),
    user.readFile(dir, "private/f"),
    user.writeFile(dir, "new", "x"),
    user.makeDirs(dir, ["new"]),
    user.removeTree(dir, "open"),
    user.rename(dir, "open", "closed"),
    user.copyTree({ root: dir, path: "private" }, { root: world.app, path: "copy" }),
    user.runCommand(["true"], { cwd: join(dir, "private") }).then(() => undefined),
  ]) {
    const error = await t.throwsAsync(work);
    t.regex(String(error), /permission denied|cannot be entered/i);
  }
  t.is(await readFile(join(dir, "open"), "utf8"), "root's");
});

rootTest("an owned directory is made only where nobody else writes", async (t) => {
  await using world = await createWorld();
  const { dir, userHelpers, app } = world;
  await assertFails(t, userHelpers.createOwnedDir(app, someUid), "already_exists");
  await mkdir(join(dir, "shared"));
  await chmod(join(dir, "shared"), 0o1777);
  await assertFails(t, userHelpers.createOwnedDir(join(dir, "shared/x"), someUid), "failed_precondition");
  await assertFails(t, userHelpers.createOwnedDir(join(app, "x"), someUid), "failed_precondition");
  await assertFails(t, userHelpers.removeOwnedDir(app, 1), "failed_precondition");
  await symlink("/etc", join(dir, "etc"));
  await assertFails(t, userHelpers.removeOwnedDir(join(dir, "etc"), 0), "failed_precondition");
  t.deepEqual(await userHelpers.removeOwnedDir(join(dir, "none"), someUid), { freedBytes: 0 });
});

const plant = `
  mkdir -p s/sub/deep s/empty s/logs/old && cd s &&
  echo one > f && chmod 640 f && ln f sub/hard && ln -s ../f sub/soft && ln -s /nowhere dangling &&
  truncate -s 512M sparse && printf x > sub/deep/x && echo gone > logs/old/l && echo gone > logs/new &&
  touch -d 2001-02-03T04:05:06.789 f sub/deep empty sub . && chmod 2711 empty && chmod 500 sub/deep`;

/** The attributes that cp -a keeps, one line per entry; times to a tenth of a millisecond. */
const look = (dir: string) =>
  execFileSync("sh", ["-c", 'cd "$0" && find . -printf "%P %y %m %n %l %T@\\n" | sort', dir], {
    encoding: "utf8",
  }).replaceAll(/ ([0-9.]+)$/gm, (_, seconds: string) => ` ${Number(seconds).toFixed(4)}`);

test("a copy has everything that cp -a keeps: modes, times, links, holes", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  t.like(await user.runCommand(["sh", "-c", plant], { cwd: app }), { exitCode: 0 });
  const progress: CopyProgress[] = [];
  const result = await user.copyTree(
    { root: app, path: "s" },
    { root: app, path: "d" },
    { onProgress: (event) => progress.push(event) },
  );
  t.is(look(join(app, "d")), look(join(app, "s")));
  const [{ sizes: s }, { sizes: d }] = [await user.measure(app, ["s"]), await user.measure(app, ["d"])];
  t.deepEqual(d, s, "holes stay holes");
  t.deepEqual([result.copiedBytes], s);
  t.is(result.entries, look(join(app, "s")).trim().split("\n").length);
  t.deepEqual(progress.at(-1), { doneBytes: result.copiedBytes, totalBytes: result.copiedBytes });
  await user.makeDirs(app, ["again"]);
  await user.copyTree({ root: app, path: "s" }, { root: app, path: "again" });
  t.is(look(join(app, "again")), look(join(app, "s")));
});

test("excluded paths are left out, hard links and everything else are copied", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.runCommand(["sh", "-c", plant], { cwd: app });
  const exclude = ["logs/new", "logs/old/l", "empty", "none/at/all", "dangling/x", "sparse"];
  const result = await user.copyTree({ root: app, path: "s" }, { root: app, path: "d" }, { exclude });
  await user.runCommand(["sh", "-c", "cp -a s e && cd e && rm -r logs/new logs/old/l empty sparse"], {
    cwd: app,
  });
  await user.runCommand(["sh", "-c", "for d in . logs logs/old; do touch -r s/$d e/$d; done"], { cwd: app });
  t.is(look(join(app, "d")), look(join(app, "e")));
  t.is(result.entries, look(join(app, "d")).trim().split("\n").length);
});

test("an impossible copy is rejected or fails with its reason", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.makeDirs(app, ["s", "full/x"]);
  await user.writeFile(app, "f", "x");
  const copy = (from: string, to: string, exclude: string[] = []) =>
    user.copyTree({ root: app, path: from }, { root: app, path: to }, { exclude });
  await assertFails(t, copy("none", "d"), "not_found");
  await assertFails(t, copy("f", "d"), "failed_precondition");
  await assertFails(t, copy("s", "full"), "failed_precondition", /must be empty/);
  await assertFails(t, copy("s", "f"), "failed_precondition");
  await assertFails(t, copy("s", "no/parent"), "not_found");
  await assertFails(t, copy("full", "full/x"), "invalid_argument", /cannot go into itself/);
  await assertFails(t, copy("s", "d", ["../x"]), "invalid_argument");
  await assertFails(t, copy("s", "d", ["."]), "invalid_argument");
});

test("a canceled copy stops writing", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const big = "mkdir s && for i in 1 2 3 4 5 6 7 8; do head -c 100M /dev/zero | tr '\\0' x > s/$i; done";
  await user.runCommand(["sh", "-c", big], { cwd: app });
  const stop = new AbortController();
  const progress: CopyProgress[] = [];
  const canceled = user.copyTree(
    { root: app, path: "s" },
    { root: app, path: "d" },
    {
      signal: stop.signal,
      onProgress: (event) => {
        progress.push(event);
        if (event.doneBytes > 0) stop.abort();
      },
    },
  );
  const error = await t.throwsAsync(canceled.then(() => t.log("done before it could be cancelled")));
  t.regex(String(error), /canceled/);
  const [before, after] = [await user.measure(app, ["d"]), await user.measure(app, ["d"])];
  t.deepEqual(after, before);
  t.true((before.sizes[0] ?? 0) < 800 * 2 ** 20);
  await rm(join(app, "s"), { recursive: true });
});

/** A simple reference implementation of the last lines of a text. */
function lastLines(text: string, count: number): string {
  const lines = text.split(/(?<=\n)/);
  return lines.slice(-count).join("");
}

test("the last lines are read across several files, oldest first", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const content = fc
    .array(fc.tuple(fc.nat({ max: 90_000 }), fc.boolean()), { maxLength: 6 })
    .map((lines) =>
      lines.map(([length, ends], index) => String(index).repeat(length) + (ends ? "\n" : "")).join(""),
    );
  await fc.assert(
    fc.asyncProperty(
      fc.array(content, { minLength: 1, maxLength: 4 }),
      fc.integer({ min: 1, max: 8 }),
      async (contents, maxLines) => {
        const files = contents.map((_, index) => `log.${index}`);
        for (const [index, text] of contents.entries()) await user.writeFile(app, `log.${index}`, text);
        const { data, truncated } = await user.readTail(app, [...files, "none"], { maxLines });
        t.is(data.toString(), lastLines(contents.join(""), maxLines));
        t.false(truncated);
      },
    ),
    { numRuns: 60 },
  );
});

test("the result is limited, at the start of a line if possible", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const text = Array.from({ length: 1000 }, (_, index) => `line ${String(index).padStart(4, "0")}\n`).join(
    "",
  );
  await user.writeFile(app, "log", text);
  for (const [maxBytes, expected] of [
    [30, text.slice(-30)],
    [29, text.slice(-20)],
    [31, text.slice(-30)],
    [5, text.slice(-5)],
  ] as const) {
    const { data, truncated } = await user.readTail(app, ["log"], { maxLines: 500, maxBytes });
    t.deepEqual([data.toString(), truncated], [expected, true], `${maxBytes} bytes`);
  }
});

test("reading the end of a file does not depend on its size", async (t) => {
  await using world = await createWorld();
  const { app, dir, user } = world;
  await user.runCommand(["sh", "-c", "truncate -s 64G log && echo >> log && seq 1 100 >> log"], { cwd: app });
  await user.readTail(app, ["log"], { maxLines: 1 });
  const start = performance.now();
  const { data } = await user.readTail(app, ["log"], { maxLines: 100 });
  const tookMs = performance.now() - start;
  t.is(data.toString().split("\n").length, 101);
  t.log(`100 lines of 64 GiB in ${tookMs.toFixed(1)} ms`);
  // Reading the whole file would take half a minute.
  t.true(tookMs < 5_000, `${tookMs} ms`);
  await writeFile(join(dir, "empty"), "");
  t.deepEqual(await user.readTail(dir, ["empty"], { maxLines: 1 }), {
    data: Buffer.alloc(0),
    truncated: false,
  });
});
