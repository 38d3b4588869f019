/** File systems that users mount in the directories of their apps. */
import { execFileSync } from "node:child_process";
import { closeSync, existsSync, openSync } from "node:fs";
import { chmod, mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { changedMount } from "../../src/runtimes/containers/bind-verification.ts";
import { connectSupervisor } from "../../src/runtimes/process/supervisor-connection.ts";
import { isRoot } from "../support/daemon.ts";
import { programs } from "../support/programs.ts";

const canMount = isRoot && existsSync("/dev/fuse");
const mountTest = canMount ? test : test.skip;
const needsFuse = canMount ? "" : " (skipped: needs root and /dev/fuse)";
const nobody = 65_534;
const userHelpers = createUserHelpers({ helperPath: programs.userHelper });
test.after.always(() => userHelpers[Symbol.asyncDispose]());

/** Longer than any work on an empty tree. */
const silentMs = 20_000;

/** A mounted file system whose program never responds: everything that accesses it waits. */
function mountSilent(mounted: string, source = "none"): Disposable {
  const fd = openSync("/dev/fuse", "r+");
  const options = `fd=3,rootmode=40000,user_id=${nobody},group_id=${nobody},allow_other`;
  execFileSync("mount", ["-i", "-t", "fuse", "-o", options, source, mounted], {
    stdio: ["ignore", "ignore", "inherit", fd],
  });
  return {
    [Symbol.dispose]() {
      // Ends all that waits.
      closeSync(fd);
      execFileSync("umount", ["-l", mounted]);
    },
  };
}

function inTime(work: Promise<unknown>): Promise<unknown> {
  const late = wait(silentMs, undefined, { ref: false }).then(() => {
    throw new Error("it waits for the file system");
  });
  return Promise.race([work, late]);
}

async function makeDir(t: ExecutionContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-mounts-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await chmod(dir, 0o755);
  return dir;
}

const messageOf = (path: string): string => `a user has mounted a file system at ${path}: unmount it first`;

for (const [what, source, store] of [
  ["a file system that a user has mounted", "none", "store"],
  // The kernel's list of mounts has "-" before the type, too. The user chooses the source.
  ['a file system of a user with the source "-"', "-", "store"],
  ["a file system of a user in a store behind a symlink", "none", "link"],
] as const)
  mountTest(`the daemon does not wait for ${what}${needsFuse}`, async (t) => {
    const dir = await makeDir(t);
    await mkdir(join(dir, "store"));
    await symlink("store", join(dir, "link"));
    const root = join(dir, store, "app");
    await mkdir(root, { mode: 0o755 });
    const tree = await userHelpers.tree(root, nobody);
    await tree.claim();
    await tree.makeDirs(["data"]);
    const mounted = join(root, "data");
    {
      using _mount = mountSilent(mounted, source);
      for (const work of [
        () => tree.destroy(),
        () => tree.hold(["data/inner"]),
        () => tree.makeDirs(["data/x"]),
      ])
        await t.throwsAsync(inTime(work()), { message: messageOf(mounted) });
    }
    await t.notThrowsAsync(tree.destroy());
  });

mountTest(`the daemon waits for no file system in place of an app's run directory${needsFuse}`, async (t) => {
  const dir = await makeDir(t);
  const runDir = join(dir, "run");
  await userHelpers.createOwnedDir(runDir, nobody);
  {
    using _mount = mountSilent(runDir);
    const peerUid = (): number => nobody;
    for (const work of [
      () => connectSupervisor({ runDir, uid: nobody }, { peerUid }),
      () => userHelpers.removeOwnedDir(runDir, nobody),
    ])
      await t.throwsAsync(inTime(work()), { message: messageOf(runDir) });
  }
  await t.notThrowsAsync(userHelpers.removeOwnedDir(runDir, nobody));
});

mountTest(
  `an ended container does not count as verified if a user mounted a file system${needsFuse}`,
  async (t) => {
    const directory = await makeDir(t);
    const source = join(directory, "data");
    await mkdir(source);
    using _mount = mountSilent(source);
    const mount = { type: "bind", source, destination: "/mounted", isWritable: true };
    t.is(await inTime(changedMount({ directory }, { mounts: [mount] })), "/mounted");
  },
);
