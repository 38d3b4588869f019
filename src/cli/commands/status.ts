/** `svc status`: the daemon, and a summary of its apps. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import type { Field } from "../output/table.ts";
import { formatAge } from "../output/units.ts";
import { failureStates, statusOf } from "../output/app-table.ts";
import { calls, type App, type Listeners, type Schedule, type Status } from "../client/calls.ts";
import { failedJobs, lastOutputCommand } from "../output/schedule-table.ts";
import { listAllJobs } from "./schedule/jobs.ts";
import { watchable, watchOption } from "../output/watched.ts";
import { showInfo } from "./app-info.ts";
import { listAllApps } from "../pages.ts";

export function addStatusCommand(parent: Command, run: RunCommand): void {
  parent
    .command("status")
    .description("show the daemon and a summary of its apps, or one app")
    .argument("[id]", "the app; the same as svc info ID")
    .option(...watchOption)
    .option("-v, --verbose", "also show the capabilities of the daemon")
    .action(
      run(
        watchable((context, id: string | undefined, options: StatusOptions) =>
          id === undefined ? showStatus(context, options) : showInfo(context, id),
        ),
      ),
    );
}

/** Counters that do not count a state. */
const notStates: ReadonlySet<string> = new Set(["total", "backups_overdue", "outdated"]);

interface StatusOptions {
  readonly verbose?: boolean;
}

export async function showStatus(
  context: CommandContext,
  { verbose = false }: StatusOptions = {},
): Promise<void> {
  const status = await context.call(calls.getStatus, {});
  if (context.json) return context.printJson(status);
  const { apps, caller } = status;
  const svc = `svc ${status.version} (${status.mode})`;
  const isDaemon = await (await context.client()).outlives();
  // Without a daemon no job runs, and the list would warn about that.
  const failed = isDaemon ? failedJobs(await listAllJobs(context).catch(() => [])) : [];
  const user = caller === undefined ? undefined : caller.user || `uid ${caller.uid}`;
  const unhealthy = apps?.unhealthy ?? 0;
  // The contract also counts unhealthy apps as running.
  const counters = Object.entries({ ...apps, running: (apps?.running ?? 0) - unhealthy })
    .filter(([name, count]) => !notStates.has(name) && count > 0)
    .map(([name, count]) => `${count} ${name}`);
  const overdue = apps?.backups_overdue ?? 0;
  const outdated = apps?.outdated ?? 0;
  const failing = mayHaveFailing(apps) ? (await listAllApps(context)).filter(isFailing) : [];
  const summary = [`${apps?.total ?? 0} installed`, ...counters].join(", ");
  return context.printFields([
    ["Daemon", isDaemon ? `${svc} on ${status.hostname}` : `none; ${svc} in this process`],
    ["Started", isDaemon ? formatAge(status.started_at, context.host.now()) : undefined],
    ...(isDaemon ? listenerFields(status.listeners) : []),
    ...status.listeners
      .filter(({ state }) => state !== "LISTENING")
      .map(({ address, reason }): Field => [
        "Listener",
        `${address} is not served${reason === "" ? "" : `: ${reason}`}`,
        "red",
      ]),
    ["Configuration", status.config_file],
    ["Data", status.store_directory],
    ["Log", logText(status.log)],
    ["Engine", engineText(status.engine)],
    ["App limits", limitsText(status.enforced_limits)],
    ["Apps", summary, (apps?.failed ?? 0) + unhealthy > 0 ? "red" : undefined],
    ["Failing", failingText(failing), "red"],
    ["Backups", overdue > 0 ? `${overdue} overdue; see which with: svc ls` : undefined, "red"],
    ["Jobs", failedJobsText(failed, context.host.uid), "red"],
    ["Updates", outdated > 0 ? `${outdated} available; list them with: svc outdated` : undefined],
    ...status.alerts.map(({ name, message, since }): Field => [
      "Alert",
      `${name}: ${message}, since ${formatAge(since, context.host.now())}`,
      "red",
    ]),
    ["You", caller?.root === true ? `${user ?? ""}, with access to all apps` : user],
    ["Capabilities", verbose ? status.capabilities.join(", ") : undefined],
  ]);
}

/** Whether the counters include apps that may be {@link isFailing}. */
function mayHaveFailing(apps: Status["apps"]): boolean {
  return apps !== undefined && apps.failed + apps.unhealthy + apps.busy > 0;
}

/** Whether an app has failed, or waits for its next restart after it ended. */
function isFailing(app: App): boolean {
  return failureStates.has(statusOf(app)) || app.state_reason.startsWith("BACKOFF");
}

/** Number of apps that are named. */
const namedApps = 5;

function failingText(apps: readonly App[]): string | undefined {
  const ids = apps.map(({ id }) => id);
  if (ids.length === 0) return undefined;
  const others = ids.length > namedApps ? ` and ${ids.length - namedApps} more` : "";
  return `${ids.slice(0, namedApps).join(", ")}${others}; see why with: svc info ${ids.length === 1 ? ids[0] : "ID"}`;
}

/** `nightly failed; see its output with: …`, or how many failed. */
function failedJobsText(failed: readonly Schedule[], callerUid: number): string | undefined {
  const [first, ...others] = failed;
  if (first === undefined) return undefined;
  return others.length === 0
    ? `the last run of ${first.id} failed; see its output with: ${lastOutputCommand(first, callerUid)}`
    : `the last runs of ${failed.length} jobs failed; list them with: svc schedule list`;
}

const listenerNames: Readonly<Record<string, string>> = { tcp: "TCP", socket: "Socket" };

/** The command that shows the log, or its path. */
function logText(log: string): string {
  return log === "journal" ? "systemd journal: journalctl -u svc" : log;
}

const engineProblems: Readonly<Record<string, string>> = {
  MISSING: "none",
  DENIED: "no permission to open",
  UNAVAILABLE: "not responding",
};

/** The container engine; a daemon of an older version reports none. */
function engineText(engine: Status["engine"]): string | undefined {
  if (engine === undefined) return undefined;
  const problem = engineProblems[engine.state];
  return problem === undefined ? engine.socket : `${problem} (${engine.socket}), so containers cannot run`;
}

function limitsText(names: readonly string[]): string {
  return names.length === 0 ? "not enforced; see why with: svc doctor" : `${names.join(", ")} (by cgroups)`;
}

/** Where the daemon listens, and how to open its page. */
function listenerFields(listeners: Listeners): readonly Field[] {
  const fields = listeners
    .filter(({ kind, state }) => state === "LISTENING" && Object.hasOwn(listenerNames, kind))
    .map(({ kind, address }): Field => [listenerNames[kind] ?? kind, address]);
  return [["Web page", fields.some(([name]) => name === "TCP") ? "svc open" : undefined], ...fields];
}
