export default {
  files: ["test/**/*.test.ts"],
  extensions: ["ts"],
  timeout: "5m",
  // A test that starts a daemon keeps a core busy for a moment and then mostly waits: one at a time per file, three files.
  serial: true,
  concurrency: 3,
  workerThreads: false,
};
