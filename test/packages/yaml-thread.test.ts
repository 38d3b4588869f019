/** Long YAML of strangers holds up nobody, and is ended when it takes too long (T57). */
import test from "ava";
import { YamlThread } from "../../src/packages/yaml-thread.ts";
import { programs } from "../support/programs.ts";

const bounds = { maxBytes: 2 << 20, maxTokens: 100_000, maxDepth: 64, maxValues: 100_000 };
/** Each not far from as many tokens as there may be. */
const long = `a:\n${"  - {b: c}\n".repeat(6_000)}`;
const longest = `a:\n${"  - {b: c}\n".repeat(60_000)}`;
const manifest = `id: a\nname: A\nversion: "1"\nprocess: {exec: [a]}\nx-long: [${"b,".repeat(2_500)}]\n`;
const packages = Array.from({ length: 4_000 }, (_, at) => `  p${at}: { directory: d${at} }\n`);

for (const [what, read] of [
  ["document", (thread: YamlThread) => thread.read(long, bounds, 1)],
  ["manifest", (thread: YamlThread) => thread.manifest(manifest, 1)],
  ["index", (thread: YamlThread) => thread.index(`packages:\n${packages.join("")}`, 1)],
] as const) {
  test(`others go on while a long ${what} is read`, async (t) => {
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
    // While it is loaded where it is read there are some hundred.
    t.true(turns > 1_000, String(turns));
  });
}

test("what is wrong with a manifest and an index is told with its line", async (t) => {
  using thread = new YamlThread({ threadUrl: programs.settingsThread });
  t.deepEqual(await thread.manifest('id: a\nname: "\\ud800"\n', 1), {
    problems: [{ line: 2, message: "the value is not text, a number, true, false or null" }],
  });
  t.deepEqual(await thread.index("packages:\n  a: {}\n", 1), {
    problems: [
      { line: 2, message: 'a: exactly one of "repo" and "directory" must say where the package is' },
    ],
  });
  t.like(await thread.manifest(`id: a\nname: A\nversion: "1"\nprocess: {exec: [a]}\n`, 1), {
    manifest: { id: "a", restart: { policy: "on-failure" } },
  });
});

test("one that takes too long is ended, and the next one is read", async (t) => {
  const roomy = { ...bounds, maxTokens: 10_000_000, maxValues: 10_000_000 };
  // Far less than loading the thread and reading this take, with much room to wait on a busy machine.
  using thread = new YamlThread({ threadUrl: programs.settingsThread, timeoutMs: 100, waitMs: 120_000 });
  t.deepEqual(await thread.read(longest, roomy, 1), {
    problems: [{ line: 1, message: "to read it takes more than 100 ms" }],
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
