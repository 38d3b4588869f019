/** `svc ls`: the apps that the caller may see. */
import type { Command } from "commander";
import type { RunCommand } from "../run-command.ts";
import { appColumns } from "../render/app-table.ts";
import { escapeControls } from "../render/escape.ts";
import { pagesOf } from "../pages.ts";
import { calls } from "../transport/calls.ts";
import type { App } from "../transport/calls.ts";
import type { CommandContext } from "../context.ts";
import { asSvcError, UsageError } from "../failure.ts";

const watchMs = 2_000;
const notConnected = "not connected; trying again";

export function addLsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("ls")
    .alias("list")
    .description("list the installed apps")
    .option("-w, --watch", "go on until Ctrl-C")
    .option(
      "--all-nodes",
      "of this machine and every node of svc node, each of which has --timeout (default: 10 s)",
    )
    .action(run((context, options: ListOptions) => showApps(context, options)));
}

export interface ListOptions {
  readonly watch?: boolean;
  readonly allNodes?: boolean;
}

export async function showApps(context: CommandContext, options: ListOptions = {}): Promise<void> {
  const { watch = false, allNodes = false } = options;
  const { quiet = false } = context.options;
  if (allNodes) {
    if (quiet) throw new UsageError("an id alone does not say on which node it is: leave --quiet out");
    if (watch) throw new UsageError("several nodes are asked once: leave --watch out");
    const { showAllNodes } = await import("./ls-all-nodes.ts");
    return showAllNodes(context);
  }
  if (watch) return watchApps(context);
  const apps = await listAllApps(context);
  if (context.json) return context.printJson({ apps, next_page_token: "" });
  const none = "No apps are installed. Install one: svc install SPEC";
  await context.printTable(appColumns(context.host.now(), apps), apps, none);
  if (quiet) return;
  const overdue = apps.filter(({ backups }) => backups?.overdue === true).map(({ id }) => id);
  if (overdue.length > 0) {
    context.note(
      `warning: backups are overdue of ${escapeControls(overdue.join(", "))}: svc backup policy ID`,
    );
  }
}

async function watchApps(context: CommandContext): Promise<void> {
  const { LiveTable } = await import("../render/live-table.ts");
  const isTerminal = context.host.stdout.isTTY === true;
  const live = new LiveTable(isTerminal);
  /** What was shown last; none before the first answer. */
  let shown: string | undefined;
  let isConnected = true;
  for (;;) {
    try {
      const apps = await listAllApps(context);
      isConnected = true;
      shown = context.json ? "" : context.table(appColumns(context.host.now(), apps), apps);
      await (context.json ? context.printJsonLine({ apps }) : context.print(live.next(shown)));
    } catch (error) {
      // A daemon that is restarted is there again soon. One that never answered is told at once.
      if (shown === undefined || asSvcError(error)?.code !== "unavailable") throw error;
      if (isConnected) {
        if (isTerminal && !context.json) await context.print(live.next(`${shown}${notConnected}\n`));
        else context.note(notConnected);
      }
      isConnected = false;
    }
    await context.pause(watchMs);
  }
}

/** All pages. */
export async function listAllApps(context: CommandContext): Promise<readonly App[]> {
  const apps: App[] = [];
  for await (const page of pagesOf(context, calls.listApps, {})) apps.push(...page.apps);
  return apps;
}
