/** Apps in lists and details. */
import { missingTasks, taskCount } from "../../lib/task-count.ts";
import type { App } from "../client/calls.ts";
import type { Color } from "./color.ts";
import { relativeTo } from "./instant.ts";
import type { Column } from "./table.ts";
import { urlAt } from "./web-address.ts";
import { formatAge, formatDuration } from "./units.ts";

export const failureStates: ReadonlySet<string> = new Set(["FAILED", "CRASHED", "UNHEALTHY"]);

export function stateColor(state: string): Color | undefined {
  if (failureStates.has(state)) return "red";
  switch (state) {
    case "RUNNING":
      return "green";
    case "STOPPED":
      return "dim";
    default:
      return "yellow";
  }
}

export function isUp({ state }: Pick<App, "state">): boolean {
  return state === "RUNNING" || state === "STARTING";
}

/** The daemon's next action for an app in this state, after a delay. */
const retryText: Readonly<Record<string, string>> = {
  STARTING: "restart ",
  FAILED: "retry ",
  STOPPED: "restart ",
  CRASHED: "restart ",
};

/** The state to show; older daemons do not send it. */
export function statusOf({ state, status }: StateFields): string {
  return status === undefined || status === "" ? state : status;
}

type StateFields = Pick<App, "state"> & Partial<Pick<App, "status">>;

/**
 * `RUNNING`; `UNHEALTHY`; `RUNNING (2 of 3 tasks)` if a swarm has no node for the third; `STARTING (restart in 12s)`
 * after it ended; `FAILED (retry in 12s)` before the next attempt; `STOPPED (restart in 12s)` for an app
 * whose processes were lost.
 */
export function stateText(
  app: StateFields & Pick<App, "next_restart_at" | "placement" | "tasks">,
  nowMs: number,
): string {
  const { next_restart_at: nextRestartAt } = app;
  const state = statusOf(app);
  const again = retryText[state];
  if (nextRestartAt !== undefined && again !== undefined)
    return `${state} (${again}${relativeTo(nowMs)(Date.parse(nextRestartAt))})`;
  const missing = missingTasks(app);
  return missing === undefined ? state : `${state} (${missing.running} of ${missing.desired} tasks)`;
}

export function portsText(ports: readonly Pick<App["ports"][number], "port" | "protocol">[]): string {
  return ports.map(({ port, protocol }) => (protocol === "udp" ? `${port}/udp` : String(port))).join(", ");
}

/** How long the app has been running; empty if it is not running. */
function uptimeText(app: Pick<App, "state" | "started_at">, nowMs: number): string {
  if (app.state !== "RUNNING" || app.started_at === undefined) return "";
  return formatDuration(nowMs - Date.parse(app.started_at));
}

/**
 * Shows owners only if there are several, and restarts only if there were any.
 * @param machine the host of the apps' addresses
 */
export function appColumns(nowMs: number, apps: readonly App[], machine?: string): Column<App>[] {
  return [
    { title: "ID", value: (app) => app.id, isKey: true },
    { title: "NAME", value: (app) => app.name, shrinkTo: 8, dispensable: 3 },
    {
      title: "STATE",
      value: (app) => stateText(app, nowMs),
      color: (app) => stateColor(statusOf(app)),
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
    {
      ...{ title: "URL", isHidden: true, isWide: machine !== undefined },
      value: (app) => (machine === undefined ? "" : (urlAt(machine, app) ?? "")),
    },
    { ...{ title: "PACKAGE", isHidden: true, isWide: true }, value: (app) => app.package_id },
    { ...{ title: "DIRECTORY", isHidden: true, isWide: true }, value: (app) => app.directory },
  ];
}

export function ownerText(app: Pick<App, "owner" | "owner_name">): string {
  return app.owner_name === "" ? String(app.owner) : app.owner_name;
}

/** `3m ago to local, far; verified 2m ago; overdue`. Undefined if the app has no backups and no policy. */
export function lastBackupText({ backups }: Pick<App, "backups">, nowMs: number): string | undefined {
  if (backups === undefined) return undefined;
  const { last_backup_at: last, storages, last_proven_at: proven, overdue } = backups;
  const tried = proven === undefined ? "never verified" : `verified ${formatAge(proven, nowMs)}`;
  let made = last === undefined ? "never" : `${formatAge(last, nowMs)} to ${storages.join(", ")}; ${tried}`;
  // A restored app has no backup of its own yet, but the restore has verified the archive.
  if (last === undefined && proven !== undefined) made = `not since the install; older archive ${tried}`;
  return overdue ? `${made}; overdue` : made;
}

/** `on a swarm in 3 tasks`; undefined for an app on this host. */
export function placementText(app: App): string | undefined {
  const count = taskCount(app);
  if (app.placement === undefined || count === undefined) return undefined;
  const { running, desired } = count;
  const isPartial = missingTasks(app) === undefined ? "" : ` (${running} of them so far)`;
  return `on a ${app.placement.on} in ${desired} ${desired === 1 ? "task" : "tasks"}${isPartial}`;
}

/** `volume shop_data; path /opt/shop/site`; undefined if the app has no adopted data. */
export function adoptedText(adopted: App["adopted"]): string | undefined {
  const { volumes = [], paths = [] } = adopted ?? {};
  const texts = [listText("volume", volumes), listText("path", paths)].filter((text) => text !== "");
  return texts.length === 0 ? undefined : texts.join("; ");
}

function listText(noun: string, items: readonly string[]): string {
  return items.length === 0 ? "" : `${noun}${items.length === 1 ? "" : "s"} ${items.join(", ")}`;
}

/** Each task with its node, and why it does not run. */
export function tasksText({ tasks }: App): string {
  return tasks
    .map(({ service, slot, node, state, message }) => {
      const at = node === "" ? "" : ` on ${node}`;
      return `${service === "" ? "" : `${service} `}${slot} ${state}${at}${message === "" ? "" : ` (${message})`}`;
    })
    .join(", ");
}
