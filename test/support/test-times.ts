/** The last duration of each test file, so that the longest start first. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

const file = join(import.meta.dirname, "../../node_modules/.cache/svc-test-times.json");

/** Milliseconds by file; empty if nothing has run yet. */
export type TestTimes = Readonly<Record<string, number>>;

export async function readTestTimes(): Promise<TestTimes> {
  try {
    return JSON.parse(await readFile(file, "utf8")) as TestTimes;
  } catch {
    return {};
  }
}

/** Stores the new durations beside those of other files. */
export async function keepTestTimes(measured: TestTimes): Promise<void> {
  const times = { ...(await readTestTimes()), ...measured };
  try {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, `${JSON.stringify(times, undefined, 1)}\n`);
  } catch (error) {
    console.log(`failed to store the durations of the tests: ${String(error)}`);
  }
}
