/** `svc app remove`: removes apps and all their data. */
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
    .description("stop apps and remove them with all their data (asks first; --yes does not)")
    .argument("<id...>", "the apps")
    .action(run((context, ids: string[]) => remove(context, ids)));
}

async function remove(context: CommandContext, ids: readonly string[]): Promise<void> {
  await confirmRemoval(context, {
    question: `Remove ${ids.join(", ")} with all data?`,
    loss: "removing an app destroys its data",
    look: async () => {
      for (const id of ids) await requireApp(context, id);
    },
  });
  await forEachName(context, ids, {
    call: (id) => context.call(calls.removeApp, { id }),
    text: (removed) =>
      `Removed ${removed.id} and freed ${formatBytes(removed.freed_bytes)}${jobsText(removed)}`,
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
