// @ts-expect-error AVA has no types for its reporters.
import TapReporter from "./node_modules/ava/lib/reporters/tap.js";

// Where most of each test is waiting for what is its own.
const sideBySide = ["test/scenarios/e2e/swarm-stacks.test.ts"];
const asked = process.argv.filter((argument) => argument.endsWith(".test.ts"));

// AVA 8.0.1 reports a test that timed out, or whose process exited, with an error of its own making, and crashes because its TAP
// reporter expects errors as test processes send them.
const { writeTest } = TapReporter.prototype;
/**
 * @param {{ err?: unknown }} event
 * @param {unknown} flags
 */
TapReporter.prototype.writeTest = function (event, flags) {
  const { err } = event;
  if (err instanceof Error)
    event.err = { originalError: err, name: err.name, stack: err.stack, type: "native" };
  writeTest.call(this, event, flags);
};

export default {
  files: ["test/**/*.test.ts"],
  extensions: ["ts"],
  require: ["./test/support/own-environment.ts", "./test/support/end-with-tests.ts"],
  timeout: "5m",
  // A test that starts a daemon keeps a core busy: file after file. How `npm test` shares them out: test/support/run-tests.ts.
  serial: asked.length === 0 || !asked.every((file) => sideBySide.includes(file)),
  workerThreads: false,
};
