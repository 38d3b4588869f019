/** `svc ls`: the apps that the caller may see. */
import type { Command } from "commander";
import type { RunCommand } from "../program.ts";
import { appColumns } from "../render/app-table.ts";
import { renderTable } from "../render/table.ts";
import { calls } from "../transport/calls.ts";
import type { App } from "../transport/calls.ts";
import type { CommandContext } from "../context.ts";

export function addLsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("ls")
    .alias("list")
    .description("list the installed apps")
    .action(run((context) => list(context)));
}

async function list(context: CommandContext): Promise<void> {
  const apps = await listAllApps(context);
  if (context.json) return context.printJson({ apps, next_page_token: "" });
  if (apps.length === 0) {
    context.note("No apps are installed. Install one: svc install SPEC");
    return;
  }
  const withOwner = new Set(apps.map((app) => app.owner_uid)).size > 1;
  return context.print(renderTable(appColumns(context.host.now(), withOwner), apps, context.tableStyle));
}

/** All pages. */
export async function listAllApps(context: CommandContext): Promise<readonly App[]> {
  const apps: App[] = [];
  let pageToken: string | undefined;
  do {
    const page = await context.call(calls.listApps, pageToken === undefined ? {} : { page_token: pageToken });
    apps.push(...page.apps);
    pageToken = page.next_page_token;
  } while (pageToken !== "");
  return apps;
}
