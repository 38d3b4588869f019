import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { readRefs } from "../../src/packages/git-refs.ts";

test("the event loop turns while as many refs as may be are read", async (t) => {
  const oid = "a".repeat(40);
  const lines = Array.from({ length: 35_000 }, (_, n) => `${oid}\trefs/tags/v1.${n}.0`);
  const read = readRefs(["ref: refs/heads/main\tHEAD", `${oid}\trefs/heads/main`, ...lines].join("\n"));
  const done = new AbortController();
  void read.then(() => done.abort());
  let turns = 0;
  for (; !done.signal.aborted; turns++) await turn();
  const { tags, newestTag, defaultBranch } = await read;
  t.is(tags.size, 35_000);
  t.like({ newestTag, defaultBranch }, { newestTag: "v1.34999.0", defaultBranch: "main" });
  t.true(turns >= 50, String(turns));
});
