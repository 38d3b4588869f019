// Loaded into the daemon under test: on SIGUSR2 it prints the used memory in bytes after a full collection. An ordinary
// collection retains the pages of a young generation that has grown under load, 100 MiB and more.
process.on("SIGUSR2", () => void report());

async function report() {
  for (let n = 0; n < 4; n++) {
    await globalThis.gc?.({ type: "major", execution: "async", flavor: "last-resort" });
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const { heapUsed, external } = process.memoryUsage();
  process.stderr.write(`${JSON.stringify({ msg: "memory", used: heapUsed + external })}\n`);
}
