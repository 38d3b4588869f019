/** `svc docker prune`: shows the plan, asks, then removes what the plan lists. */
import { Argument, Option, type Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { detach, detachOption, type DetachOption } from "../../detach.ts";
import { UsageError } from "../../output/failure.ts";
import type { RunCommand } from "../../run-command.ts";
import { confirm, isInteractive, nothingChanged } from "../../input/prompt.ts";
import { prunedColumns, skippedColumns } from "../../output/docker-table.ts";
import { renderTable } from "../../output/table.ts";
import { formatBytes } from "../../output/units.ts";
import { calls, type PruneResult } from "../../client/calls.ts";

/** Names on the command line, and in the API. */
const targets = { images: "images", volumes: "volumes", "build-cache": "build_cache" } as const;
type Target = keyof typeof targets;

interface PruneOptions extends DetachOption {
  readonly dryRun?: boolean;
  readonly all?: boolean;
}

export function addPruneCommand(parent: Command, run: RunCommand): void {
  parent
    .command("prune")
    .description(
      "remove unused images, volumes or build cache (shows a plan and asks for confirmation; skip with --yes)",
    )
    .addArgument(new Argument("<kind>", "what to remove").choices(Object.keys(targets)))
    .option("-n, --dry-run", "only show what would be removed")
    .addOption(
      new Option("--dangling-only", "only images without a tag and volumes without a name (default)"),
    )
    .addOption(new Option("-a, --all", "everything unused").conflicts("danglingOnly"))
    .option(...detachOption)
    .addHelpText("after", help)
    .action(run((context, what: Target, options: PruneOptions) => prune(context, what, options)));
}

const help = `
Objects that an installed app needs or a container uses, even a stopped one, are never removed.

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
      throw new UsageError("pruning cannot be undone; check with --dry-run, then pass --yes to confirm");
    }
    const planned = await plan();
    await show(context, planned);
    if (planned.removed.length === 0) return;
    if (!(await confirm(context.host, "Remove these?"))) throw nothingChanged();
  }
  if (options.detach === true) {
    const { DockerService } = await import("../../../../gen/svc/v1/docker_pb.ts");
    return detach(context, `prune ${what}`, DockerService.method.pruneDocker, request);
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
