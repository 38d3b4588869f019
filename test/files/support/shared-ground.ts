/** One ground for all tests of a file; separate from the other module, which programs without AVA also use. */
import test from "ava";
import { sharedDaemon } from "../../support/daemon-test.ts";
import type { UserConnection } from "../../support/daemon.ts";
import { groundOf, ownerUid, type Ground } from "./ground.ts";

/** One daemon for all tests of a file, for its top level: each call of the returned function has a new home. */
export function sharedGround(): () => Promise<Ground> {
  const emptyDaemon = sharedDaemon();
  const shared: { connection?: UserConnection } = {};
  test.after.always(() => shared.connection?.[Symbol.asyncDispose]());
  return async () => {
    const daemon = await emptyDaemon();
    shared.connection ??= await daemon.as(ownerUid);
    return groundOf(daemon, shared.connection, () => Promise.resolve());
  };
}
