/** Samples on disk: truncated, damaged and excess files. */
import { appendFile, mkdtemp, readFile, readdir, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { SampleFiles } from "../../src/lib/samples/sample-files.ts";

interface Sample {
  readonly atMs: number;
  readonly text: string;
}

const spanMs = 1_000;

async function scratch(t: ExecutionContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-samples-"));
  t.teardown(() => rm(dir, { recursive: true }));
  return join(dir, "samples");
}

function open(dir: string, bounds: { maxFiles?: number; maxBytes?: number } = {}): SampleFiles<Sample> {
  return new SampleFiles({ dir, level: "day", spanMs, maxFiles: 3, maxBytes: 1_000_000, ...bounds });
}

const sampleAt = (atMs: number): Sample => ({ atMs, text: `sample of ${atMs}` });
const times = (samples: readonly Sample[]): number[] => samples.map(({ atMs }) => atMs);

test("appended samples are read in order, from a time on, and also by another process", async (t) => {
  const dir = await scratch(t);
  const files = open(dir);
  t.deepEqual(await files.newest(10, 0), [], "nothing yet");
  await files.append([sampleAt(100), sampleAt(900)]);
  await files.append([sampleAt(950)]);
  await files.append([sampleAt(1_100)]);
  t.deepEqual(await open(dir).newest(Infinity, 0), [100, 900, 950, 1_100].map(sampleAt));
  t.deepEqual(times(await files.newest(Infinity, 900)), [900, 950, 1_100]);
  t.deepEqual(times(await files.newest(1, 0)), [1_100], "no more files than needed");
  t.is((await stat(join(dir, "day-0"))).mode & 0o777, 0o600);
});

test("old files are removed by age and by size, and the current one stays", async (t) => {
  const dir = await scratch(t);
  const files = open(dir);
  for (let span = 0; span < 6; span++) await files.append([sampleAt(span * spanMs)]);
  t.deepEqual((await readdir(dir)).toSorted(), ["day-3", "day-4", "day-5"]);
  const small = open(dir, { maxBytes: 1 });
  await small.append([sampleAt(5_500)]);
  t.deepEqual(await readdir(dir), ["day-5"]);
  t.deepEqual(times(await small.newest(Infinity, 0)), [5_000, 5_500]);
});

test("a clock that was set back loses nothing that is written afterwards", async (t) => {
  const dir = await scratch(t);
  const files = open(dir);
  await files.append([sampleAt(1_000_000)]);
  await files.append([sampleAt(5_000)]);
  t.deepEqual(times(await files.newest(Infinity, 0)), [5_000, 1_000_000]);
});

test("a file truncated at any byte keeps all complete frames before it, and later ones", async (t) => {
  const dir = await scratch(t);
  const file = join(dir, "day-0");
  await open(dir).append([sampleAt(1)]);
  const first = (await stat(file)).size;
  await open(dir).append([sampleAt(2)]);
  const whole = await readFile(file);
  for (let length = first; length < whole.length; length++) {
    await writeFile(file, whole.subarray(0, length));
    t.deepEqual(times(await open(dir).newest(Infinity, 0)), [1], `${length} bytes`);
    await open(dir).append([sampleAt(3)]);
    t.deepEqual(times(await open(dir).newest(Infinity, 0)), [1, 3], `after ${length} bytes`);
  }
});

test("a damaged byte costs at most its frame and the following ones of its file", async (t) => {
  const dir = await scratch(t);
  const file = join(dir, "day-0");
  await open(dir).append([sampleAt(1)]);
  const first = (await stat(file)).size;
  await open(dir).append([sampleAt(2)]);
  await open(dir).append([sampleAt(1_500)]);
  const whole = await readFile(file);
  for (let at = 0; at < whole.length; at++) {
    const damaged = Buffer.from(whole);
    damaged.writeUInt8((damaged[at] ?? 0) ^ 0x40, at);
    await writeFile(file, damaged);
    const read = await open(dir).newest(Infinity, 0);
    t.deepEqual(
      read.filter(({ atMs }) => atMs > 2 || (atMs === 1 && at >= first)),
      at >= first ? [sampleAt(1), sampleAt(1_500)] : [sampleAt(1_500)],
      `byte ${at}`,
    );
    t.true(read.every(({ atMs, text }) => text === `sample of ${atMs}`));
  }
});

test("a failed write is reported, and hides nothing", async (t) => {
  const dir = await scratch(t);
  const files = open(dir);
  await files.append([sampleAt(1)]);
  await appendFile(join(dir, "other"), "not ours");
  await truncate(join(dir, "day-0"), 0);
  await rm(dir, { recursive: true });
  await writeFile(dir, "a file in its place");
  await t.throwsAsync(files.append([sampleAt(2)]));
  t.deepEqual(await files.newest(Infinity, 0), []);
});
