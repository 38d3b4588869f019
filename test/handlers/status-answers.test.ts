import test from "ava";
import type { AppCounts } from "../../src/apps/app-counters.ts";
import { StatusAnswers } from "../../src/handlers/status-answers.ts";
import { anonymous } from "../../src/rpc/user-context.ts";

test("an answer is the same until the host has another name, which it is asked for once a second", (t) => {
  let asked = 0;
  let nowMs = 0;
  let name = "here";
  const answers = new StatusAnswers(
    {
      version: "1",
      mode: "user",
      startedAtMs: 0,
      capabilities: () => [],
      userName: () => Promise.resolve(""),
    },
    { hostname: () => (asked++, name), now: () => nowMs },
  );
  const apps = { total: 0 } as AppCounts;
  const first = answers.of(anonymous, "", apps, []);
  t.is(first.hostname, "here");
  name = "there";
  nowMs = 999;
  t.is(answers.of(anonymous, "", apps, []), first);
  t.is(asked, 1);
  nowMs = 1_000;
  t.is(answers.of(anonymous, "", apps, []).hostname, "there");
  t.is(asked, 2);
});
