export default {
  files: ["test/**/*.test.ts"],
  extensions: ["ts"],
  timeout: "5m",
  // A test that starts a daemon keeps a core busy: one at a time per file, as many files as there are cores.
  serial: true,
  concurrency: 2,
  workerThreads: false,
};
