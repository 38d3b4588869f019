/** User helper processes for all tests of a file. */
import test from "ava";
import { createUserHelpers, type UserHelpers } from "../../src/run-as/user-helpers.ts";
import { programs } from "./programs.ts";

/**
 * Call it at the top level of a test file: `const userHelpers = sharedUserHelpers()`. All tests of the file share the
 * helpers, because starting one takes longer than most tests. They are stopped after the last test.
 */
export function sharedUserHelpers(): () => UserHelpers {
  let userHelpers: UserHelpers | undefined;
  test.after.always(() => userHelpers?.[Symbol.asyncDispose]());
  return () => (userHelpers ??= createUserHelpers({ helperPath: programs.userHelper }));
}
