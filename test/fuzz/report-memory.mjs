// Loaded into the daemon under test: SIGUSR2 tells, in bytes, what memory is in use after a collection of all it can. An
// ordinary collection keeps the pages of a young generation that has grown under load, 100 MiB and more, for next time.
process.on("SIGUSR2", () => void report());

async function report() {
  for (let n = 0; n < 4; n++) {
    await globalThis.gc?.({ type: "major", execution: "async", flavor: "last-resort" });
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const { heapUsed, external } = process.memoryUsage();
  process.stderr.write(`${JSON.stringify({ msg: "memory", used: heapUsed + external })}\n`);
}
