import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import test from "ava";
import { MemoryRelease } from "../../src/daemon/memory-release.ts";
import { loadMallocTrim } from "../../src/sys/malloc-trim.mjs";

const mib = 1024 * 1024;

interface Moment {
  readonly load: number;
  readonly residentMib: number;
  /** The remaining memory after a release; absent: no release is expected. */
  readonly leavesMib?: number;
}

const stories: Record<string, readonly Moment[]> = {
  "once it is idle": [
    { load: 0.9, residentMib: 300 },
    { load: 0.11, residentMib: 300 },
    { load: 0.1, residentMib: 300, leavesMib: 160 },
  ],
  "again only when it has grown by 4 MiB": [
    { load: 0, residentMib: 100, leavesMib: 90 },
    { load: 0, residentMib: 90 },
    { load: 0, residentMib: 93 },
    { load: 0, residentMib: 94, leavesMib: 90 },
  ],
  "not again when it freed nothing": [
    { load: 0, residentMib: 100, leavesMib: 100 },
    { load: 0, residentMib: 100 },
    { load: 0, residentMib: 103 },
  ],
  "after it has grown again after shrinking by itself, also under load": [
    { load: 0, residentMib: 100, leavesMib: 100 },
    { load: 0.5, residentMib: 80 },
    { load: 0, residentMib: 84, leavesMib: 80 },
  ],
};

for (const [title, moments] of Object.entries(stories)) {
  test(`releases memory ${title}`, async (t) => {
    let now: Moment | undefined;
    let residentMib = 0;
    let releases = 0;
    await using memory = new MemoryRelease({
      intervalMs: 1_000_000,
      residentBytes: () => residentMib * mib,
      load: () => now?.load ?? 1,
      release: async () => {
        releases++;
        residentMib = now?.leavesMib ?? residentMib;
      },
    });
    for (const [index, moment] of moments.entries()) {
      now = moment;
      residentMib = moment.residentMib;
      releases = 0;
      await memory.releaseIfIdle();
      t.is(releases, moment.leavesMib === undefined ? 0 : 1, `moment ${index}`);
    }
  });
}

// Only glibc has malloc_trim(3).
const glibcTest =
  "glibcVersionRuntime" in (process.report.getReport() as { header: object }).header ? test : test.skip;

glibcTest("pages between small long-lived buffers are returned to the kernel", async (t) => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const release = loadMallocTrim();
  const buffers = Array.from({ length: 40_000 }, (_unused, n) =>
    Buffer.alloc(2_000 + ((n * 7919) % 9_000), 1),
  );
  const kept = buffers.filter((_buffer, n) => n % 10 === 0);
  buffers.length = 0;
  collect();
  // The first one's array buffers are freed on another thread; the second waits for that.
  collect();
  const before = process.memoryUsage.rss();
  await release?.();
  const releasedMib = (before - process.memoryUsage.rss()) / mib;
  t.true(releasedMib > 30, `${releasedMib.toFixed(1)} MiB`);
  t.is(kept.length, 4_000);
});
