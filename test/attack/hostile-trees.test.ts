/** Malicious trees: planted symlinks, FIFOs, devices, depth, missing permissions, large numbers. */
import { execFileSync } from "node:child_process";
import { chmod, chown, lchown, mkdir, readFile, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import test from "ava";
import { type World, assertFails, createWorld, isRoot, rootTest, someUid } from "../run-as/support/world.ts";
import { keepInMemory } from "../support/in-memory.ts";
import { attackAs } from "./as-user.ts";

keepInMemory();

/** `outside` is a directory next to the application, with a canary. The application contains links to it. */
async function plantLinks({ dir, app }: World): Promise<string> {
  const outside = join(dir, "outside");
  await mkdir(join(outside, "sub"), { recursive: true });
  await writeFile(join(outside, "canary"), "canary");
  for (const path of [outside, join(outside, "sub"), join(outside, "canary")]) {
    await chmod(path, 0o777);
    // Writable for the user, so that only our checks protect it.
    await lchown(path, someUid, -1);
  }
  await mkdir(join(app, "data"));
  await lchown(join(app, "data"), someUid, -1);
  await symlink(outside, join(app, "out"));
  await symlink(join(outside, "canary"), join(app, "data/file"));
  await symlink(outside, join(app, "data/dir"));
  await symlink("/etc/shadow", join(app, "data/shadow"));
  return outside;
}

test("no operation follows a planted symlink", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const outside = await plantLinks(world);
  const links = ["out/canary", "out/sub/x", "data/dir/canary"];
  for (const path of links) {
    for (const work of [
      user.stat(app, path),
      user.readFile(app, path),
      user.writeFile(app, path, "x"),
      user.makeDirs(app, [path]),
      user.rename(app, path, "stolen"),
      user.rename(app, "data/shadow", path),
      user.removeTree(app, path),
      user.measure(app, [path]),
      user.readTail(app, [path], { maxLines: 1 }),
      buffer(user.openRead(app, path)),
      user.copyTree({ root: app, path }, { root: app, path: "copy" }),
      user.copyTree({ root: app, path: "data" }, { root: app, path }),
      user.extractTar(app, path, Readable.from([])),
      user.runCommand(["true"], { cwd: { root: app, path } }),
      user.spawnDetached(["true"], { log: { root: app, path } }),
    ]) {
      await assertFails(t, work, "failed_precondition", /symbolic links are not followed/);
    }
  }
  for (const path of ["data/file", "data/shadow"]) {
    for (const work of [
      user.readFile(app, path),
      user.readTail(app, [path], { maxLines: 1 }),
      buffer(user.openRead(app, path)),
      user.spawnDetached(["true"], { log: { root: app, path } }),
    ]) {
      await assertFails(t, work, "failed_precondition");
    }
  }
  await assertFails(t, user.list(app, "out"), "failed_precondition");
  t.is(
    (await user.measure(app, ["data/dir", "data/file", "out"])).sizes.reduce((sum, size) => sum + size),
    0,
  );
  t.is(await readFile(join(outside, "canary"), "utf8"), "canary");
});

test("writing to a symlink replaces the link; removing and copying treat it as a link", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const outside = await plantLinks(world);
  await user.writeFile(app, "data/file", "mine");
  t.is((await user.stat(app, "data/file"))?.type, "file");
  await user.copyTree({ root: app, path: "data" }, { root: app, path: "copy" });
  t.is((await user.stat(app, "copy/shadow"))?.type, "symlink");
  t.is((await user.stat(app, "copy/dir"))?.type, "symlink");
  await user.removeTree(app, "out");
  await user.removeTree(app, "data");
  await user.removeTree(app, "copy");
  t.deepEqual(await user.list(app, "."), []);
  t.is(await readFile(join(outside, "canary"), "utf8"), "canary");
});

