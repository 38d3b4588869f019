/** `svc docker prune`: the plan first, then the question, then what the plan says. */
import { Argument, Option, type Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../failure.ts";
import type { RunCommand } from "../../run-command.ts";
import { confirm, isInteractive, nothingChanged } from "../../prompt.ts";
import { prunedColumns, skippedColumns } from "../../render/docker-table.ts";
import { renderTable } from "../../render/table.ts";
import { formatBytes } from "../../render/units.ts";
import { calls, type PruneResult } from "../../transport/calls.ts";

/** The word of the command line and that of the API. */
const targets = { images: "images", volumes: "volumes", "build-cache": "build_cache" } as const;
type Target = keyof typeof targets;

interface PruneOptions {
  readonly dryRun?: boolean;
  readonly all?: boolean;
}

export function addPruneCommand(parent: Command, run: RunCommand): void {
  parent
    .command("prune")
    .description("remove what nothing uses (shows what, and asks first; --yes does not)")
    .addArgument(new Argument("<what>", "what to remove").choices(Object.keys(targets)))
    .option("-n, --dry-run", "only show what would go")
    .addOption(new Option("--dangling-only", "images without a tag, volumes without a name: the default"))
    .addOption(new Option("-a, --all", "everything that is unused").conflicts("danglingOnly"))
    .addHelpText("after", help)
    .action(run((context, what: Target, options: PruneOptions) => prune(context, what, options)));
}

const help = `
What an installed app needs always stays, and so does what a container uses, a stopped one too.

Examples:
  svc docker prune images --dry-run
  svc docker prune images --all
  svc docker prune build-cache --all --yes
`;

async function prune(context: CommandContext, what: Target, options: PruneOptions): Promise<void> {
  const request = { target: targets[what], danglingOnly: options.all !== true };
  const plan = (): Promise<PruneResult> => context.call(calls.pruneDocker, { ...request, dryRun: true });
  if (options.dryRun === true) return show(context, await plan());
  if (context.options.yes !== true) {
    if (context.json || !isInteractive(context.host)) {
      throw new UsageError("what is pruned is gone: look with --dry-run first, then confirm with --yes");
    }
    const planned = await plan();
    await show(context, planned);
    if (planned.removed.length === 0) return;
    if (!(await confirm(context.host, "Remove these?"))) throw nothingChanged();
  }
  await show(context, await context.call(calls.pruneDocker, { ...request, dryRun: false }));
}

async function show(context: CommandContext, result: PruneResult): Promise<void> {
  if (context.json) return context.printJson(result);
  const { removed, skipped, freedBytes, dryRun } = result;
  const style = context.tableStyle;
  if (removed.length > 0) await context.print(renderTable(prunedColumns(dryRun), removed, style));
  if (skipped.length > 0) await context.print(`\n${renderTable(skippedColumns, skipped, style)}`);
  const items = `${removed.length} ${removed.length === 1 ? "item" : "items"}`;
  if (removed.length === 0) context.note("There is nothing to remove.");
  else if (dryRun) context.note(`Would remove ${items} and free ${formatBytes(freedBytes)}.`);
  else context.note(`Removed ${items} and freed ${formatBytes(freedBytes)}.`);
}
