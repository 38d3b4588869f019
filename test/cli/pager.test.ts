/** Who listens to Ctrl-C while a pager has the terminal. */
import test from "ava";
import type { CliHost } from "../../src/cli/host.ts";
import { page } from "../../src/cli/pager.ts";

/** Of three rows. */
function hostWith(env: CliHost["env"]): { host: CliHost; written: string[] } {
  const written: string[] = [];
  const stdout = { isTTY: true, rows: 3, write: (text: string) => written.push(text) };
  const host = { env: { ...process.env, ...env }, stdin: { isTTY: true }, stdout, stderr: { isTTY: true } };
  return { host: host as unknown as CliHost, written };
}

for (const [name, PAGER] of [
  ["one", "cat > /dev/null"],
  ["one that is not there", "/nonexistent/pager"],
] as const) {
  test(`with ${name} there is always somebody who listens to SIGINT, and in the end who did before`, async (t) => {
    const before = process.listeners("SIGINT");
    const own = (): void => undefined;
    process.on("SIGINT", own);
    const left: number[] = [];
    const onRemoved = (event: string | symbol): void => {
      if (event === "SIGINT") left.push(process.listenerCount("SIGINT"));
    };
    process.on("removeListener", onRemoved);
    const { host, written } = hostWith({ PAGER });
    await page(host, "one\ntwo\nthree\nfour\n");
    process.off("removeListener", onRemoved);
    t.is(written.length, PAGER.startsWith("cat") ? 0 : 1);
    t.true(left.length > 0);
    t.false(left.includes(0), left.join());
    t.deepEqual(process.listeners("SIGINT"), [...before, own]);
    process.off("SIGINT", own);
  });
}
