/** `svc app remove`: apps and all their data. */
import type { Command } from "commander";
import { SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { forEachApp } from "../each-app.ts";
import { UsageError } from "../failure.ts";
import type { RunCommand } from "../program.ts";
import { confirm, isInteractive } from "../prompt.ts";
import { escapeControls } from "../render/escape.ts";
import { formatBytes } from "../render/units.ts";
import { calls } from "../transport/calls.ts";

export function addRemoveCommand(parent: Command, run: RunCommand): void {
  parent
    .command("remove")
    .alias("rm")
    .description("stop apps and remove them with all their data (asks first; --yes does not)")
    .argument("<id...>", "the apps")
    .action(run((context, ids: string[]) => remove(context, ids)));
}

async function remove(context: CommandContext, ids: readonly string[]): Promise<void> {
  if (context.options.yes !== true) await confirmRemoval(context, ids);
  await forEachApp(context, ids, {
    call: (id) => context.call(calls.removeApp, { id }),
    text: ({ id, freed_bytes: freed }) => `Removed ${id} and freed ${formatBytes(freed)}`,
  });
}

async function confirmRemoval(context: CommandContext, ids: readonly string[]): Promise<void> {
  if (!isInteractive(context.host)) {
    throw new UsageError("removing an app destroys its data: confirm with --yes");
  }
  const names = escapeControls(ids.join(", "));
  if (await confirm(context.host, `Remove ${names} with all data?`)) return;
  throw new SvcError("failed_precondition", "canceled", "nothing was removed");
}
