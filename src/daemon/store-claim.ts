/** There is one daemon of a store: two would fire the same jobs, and each would undo what the other does with apps. */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { tryLock } from "../sys/file-lock.ts";

/** For a daemon before that is about to end. */
const waitMs = 3_000;
const retryMs = 50;

/**
 * Locks a file that only the daemon's user can open: anyone who can read a directory can lock the directory (flock(2)), and
 * would keep the daemon from starting. Commands that work without the daemon go on beside it.
 * @throws SvcError `unavailable` where another daemon has it
 */
export async function claimStore(dir: string): Promise<AsyncDisposable> {
  await using opening = new AsyncDisposableStack();
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW;
  const handle = opening.use(await open(join(dir, "daemon.lock"), flags, 0o600));
  const deadlineMs = performance.now() + waitMs;
  while (!tryLock(handle.fd)) {
    if (performance.now() >= deadlineMs) throw inUse(dir);
    await wait(retryMs);
  }
  return opening.move();
}

function inUse(dir: string): SvcError {
  return new SvcError(
    "unavailable",
    `another svc daemon works with the store ${dir}; stop that one, or set [store] dir`,
  );
}
