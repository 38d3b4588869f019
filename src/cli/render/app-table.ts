/** How apps look in lists. */
import { missingTasks } from "../../lib/task-count.ts";
import type { App } from "../transport/calls.ts";
import type { Color } from "./color.ts";
import { relativeTo } from "./instant.ts";
import type { Column } from "./table.ts";
import { formatDuration } from "./units.ts";

export function stateColor(state: string): Color | undefined {
  switch (state) {
    case "RUNNING":
      return "green";
    case "FAILED":
    case "CRASHED":
      return "red";
    case "STOPPED":
      return "dim";
    default:
      return "yellow";
  }
}

/** What the daemon does in a while with an app in this state. */
const doneAgain: Readonly<Record<string, string>> = {
  STARTING: "",
  FAILED: "tried again ",
  STOPPED: "starts again ",
  CRASHED: "starts again ",
};

/**
 * `RUNNING`; `RUNNING (unhealthy)` where the health check has something to say; `RUNNING (2 of 3 tasks)` on a swarm that has no
 * node for the third; `STARTING (in 12s)` before a restart;
 * `FAILED (tried again in 12s)` before the daemon's next try, and `STOPPED (starts again in 12s)` of one that was lost.
 */
export function stateText(
  app: Pick<App, "state" | "health" | "next_restart_at" | "placement" | "tasks">,
  nowMs: number,
): string {
  const { state, health, next_restart_at: nextRestartAt } = app;
  const again = doneAgain[state];
  if (nextRestartAt !== undefined && again !== undefined)
    return `${state} (${again}${relativeTo(nowMs)(Date.parse(nextRestartAt))})`;
  const quiet = health === "none" || health === "healthy" || health === "";
  const missing = missingTasks(app);
  const remarks = [
    ...(quiet ? [] : [health]),
    ...(missing === undefined ? [] : [`${missing.running} of ${missing.wanted} tasks`]),
  ];
  return remarks.length === 0 ? state : `${state} (${remarks.join(", ")})`;
}

export function portsText(ports: App["ports"]): string {
  return ports.map(({ port, protocol }) => (protocol === "udp" ? `${port}/udp` : String(port))).join(", ");
}

/** How long the app has been running; empty while it does not. */
function uptimeText(app: Pick<App, "state" | "started_at">, nowMs: number): string {
  if (app.state !== "RUNNING" || app.started_at === undefined) return "";
  return formatDuration(nowMs - Date.parse(app.started_at));
}

/** Owners are hidden where there are not several to tell apart, restarts where there were none. */
export function appColumns(nowMs: number, apps: readonly App[]): Column<App>[] {
  return [
    { title: "ID", value: (app) => app.id, isKey: true },
    { title: "NAME", value: (app) => app.name, shrinkTo: 8, dispensable: 3 },
    {
      title: "STATE",
      value: (app) => stateText(app, nowMs),
      color: (app) => stateColor(app.state),
      shrinkTo: 8,
    },
    { title: "VERSION", value: (app) => app.version, shrinkTo: 7, dispensable: 2 },
    { title: "RUNTIME", value: (app) => app.runtime, dispensable: 4 },
    { title: "PORTS", value: (app) => portsText(app.ports), shrinkTo: 8 },
    { title: "UPTIME", value: (app) => uptimeText(app, nowMs), align: "right", dispensable: 1 },
    {
      title: "RESTARTS",
      value: (app) => (app.restarts === 0 ? "" : String(app.restarts)),
      align: "right",
      isHidden: apps.every((app) => app.restarts === 0),
    },
    {
      title: "OWNER",
      value: (app) => ownerText(app),
      shrinkTo: 6,
      isHidden: new Set(apps.map((app) => app.owner)).size <= 1,
    },
  ];
}

export function ownerText(app: Pick<App, "owner" | "owner_name">): string {
  return app.owner_name === "" ? String(app.owner) : app.owner_name;
}
