/** `svc remove`: removes apps and all their data. */
import type { Command } from "commander";
import { notFound } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { forEachName } from "../for-each.ts";
import type { RunCommand } from "../run-command.ts";
import { confirmRemoval } from "../input/prompt.ts";
import { formatBytes } from "../output/units.ts";
import { calls } from "../client/calls.ts";

export function addRemoveCommand(parent: Command, run: RunCommand): void {
  parent
    .command("remove")
    .aliases(["rm", "uninstall"])
    .description("stop apps and remove them with all their data (asks for confirmation; skip with --yes)")
    .argument("<id...>", "the apps")
    .option("--dry-run", "show what would be removed, and change nothing")
    .action(
      run((context, ids: string[], { dryRun = false }: { dryRun?: boolean }) =>
        dryRun ? showPlan(context, ids) : remove(context, ids),
      ),
    );
}

async function remove(context: CommandContext, ids: readonly string[]): Promise<void> {
  await confirmRemoval(context, {
    question: `Remove ${ids.join(", ")} with all data?`,
    loss: "this deletes the app and its data",
    checkTarget: async () => {
      for (const id of ids) await requireApp(context, id);
    },
  });
  await forEachName(context, ids, {
    call: (id) => context.call(calls.removeApp, { id }),
    text: (removed) =>
      `Removed ${removed.id} and freed ${formatBytes(removed.freed_bytes)}${jobsText(removed)}`,
  });
}

function showPlan(context: CommandContext, ids: readonly string[]): Promise<void> {
  return forEachName(context, ids, {
    call: async (id) => {
      await requireApp(context, id);
      const { total_bytes: sizeBytes } = await context.call(calls.getAppDisk, { id });
      const { schedules } = await context.call(calls.listSchedules, {});
      const jobs = schedules.filter(({ action }) => action?.app === id).map((job) => job.id);
      return { id, size_bytes: sizeBytes, disabled_schedules: jobs };
    },
    text: (plan) =>
      `Would remove ${plan.id} and free ${formatBytes(plan.size_bytes)}${jobsText(plan).replace("disabled", "disable")}`,
  });
}

/** Removal cannot be undone, so it requires the full ID; a read would also accept a prefix. */
async function requireApp(context: CommandContext, id: string): Promise<void> {
  const found = await context.call(calls.getApp, { id });
  if (found.id !== id) throw notFound("app", id);
}

/** Older daemons do not report jobs. */
function jobsText({
  disabled_schedules: jobs = [],
}: {
  readonly disabled_schedules?: readonly string[];
}): string {
  return jobs.length === 0 ? "" : `; disabled its jobs ${jobs.join(", ")}`;
}
