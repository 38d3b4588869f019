/** Who may rename what in an app's directory (decisions 39). */
import { chmod, chown, lstat, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { createIdentities } from "../../src/identity/identities.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { programs } from "../support/programs.ts";

const rootTest = isRoot ? test : test.skip;
const nobody = 65534;

const identities = createIdentities({ helperPath: programs.identityHelper });
test.after.always(() => identities[Symbol.asyncDispose]());

/** As an earlier svc has laid it out: all of it is the user's. */
async function legacyTree(t: { teardown: (end: () => Promise<void>) => void }) {
  const parent = await mkdtemp(join(tmpdir(), "svc-tree-"));
  await chmod(parent, 0o755);
  t.teardown(() => rm(parent, { recursive: true, force: true }));
  const root = join(parent, "app");
  for (const path of ["", "repo", "data", "data/a", "data/a/db", "data/b"]) {
    await mkdir(join(root, path));
    await chown(join(root, path), nobody, nobody);
  }
  const tree = await identities.tree(root, nobody);
  const fixed = async (): Promise<string[]> => {
    const all = ["", "repo", "data", "data/a", "data/a/db", "data/b"];
    const owners = await Promise.all(all.map(async (path) => (await lstat(join(root, path))).uid));
    return all.filter((_, at) => owners[at] === 0);
  };
  return { root, tree, fixed };
}

rootTest(`what leads to a mount is the daemon's for as long as it is mounted${needsRoot}`, async (t) => {
  const { root, tree, fixed } = await legacyTree(t);
  const user = await identities.as(nobody);
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
});

rootTest(`a link on the way to a mount is not followed${needsRoot}`, async (t) => {
  const { root, tree } = await legacyTree(t);
  const outside = join(root, "..", "outside");
  await mkdir(join(outside, "db"), { recursive: true });
  await symlink(outside, join(root, "data/link"));
  await t.throwsAsync(tree.hold(["data/link/db"]), { message: /lies behind, something else/ });
  t.is((await lstat(outside)).mode & 0o777, (await lstat(join(outside, "db"))).mode & 0o777);
  await tree.destroy();
  t.true((await lstat(join(outside, "db"))).isDirectory(), "nor at the removal");
});

rootTest(`a tree of both is copied and removed whole${needsRoot}`, async (t) => {
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
