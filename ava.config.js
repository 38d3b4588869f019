import { basename } from "node:path";

export default {
  files: ["test/**/*.test.ts"],
  extensions: ["ts"],
  timeout: "5m",
  // A test that starts a daemon keeps a core busy: file after file, see test/support/run-tests.ts.
  serial: true,
  workerThreads: false,
  // By their last names, so that who runs half of the files gets some of each folder.
  sortTestFiles: (/** @type {string} */ one, /** @type {string} */ other) =>
    basename(one).localeCompare(basename(other)) || one.localeCompare(other),
};
