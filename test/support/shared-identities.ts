/** The helpers of a file of tests. */
import test from "ava";
import { createIdentities, type Identities } from "../../src/identity/identities.ts";
import { programs } from "./programs.ts";

/**
 * For its top level: `const identities = sharedIdentities()`. What they are asked for goes to the same helpers, as it does in a
 * daemon: to start one takes longer than most tests. They end after the last test.
 */
export function sharedIdentities(): () => Identities {
  let identities: Identities | undefined;
  test.after.always(() => identities?.[Symbol.asyncDispose]());
  return () => (identities ??= createIdentities({ helperPath: programs.identityHelper }));
}
