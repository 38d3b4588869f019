/** Loaded before each test file: what the runner set for the test's own process is not for the programs that the test starts. */
delete process.env["NODE_COMPILE_CACHE"];
