/** How apps look in lists. */
import type { App } from "../transport/calls.ts";
import type { Color } from "./color.ts";
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

/** `RUNNING`, or `RUNNING (unhealthy)` where the health check has something to say. */
export function stateText(app: Pick<App, "state" | "health">): string {
  const quiet = app.health === "none" || app.health === "healthy" || app.health === "";
  return quiet ? app.state : `${app.state} (${app.health})`;
}

export function portsText(ports: App["ports"]): string {
  return ports.map(({ port, protocol }) => (protocol === "udp" ? `${port}/udp` : String(port))).join(", ");
}

/** How long the app has been running; empty while it does not. */
export function uptimeText(app: Pick<App, "state" | "started_at">, nowMs: number): string {
  if (app.state !== "RUNNING" || app.started_at === undefined) return "";
  return formatDuration(nowMs - Date.parse(app.started_at));
}

/** @param withOwner there are apps of several owners to tell apart */
export function appColumns(nowMs: number, withOwner: boolean): Column<App>[] {
  const owner: Column<App> = { title: "OWNER", value: (app) => ownerText(app), shrinkTo: 6 };
  return [
    { title: "ID", value: (app) => app.id, shrinkTo: 12 },
    { title: "NAME", value: (app) => app.name, shrinkTo: 8 },
    { title: "STATE", value: stateText, color: (app) => stateColor(app.state) },
    { title: "VERSION", value: (app) => app.version, shrinkTo: 7 },
    { title: "RUNTIME", value: (app) => app.runtime },
    { title: "PORTS", value: (app) => portsText(app.ports), shrinkTo: 8 },
    { title: "UPTIME", value: (app) => uptimeText(app, nowMs), align: "right" },
    ...(withOwner ? [owner] : []),
  ];
}

export function ownerText(app: Pick<App, "owner" | "owner_name">): string {
  return app.owner_name === "" ? String(app.owner) : app.owner_name;
}
