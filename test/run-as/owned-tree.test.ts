/** Which entries of an app's directory the user may rename. */
import { chmod, chown, lstat, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { programs } from "../support/programs.ts";

const rootTest = isRoot ? test : test.skip;
const nobody = 65534;

const userHelpers = createUserHelpers({ helperPath: programs.userHelper });
test.after.always(() => userHelpers[Symbol.asyncDispose]());

/** The layout of an earlier svc: everything belongs to the user. */
async function legacyTree(t: { teardown: (end: () => Promise<void>) => void }) {
  const parent = await mkdtemp(join(tmpdir(), "svc-tree-"));
  await chmod(parent, 0o755);
  t.teardown(() => rm(parent, { recursive: true, force: true }));
  const root = join(parent, "app");
  for (const path of ["", "repo", "data", "data/a", "data/a/db", "data/b"]) {
    await mkdir(join(root, path));
    await chown(join(root, path), nobody, nobody);
  }
  const tree = await userHelpers.tree(root, nobody);
  const fixed = async (): Promise<string[]> => {
    const all = ["", "repo", "data", "data/a", "data/a/db", "data/b"];
    const owners = await Promise.all(all.map(async (path) => (await lstat(join(root, path))).uid));
    return all.filter((_, at) => owners[at] === 0);
  };
  return { root, tree, fixed };
}

rootTest(
  `directories that lead to a mount belong to the daemon while it is mounted${needsRoot}`,
  async (t) => {
    const { root, tree, fixed } = await legacyTree(t);
    const user = await userHelpers.as(nobody);
    await tree.claim();
    t.deepEqual(await fixed(), [""]);
    await tree.hold(["data/a/db", "repo"]);
    t.deepEqual(await fixed(), ["", "data", "data/a"]);
    for (const path of ["data", "data/a", "data/a/db", "repo"]) {
      await t.throwsAsync(user.rename(root, path, `${path}.gone`), { message: /permission denied/ }, path);
    }
    t.is((await user.list(root, "data")).length, 2, "the user may look");
    await user.writeFile(root, "data/a/db/row", "1");
    await tree.writeFile("data/settings.json", "{}");
    t.like(await lstat(join(root, "data/settings.json")), { uid: nobody, mode: 0o100600 });
    await tree.hold(["data"]);
    t.deepEqual(await fixed(), [""], "what is not on the way any more is the user's again");
    await user.rename(root, "data/a", "data/c");
  },
);

rootTest(`a link on the way to a mount is not followed${needsRoot}`, async (t) => {
  const { root, tree } = await legacyTree(t);
  const outside = join(root, "..", "outside");
  await mkdir(join(outside, "db"), { recursive: true });
  await symlink(outside, join(root, "data/link"));
  await t.throwsAsync(tree.hold(["data/link/db"]), { message: /a parent of it is a symlink/ });
  t.is((await lstat(outside)).mode & 0o777, (await lstat(join(outside, "db"))).mode & 0o777);
  await tree.destroy();
  t.true((await lstat(join(outside, "db"))).isDirectory(), "nor at the removal");
});

rootTest(`a tree with directories of both is copied and removed${needsRoot}`, async (t) => {
  const { root, tree } = await legacyTree(t);
  await writeFile(join(root, "data/a/db/row"), "1");
  await chown(join(root, "data/a/db/row"), nobody, nobody);
  await tree.hold(["data/a/db"]);
  await tree.writeFile("data/a/conf", "x");
  await tree.copy("data", tree, "data.copy");
  t.is(await readFile(join(root, "data.copy/a/db/row"), "utf8"), "1");
  t.like(await lstat(join(root, "data.copy/a/conf")), { uid: nobody });
  await tree.remove("data");
  await tree.rename("data.copy", "data");
  t.is(await readFile(join(root, "data/a/conf"), "utf8"), "x");
  await tree.destroy();
  await t.throwsAsync(lstat(root), { code: "ENOENT" });
});

rootTest(
  `empty directories of root in a user's directory are removed with the tree${needsRoot}`,
  async (t) => {
    const { root, tree } = await legacyTree(t);
    await tree.claim();
    const user = await userHelpers.as(nobody);
    await user.writeFile(root, "data/a/db/row", "1");
    await user.makeDirs(root, ["data/a/db/own/deep"]);
    for (const path of ["data/a/db/own/deep/x", "data/a/db/y"]) {
      await mkdir(join(root, path, "1/2"), { recursive: true });
    }
    await mkdir(join(root, "data/a/db/y/3"));
    await t.throwsAsync(user.removeTree(root, "data"), { message: /permission denied/ });
    t.true((await tree.remove("data")).freedBytes > 0);
    t.deepEqual(
      (await user.list(root, ".")).map(({ name }) => name),
      ["repo"],
    );
  },
);

for (const [what, keep] of [
  ["a file", (dir: string) => writeFile(join(dir, "kept"), "1")],
  ["a link", (dir: string) => symlink("/etc", join(dir, "kept"))],
  [
    "a directory of others",
    (dir: string) => mkdir(join(dir, "kept")).then(() => chown(join(dir, "kept"), 1, 1)),
  ],
  [
    "a directory that others may write to",
    (dir: string) => mkdir(join(dir, "kept")).then(() => chmod(join(dir, "kept"), 0o777)),
  ],
] as const) {
  rootTest(`a directory of root that contains ${what} is not removed${needsRoot}`, async (t) => {
    const { root, tree } = await legacyTree(t);
    const stuck = join(root, "data/a/db/x/1");
    await mkdir(stuck, { recursive: true });
    await keep(stuck);
    await t.throwsAsync(tree.destroy(), { message: /permission denied; check owner and mode/ });
    t.truthy(await lstat(join(stuck, "kept")));
  });
}

rootTest(
  `directories that root made in a user's home stay root's in the tree of an app${needsRoot}`,
  async (t) => {
    const { root, tree } = await legacyTree(t);
    const user = await userHelpers.as(nobody);
    const home = join(root, "../home");
    await mkdir(join(home, "site/kept/deep"), { recursive: true });
    await mkdir(join(home, "site/mount"));
    await chmod(join(home, "site/kept"), 0o700);
    await writeFile(join(home, "site/kept/deep/key"), "secret");
    for (const path of ["", "site", "site/mount"]) await chown(join(home, path), nobody, nobody);
    const move = ["mv", join(home, "site"), join(root, "data/site")];
    t.is((await user.runCommand(move)).exitCode, 0);

    await tree.hold(["data/site/mount"]);
    const kept = join(root, "data/site/kept");
    const isRoots = async (): Promise<void> => {
      for (const path of [kept, join(kept, "deep")]) t.like(await lstat(path), { uid: 0, gid: 0 });
      t.is((await lstat(kept)).mode & 0o7777, 0o700);
    };
    await isRoots();
    await t.throwsAsync(tree.hold(["data/site/kept/deep/mount"]), {
      message: /is not a directory, or a parent of it is a symlink/,
    });
    await t.throwsAsync(tree.hold(["data/site/kept/mount"]), {
      message: /is not a directory, or a parent of it is a symlink/,
    });
    await t.throwsAsync(tree.copy("data", tree, "data.copy"), { instanceOf: SvcError });
    await t.throwsAsync(tree.destroy(), { message: /is not a directory, or a parent of it is a symlink/ });
    await isRoots();
    t.is(await readFile(join(kept, "deep/key"), "utf8"), "secret");
  },
);

rootTest(`empty directories of root on the way to a mount become the daemon's${needsRoot}`, async (t) => {
  const { root, tree } = await legacyTree(t);
  await mkdir(join(root, "data/new/deep"), { recursive: true });
  await tree.hold(["data/new/mount"]);
  t.like(await lstat(join(root, "data/new")), { uid: 0, gid: nobody, mode: 0o40750 });
  await tree.hold(["repo"]);
  t.like(await lstat(join(root, "data/new")), { uid: nobody });
});