test("a tar with paths outside of its directory changes nothing outside", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const outside = await plantLinks(world);
  // A link member, then a file through it.
  const tar = execFileSync("sh", [
    "-c",
    `cd "$0" && mkdir m1 m2 && ln -s ${outside} m1/x && mkdir m2/x && echo evil > m2/x/canary && echo evil > m2/x/new &&
     tar -cf one.tar -C m1 x && tar --append -f one.tar -C m2 x/canary x/new && cat one.tar`,
    world.dir,
  ]);
  await user.extractTar(app, "repo", Readable.from([tar])).catch((error: unknown) => t.log(String(error)));
  t.is(await readFile(join(outside, "canary"), "utf8"), "canary");
  t.is(execFileSync("ls", [outside], { encoding: "utf8" }), "canary\nsub\n");
});

test("a FIFO is rejected at once", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.runCommand(["mkfifo", "fifo"], { cwd: app });
  const start = performance.now();
  for (const work of [
    user.readFile(app, "fifo"),
    user.readTail(app, ["fifo"], { maxLines: 1 }),
    buffer(user.openRead(app, "fifo")),
  ]) {
    await assertFails(t, work, "failed_precondition", /not a regular file/);
  }
  await t.throwsAsync(user.spawnDetached(["true"], { log: { root: app, path: "fifo" } }));
  t.true(performance.now() - start < 20_000);
});

rootTest("a device is rejected at once", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  execFileSync("mknod", ["-m", "666", join(app, "zero"), "c", "1", "5"]);
  const start = performance.now();
  await assertFails(t, user.readFile(app, "zero"), "failed_precondition", /not a regular file/);
  await assertFails(t, user.readTail(app, ["zero"], { maxLines: 1 }), "failed_precondition");
  await assertFails(t, user.readFile("/dev", "zero"), "failed_precondition");
  t.true(performance.now() - start < 20_000);
});

/** Makes `depth` nested directories, with a longer path than the kernel accepts. */
const dig = (depth: number) =>
  `import os\nfor i in range(${depth}):\n os.mkdir("d" * 200); os.chdir("d" * 200)\nopen("f", "w").write("x" * 9000)\n`;

test("2,000 levels are measured and removed", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const dug = await user.runCommand(["python3", "-c", dig(2000)], { cwd: app });
  if (dug.exitCode !== 0) {
    t.log(`skipped: ${dug.stderr}`);
    t.pass();
    return;
  }
  const {
    sizes: [size = 0],
  } = await user.measure(app, ["d".repeat(200)]);
  t.true(size >= 9000);
  const { freedBytes } = await user.removeTree(app, "d".repeat(200));
  t.is(freedBytes, size);
  t.deepEqual(await user.list(app, "."), []);
});

test("directories without permission bits are removed", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.runCommand(
    ["sh", "-c", "mkdir -p a/b/c d/e && touch a/b/f d/e/f && chmod 000 a/b/c a/b a d/e d"],
    {
      cwd: app,
    },
  );
  if (isRoot) t.is((await user.measure(app, ["a"])).sizes[0], (await user.measure(app, ["d"])).sizes[0]);
  await user.removeTree(app, "a");
  await chmod(app, 0);
  await user.removeTree(app, ".");
  t.deepEqual(await user.list(app, "."), []);
});

test("names that are not UTF-8 are measured, copied and removed", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.runCommand(
    ["sh", "-c", "mkdir -p d/$(printf 'x\\377') && echo hi > d/$(printf 'x\\377/\\376f')"],
    {
      cwd: app,
    },
  );
  await user.copyTree({ root: app, path: "d" }, { root: app, path: "e" }, { exclude: ["none/none"] });
  const {
    sizes: [d, e],
  } = await user.measure(app, ["d", "e"]);
  t.is(d, e);
  t.deepEqual(await user.list(app, "d"), []);
  await user.removeTree(app, "d");
  await user.removeTree(app, "e");
  t.deepEqual(await user.list(app, "."), []);
});

