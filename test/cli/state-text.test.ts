import test from "ava";
import { stateText } from "../../src/cli/render/app-table.ts";

test("a state says when the app is started again", (t) => {
  const next_restart_at = "2026-01-01T00:00:15Z";
  const nowMs = Date.parse("2026-01-01T00:00:00Z");
  const text = (state: string): string => stateText({ state, health: "none", next_restart_at }, nowMs);
  t.is(text("STARTING"), "STARTING (in 15s)");
  t.is(text("FAILED"), "FAILED (tried again in 15s)");
  t.is(text("STOPPED"), "STOPPED (starts again in 15s)");
  t.is(text("CRASHED"), "CRASHED (starts again in 15s)");
  t.is(text("RUNNING"), "RUNNING");
  t.is(stateText({ state: "STOPPED", health: "none" }, nowMs), "STOPPED");
});
