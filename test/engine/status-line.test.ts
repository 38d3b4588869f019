/** Status lines as the engine prints them. */
import test from "ava";
import { statusLine, type StatusFacts } from "../../src/engine/status-line.ts";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;
const startedAtMs = Date.UTC(2026, 0, 1);
const facts: StatusFacts = {
  state: "running",
  health: "none",
  exitCode: 0,
  startedAtMs,
  finishedAtMs: startedAtMs,
};

for (const [elapsedMs, text] of [
  [0, "Less than a second"],
  [999, "Less than a second"],
  [second, "1 second"],
  [59.9 * second, "59 seconds"],
  [minute, "About a minute"],
  [2 * minute, "2 minutes"],
  [59.9 * minute, "59 minutes"],
  [hour, "About an hour"],
  [1.5 * hour, "2 hours"],
  [47 * hour, "47 hours"],
  [2 * day, "2 days"],
  [13 * day, "13 days"],
  [14 * day, "2 weeks"],
  [60 * day, "2 months"],
  [800 * day, "2 years"],
] as const) {
  test(`after ${elapsedMs} ms: ${text}`, (t) => {
    t.is(statusLine(facts, startedAtMs + elapsedMs).text, `Up ${text}`);
  });
}

for (const [more, text] of [
  [{ state: "paused", health: "healthy" }, "Up 5 seconds (Paused)"],
  [{ health: "healthy" }, "Up 5 seconds (healthy)"],
  [{ health: "unhealthy" }, "Up 5 seconds (unhealthy)"],
  [{ health: "starting" }, "Up 5 seconds (health: starting)"],
  [{ state: "exited", exitCode: 137 }, "Exited (137) 5 seconds ago"],
  [{ state: "restarting", exitCode: 1 }, "Restarting (1) 5 seconds ago"],
  [{ state: "created", startedAtMs: undefined }, "Created"],
  [{ state: "dead" }, "Dead"],
  [{ state: "removing" }, "Removal In Progress"],
] as const) {
  test(text, (t) => t.is(statusLine({ ...facts, ...more }, startedAtMs + 5 * second).text, text));
}

test("a line stays valid until its stated time, and not longer", (t) => {
  for (let atMs = startedAtMs; atMs < startedAtMs + 3 * 365 * day;) {
    const { text, validUntilMs } = statusLine(facts, atMs);
    t.true(validUntilMs > atMs);
    t.is(statusLine(facts, validUntilMs - 1).text, text);
    atMs = validUntilMs + Math.floor((validUntilMs - atMs) * Math.min(20, (atMs - startedAtMs) / hour));
  }
});
