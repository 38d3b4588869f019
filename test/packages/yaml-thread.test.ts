/** Long untrusted YAML blocks nobody, and is aborted when it takes too long. */
import test from "ava";
import { YamlThread } from "../../src/packages/manifest/yaml-thread.ts";
import { programs } from "../support/programs.ts";

const bounds = { maxBytes: 2 << 20, maxTokens: 100_000, maxDepth: 64, maxValues: 100_000 };
/** Each close to the maximum number of tokens. */
const long = `a:\n${"  - {b: c}\n".repeat(6_000)}`;
const longest = `a:\n${"  - {b: c}\n".repeat(60_000)}`;
const manifest = `id: a\nname: A\nversion: "1"\nprocess: {exec: [a]}\nx-long: [${"b,".repeat(2_500)}]\n`;
const packages = Array.from({ length: 4_000 }, (_, at) => `  p${at}: { directory: d${at} }\n`);

for (const [what, read] of [
  ["document", (thread: YamlThread) => thread.read(long, bounds, 1)],
  ["manifest", (thread: YamlThread) => thread.manifest(manifest, 1)],
  ["index", (thread: YamlThread) => thread.index(`packages:\n${packages.join("")}`, 1)],
] as const) {
  test(`others continue while a long ${what} is read`, async (t) => {
    using thread = new YamlThread({ threadUrl: programs.settingsThread });
    await thread.read("a: b", bounds, 1);
    let turns = 0;
    let isOver = false;
    const count = (): void => {
      turns++;
      if (!isOver) setImmediate(count);
    };
    setImmediate(count);
    const reading = await read(thread);
    isOver = true;
    t.false("problems" in reading, JSON.stringify(reading).slice(0, 200));
    t.log(`${turns} turns of the loop`);
    // If it were parsed in this thread, there would be only one.
    t.true(turns > 1_000, String(turns));
  });
}

test("errors in a manifest and an index have their line", async (t) => {
  using thread = new YamlThread({ threadUrl: programs.settingsThread });
  t.deepEqual(await thread.manifest('id: a\nname: "\\ud800"\n', 1), {
    problems: [{ line: 2, message: "the value is not text, a number, true, false or null" }],
  });
  t.deepEqual(await thread.index("packages:\n  a: {}\n", 1), {
    problems: [{ line: 2, message: 'a: exactly one of "repo" and "directory" is required' }],
  });
  t.like(await thread.manifest(`id: a\nname: A\nversion: "1"\nprocess: {exec: [a]}\n`, 1), {
    manifest: { id: "a", restart: { policy: "on-failure" } },
  });
});

test("parsing that takes too long is aborted, and the next one runs", async (t) => {
  const roomy = { ...bounds, maxTokens: 10_000_000, maxValues: 10_000_000 };
  // Far less than loading the thread and parsing this take, with enough time for a busy host.
  using thread = new YamlThread({ threadUrl: programs.settingsThread, timeoutMs: 100, waitMs: 120_000 });
  t.deepEqual(await thread.read(longest, roomy, 1), {
    problems: [{ line: 1, message: "reading it takes more than 100 ms" }],
  });
  using patient = new YamlThread({ threadUrl: programs.settingsThread });
  t.deepEqual(await patient.read("a: [", bounds, 1), {
    problems: [
      {
        line: 1,
        message: "Flow sequence in block collection must be sufficiently indented and end with a ]",
      },
    ],
  });
  t.deepEqual(await patient.read("a: 1", bounds, 1), { value: { a: 1 } });
});

test("a user with many pending documents blocks neither root nor another user", async (t) => {
  using thread = new YamlThread({ threadUrl: programs.settingsThread });
  const flood = await Promise.allSettled([
    ...Array.from({ length: 300 }, () => thread.read("a: b", bounds, 1)),
    thread.read("a: b", bounds, 0),
    thread.read("a: b", bounds, 2),
  ]);
  const failed = flood.filter((result) => result.status === "rejected");
  t.is(failed.length, 300 - 1 - 16);
  t.like(failed[0]?.reason, { reason: "too_many" });
  t.deepEqual(
    flood.slice(-2).map(({ status }) => status),
    ["fulfilled", "fulfilled"],
  );
});
