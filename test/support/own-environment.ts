/**
 * Loaded before each test file: the runner's variables for the test process must not reach the programs that the test
 * starts, except fixture programs (fixture-environment.ts).
 */
const compileCache = process.env["NODE_COMPILE_CACHE"];
if (compileCache !== undefined) process.env["SVC_TEST_COMPILE_CACHE"] = compileCache;
delete process.env["NODE_COMPILE_CACHE"];
