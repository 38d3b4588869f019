/** `svc status`: the daemon and how its apps are. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import type { Field } from "../render/table.ts";
import { formatAge } from "../render/units.ts";
import { calls } from "../transport/calls.ts";
import { watchable, watchOption } from "../watched.ts";

export function addStatusCommand(parent: Command, run: RunCommand): void {
  parent
    .command("status")
    .description("show the daemon and how many apps it runs")
    .option(...watchOption)
    .action(run(watchable(showStatus)));
}

/** Counters of what may be so in any state. */
const notStates: ReadonlySet<string> = new Set(["total", "backups_overdue", "outdated"]);

export async function showStatus(context: CommandContext): Promise<void> {
  const status = await context.call(calls.getStatus, {});
  if (context.json) return context.printJson(status);
  const { apps, caller } = status;
  const svc = `svc ${status.version} (${status.mode})`;
  const isDaemon = await (await context.client()).outlives();
  const user = caller === undefined ? undefined : caller.user || `uid ${caller.uid}`;
  const counters = Object.entries(apps ?? {})
    .filter(([name, count]) => !notStates.has(name) && count > 0)
    .map(([name, count]) => `${count} ${name}`);
  const overdue = apps?.backups_overdue ?? 0;
  const outdated = apps?.outdated ?? 0;
  const summary = [`${apps?.total ?? 0} installed`, ...counters].join(", ");
  return context.printFields([
    ["Daemon", isDaemon ? `${svc} on ${status.hostname}` : `none; ${svc} in this process`],
    ["Started", isDaemon ? formatAge(status.started_at, context.host.now()) : undefined],
    ["Apps", summary, (apps?.failed ?? 0) > 0 ? "red" : undefined],
    ["Backups", overdue > 0 ? `${overdue} overdue: svc ls` : undefined, "red"],
    ["Updates", outdated > 0 ? `${outdated} outdated: svc outdated` : undefined],
    ...status.alerts.map(({ name, message, since }): Field => [
      "Alert",
      `${name}: ${message}, since ${formatAge(since, context.host.now())}`,
      "red",
    ]),
    ["You", caller?.root === true ? `${user ?? ""}, sees all apps` : user],
    ["Can", status.capabilities.join(", ")],
  ]);
}
