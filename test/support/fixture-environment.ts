/**
 * What the sources load is compiled once for all fixture programs that a test starts over and over: their start takes a third
 * less. For programs of the tests alone, such as `support/append.ts`: what is under test has an environment of its own.
 */
export const fixtureEnvironment: NodeJS.ProcessEnv = {
  ...process.env,
  ...(process.env["SVC_TEST_COMPILE_CACHE"] !== undefined && {
    NODE_COMPILE_CACHE: process.env["SVC_TEST_COMPILE_CACHE"],
  }),
};
