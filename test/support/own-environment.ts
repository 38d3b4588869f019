/**
 * Loaded before each test file: what the runner set for the test's own process is not for the programs that the test starts,
 * but for those that are part of it (fixture-environment.ts).
 */
const compileCache = process.env["NODE_COMPILE_CACHE"];
if (compileCache !== undefined) process.env["SVC_TEST_COMPILE_CACHE"] = compileCache;
delete process.env["NODE_COMPILE_CACHE"];
