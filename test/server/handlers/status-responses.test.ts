import test from "ava";
import type { AppCounts } from "../../../src/apps/records/app-counters.ts";
import { StatusResponses } from "../../../src/server/handlers/status-responses.ts";
import { anonymous } from "../../../src/server/rpc/user-context.ts";

test("a status response is reused until the host name changes, which is read once per second", (t) => {
  let asked = 0;
  let nowMs = 0;
  let name = "here";
  const answers = new StatusResponses(
    {
      version: "1",
      mode: "user",
      startedAtMs: 0,
      listeners: () => [],
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
