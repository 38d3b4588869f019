/** `svc ls`: the apps that the caller may see. */
import type { Command } from "commander";
import type { RunCommand } from "../run-command.ts";
import { appColumns } from "../render/app-table.ts";
import { escapeControls } from "../render/escape.ts";
import { pagesOf } from "../pages.ts";
import { calls } from "../transport/calls.ts";
import type { App } from "../transport/calls.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../failure.ts";

export function addLsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("ls")
    .alias("list")
    .description("list the installed apps")
    .option("-q, --quiet", "print the ids alone")
    .option(
      "--all-nodes",
      "of this machine and every node of svc node, each of which has --timeout (default: 10 s)",
    )
    .action(run((context, options: ListOptions) => showApps(context, options)));
}

export interface ListOptions {
  readonly quiet?: boolean;
  readonly allNodes?: boolean;
}

export async function showApps(context: CommandContext, options: ListOptions = {}): Promise<void> {
  const { quiet = false, allNodes = false } = options;
  if (allNodes) {
    if (quiet) throw new UsageError("an id alone does not say on which node it is: leave --quiet out");
    const { showAllNodes } = await import("./ls-all-nodes.ts");
    return showAllNodes(context);
  }
  const apps = await listAllApps(context);
  if (context.json) return context.printJson({ apps, next_page_token: "" });
  if (quiet) return context.print(apps.map(({ id }) => `${escapeControls(id)}\n`).join(""));
  const none = "No apps are installed. Install one: svc install SPEC";
  await context.printTable(appColumns(context.host.now(), apps), apps, none);
  const overdue = apps.filter(({ backups }) => backups?.overdue === true).map(({ id }) => id);
  if (overdue.length > 0) {
    context.note(
      `warning: backups are overdue of ${escapeControls(overdue.join(", "))}: svc backup policy ID`,
    );
  }
}

/** All pages. */
export async function listAllApps(context: CommandContext): Promise<readonly App[]> {
  const apps: App[] = [];
  for await (const page of pagesOf(context, calls.listApps, {})) apps.push(...page.apps);
  return apps;
}
