/** Checks that only the daemon's user and root can replace the store. */
import { SvcError } from "../errors.ts";
import { findReplaceable } from "../sys/replaceable-path.ts";

/**
 * A user who can replace the store's directory could choose what root runs.
 * @throws SvcError `invalid_request`
 */
export async function requireClosedStore(dir: string, selfUid: number): Promise<void> {
  const replaceableDir = await findReplaceable(dir, selfUid);
  if (replaceableDir === undefined) return;
  const message = `cannot use [store] dir ${dir}: other users can change ${replaceableDir}; chown it to root and chmod go-w it, or choose another directory`;
  throw new SvcError("invalid_request", message);
}
