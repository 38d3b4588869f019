export default {
  files: ["test/**/*.test.ts"],
  extensions: ["ts"],
  require: ["./test/support/own-environment.ts"],
  timeout: "5m",
  // A test that starts a daemon keeps a core busy: file after file. How `npm test` shares them out: test/support/run-tests.ts.
  serial: true,
  workerThreads: false,
};
