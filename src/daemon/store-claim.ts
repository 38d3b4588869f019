/**
 * Allows one daemon per store, because two would fire the same jobs, and undo each other's work on apps. Also checks
 * that other users cannot replace the store.
 */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { tryLock } from "../sys/file-lock.ts";
import { findReplaceable } from "../sys/replaceable-path.ts";

/** How long to wait for a previous daemon that is stopping. */
const waitMs = 3_000;
const retryMs = 50;

/**
 * Locks a file that only the daemon's user can open. A lock on the directory is not enough: anyone who can read a
 * directory can lock it (flock(2)), and could prevent the daemon's start. Commands that work without the daemon can
 * still run.
 * @throws SvcError `unavailable` if another daemon holds the lock
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

/**
 * A user who can replace the store's directory could choose what root runs.
 * @throws SvcError `invalid_request`
 */
export async function requireClosedStore(dir: string, selfUid: number): Promise<void> {
  const replaceableDir = await findReplaceable(dir, selfUid);
  if (replaceableDir === undefined) return;
  const message = `cannot use [store] dir ${dir}: other users can change ${replaceableDir}; run chown root and chmod go-w on it, or choose another directory`;
  throw new SvcError("invalid_request", message);
}
