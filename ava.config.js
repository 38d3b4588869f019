// Where most of each test is waiting for what is its own.
const sideBySide = ["test/e2e/swarm-stacks.test.ts"];
const asked = process.argv.filter((argument) => argument.endsWith(".test.ts"));

export default {
  files: ["test/**/*.test.ts"],
  extensions: ["ts"],
  require: ["./test/support/own-environment.ts", "./test/support/end-with-tests.ts"],
  timeout: "5m",
  // A test that starts a daemon keeps a core busy: file after file. How `npm test` shares them out: test/support/run-tests.ts.
  serial: asked.length === 0 || !asked.every((file) => sideBySide.includes(file)),
  workerThreads: false,
};
