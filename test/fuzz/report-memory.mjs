// Loaded into the daemon under test: SIGUSR2 collects garbage and tells what is left, in bytes.
process.on("SIGUSR2", () => void report());

async function report() {
  for (let n = 0; n < 4; n++) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const { rss, heapUsed, external } = process.memoryUsage();
  process.stderr.write(`${JSON.stringify({ msg: "memory", rss, used: heapUsed + external })}\n`);
}
