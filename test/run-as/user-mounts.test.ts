/** File systems that users mount in the trees of their apps. */
import { execFileSync } from "node:child_process";
import { closeSync, existsSync, openSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
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

// The user chooses the source. The kernel's list of mounts has "-" before the type, too.
for (const source of ["none", "-"])
  mountTest(
    `the daemon does not wait for a file system that a user has mounted from "${source}"${needsFuse}`,
    async (t) => {
      const dir = await mkdtemp(join(tmpdir(), "svc-mounts-"));
      const root = join(dir, "app");
      await mkdir(root, { mode: 0o755 });
      const tree = await userHelpers.tree(root, nobody);
      await tree.claim();
      await tree.makeDirs(["data"]);
      const mounted = join(root, "data");
      // Nobody reads the requests, so everything that accesses the file system waits.
      const fd = openSync("/dev/fuse", "r+");
      const options = `fd=3,rootmode=40000,user_id=${nobody},group_id=${nobody},allow_other`;
      execFileSync("mount", ["-i", "-t", "fuse", "-o", options, source, mounted], {
        stdio: ["ignore", "ignore", "inherit", fd],
      });
      try {
        const message = `a user has mounted a file system at ${mounted}: unmount it first`;
        for (const work of [
          () => tree.destroy(),
          () => tree.hold(["data/inner"]),
          () => tree.makeDirs(["data/x"]),
        ])
          await Promise.race([
            t.throwsAsync(work(), { message }),
            wait(silentMs, undefined, { ref: false }).then(() => t.fail("it waits for the file system")),
          ]);
      } finally {
        // Ends all that waits.
        closeSync(fd);
        execFileSync("umount", ["-l", mounted]);
      }
      await t.notThrowsAsync(tree.destroy());
      await rm(dir, { recursive: true });
    },
  );
