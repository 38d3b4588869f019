import { execFileSync } from "node:child_process";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import type { CopyProgress } from "../../src/run-as/user-helper-types.ts";
import { assertFails, createWorld } from "./support/world.ts";

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
