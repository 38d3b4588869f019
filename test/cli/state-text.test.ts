import test from "ava";
import { stateText } from "../../src/cli/render/app-table.ts";

test("a state says when the app is started again", (t) => {
  const next_restart_at = "2026-01-01T00:00:15Z";
  const nowMs = Date.parse("2026-01-01T00:00:00Z");
  const text = (state: string): string =>
    stateText({ state, health: "none", next_restart_at, tasks: [] }, nowMs);
  t.is(text("STARTING"), "STARTING (in 15s)");
  t.is(text("FAILED"), "FAILED (tried again in 15s)");
  t.is(text("STOPPED"), "STOPPED (starts again in 15s)");
  t.is(text("CRASHED"), "CRASHED (starts again in 15s)");
  t.is(text("RUNNING"), "RUNNING");
  t.is(stateText({ state: "STOPPED", health: "none", tasks: [] }, nowMs), "STOPPED");
});

const task = (state: string, service = "") => ({ service, state, slot: 1, node: "node1", message: "" });

for (const [what, placement, tasks, says] of [
  [
    "some run",
    { on: "swarm", replicas: 3 },
    [task("running"), task("pending"), task("running")],
    "2 of 3 tasks",
  ],
  ["the swarm has made no others yet", { on: "swarm", replicas: 3 }, [task("running")], "1 of 3 tasks"],
  ["all run", { on: "swarm", replicas: 1 }, [task("running")], ""],
  ["those above go", { on: "swarm", replicas: 1 }, [task("running"), task("running")], ""],
  [
    "a project's job has done its work",
    { on: "swarm", replicas: 2 },
    [task("running", "web"), task("complete", "job")],
    "",
  ],
  [
    "one of a project's services has no node",
    { on: "swarm", replicas: 1 },
    [task("running", "web"), task("pending", "store")],
    "1 of 2 tasks",
  ],
  ["it is on this machine", undefined, [], ""],
] as const) {
  test(`a state says how many tasks run on a swarm: ${what}`, (t) => {
    const app = {
      health: "none",
      tasks: [...tasks],
      ...(placement && { placement: { ...placement, ports: "host" } }),
    };
    t.is(stateText({ ...app, state: "RUNNING" }, 0), says === "" ? "RUNNING" : `RUNNING (${says})`);
    t.is(stateText({ ...app, state: "STOPPED" }, 0), "STOPPED");
    const sick = says === "" ? "unhealthy" : `unhealthy, ${says}`;
    t.is(stateText({ ...app, state: "RUNNING", health: "unhealthy" }, 0), `RUNNING (${sick})`);
  });
}