test("100,000 files are measured and removed while other requests are served", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  const make =
    'import os\nfor d in range(100):\n os.mkdir(f"m/{d}")\n for f in range(1000): os.close(os.open(f"m/{d}/{f}", os.O_CREAT))\n';
  await user.makeDirs(app, ["m"]);
  const made = await user.runCommand(["python3", "-c", make], { cwd: app });
  t.is(made.exitCode, 0, made.stderr);
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  let slowestMs = 0;
  const over = new AbortController();
  const asking = (async () => {
    while (!over.signal.aborted) {
      const start = performance.now();
      await user.stat(app, "m");
      slowestMs = Math.max(slowestMs, performance.now() - start);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  })();
  const start = performance.now();
  const {
    sizes: [size = 0],
  } = await user.measure(app, ["m"]);
  const measured = performance.now();
  const { freedBytes } = await user.removeTree(app, "m");
  const removed = performance.now();
  over.abort();
  await asking;
  delay.disable();
  t.is(freedBytes, size);
  t.log(
    `measure ${Math.round(measured - start)} ms, remove ${Math.round(removed - measured)} ms, slowest stat meanwhile ` +
      `${Math.round(slowestMs)} ms, event loop p99 ${Math.round(delay.percentile(99) / 1e6)} ms`,
  );
  t.true(slowestMs < 1_000 + (removed - start) / 4, `${slowestMs} ms`);
  t.is(await user.stat(app, "m"), undefined);
});

// Only files of the owner are touched, however fast a name changes between a directory and a link.

const rounds = 40;
const secret = "the canary";

rootTest(
  "no operation leaves the app's directory while its owner swaps a directory with a link",
  async (t) => {
    if (!isRoot) return;
    await using world = await createWorld();
    const { dir, app, user } = world;
    // Writable for the owner, so that only our checks protect it.
    const outside = join(dir, "outside");
    await mkdir(join(outside, "sub"), { recursive: true });
    await writeFile(join(outside, "canary"), secret);
    await mkdir(join(app, "data/sub"), { recursive: true });
    await writeFile(join(app, "data/canary"), "mine");
    await symlink(outside, join(app, "swap"));
    for (const path of [outside, join(outside, "sub"), join(outside, "canary"), join(app, "data")])
      await chown(path, someUid, someUid);
    for (const path of ["data/sub", "data/canary"]) await chown(join(app, path), someUid, someUid);
    await chmod(outside, 0o755);
    await using loop = attackAs(someUid, "exchange.mjs", { paths: [join(app, "data"), join(app, "swap")] });
    t.is(await loop.nextLine(), "exchanging");

    const read = new Set<string>();
    let [done, refused] = [0, 0];
    const attempt = async (work: Promise<unknown>): Promise<void> => {
      await work.then(
        () => done++,
        () => refused++,
      );
    };
    const see = async (work: Promise<Buffer>): Promise<void> =>
      attempt(work.then((bytes) => read.add(bytes.toString())));
    for (let round = 0; round < rounds; round++) {
      await see(user.readFile(app, "data/canary"));
      await see(buffer(user.openRead(app, "data/canary")));
      await see(user.readTail(app, ["data/canary"], { maxLines: 1 }).then(({ data }) => data));
      await attempt(user.writeFile(app, "data/canary", "mine"));
      await attempt(user.makeDirs(app, ["data/made"]));
      await attempt(user.rename(app, "data/made", "data/renamed"));
      await attempt(user.removeTree(app, "data/renamed"));
      await attempt(user.extractTar(app, "data/sub", Readable.from([])));
      await attempt(user.copyTree({ root: app, path: "data" }, { root: app, path: `copy-${round}` }));
      await see(user.readFile(app, `copy-${round}/canary`));
      await attempt(user.removeTree(app, `copy-${round}`));
    }
    t.log(`${done} done, ${refused} refused`);
    t.true(done > rounds && refused > rounds, "both were met");
    t.deepEqual([...read], ["mine"]);
    t.is(await readFile(join(outside, "canary"), "utf8"), secret);
    t.deepEqual((await readdir(outside)).toSorted(), ["canary", "sub"]);
  },
);
