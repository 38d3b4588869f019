/** Long YAML of strangers holds up nobody, and is ended when it takes too long (T57). */
import test from "ava";
import { YamlThread } from "../../src/packages/yaml-thread.ts";

const bounds = { maxBytes: 2 << 20, maxTokens: 100_000, maxDepth: 64, maxValues: 100_000 };
/** Not far from as many tokens as there may be. */
const long = `a:\n${"  - {b: c}\n".repeat(6_000)}`;

test("others go on while a long document is read", async (t) => {
  using thread = new YamlThread();
  await thread.read("uid 1", "a: b", bounds);
  let turns = 0;
  let isOver = false;
  const count = (): void => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const reading = await thread.read("uid 1", long, bounds);
  isOver = true;
  t.deepEqual("value" in reading && Object.keys(reading.value as object), ["a"]);
  t.log(`${turns} turns of the loop`);
  t.true(turns > 100, String(turns));
});

test("one that takes too long is ended, and the next one is read", async (t) => {
  using thread = new YamlThread({ timeoutMs: 1 });
  t.deepEqual(await thread.read("uid 1", long, bounds), {
    problems: [{ line: 1, message: "to read it takes more than 1 ms" }],
  });
  using patient = new YamlThread();
  t.deepEqual(await patient.read("uid 1", "a: [", bounds), {
    problems: [
      {
        line: 1,
        message: "Flow sequence in block collection must be sufficiently indented and end with a ]",
      },
    ],
  });
  t.deepEqual(await patient.read("uid 1", "a: 1", bounds), { value: { a: 1 } });
});
