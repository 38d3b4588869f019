/** `svc reboot`: reboots the host. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import type { RunCommand } from "../run-command.ts";
import { SvcError } from "../../errors.ts";
import { confirm, isInteractive } from "../input/prompt.ts";
import { calls } from "../client/calls.ts";

export function addRebootCommand(parent: Command, run: RunCommand): void {
  parent
    .command("reboot")
    .description(
      "reboot this machine (asks for confirmation; skip with --yes); running apps start again afterwards",
    )
    .action(run((context) => reboot(context)));
}

async function reboot(context: CommandContext): Promise<void> {
  if (context.options.yes !== true) {
    if (context.json || !isInteractive(context.host)) {
      throw new UsageError("a reboot stops everything on this machine; pass --yes to confirm");
    }
    if (!(await confirm(context.host, "Reboot this machine?"))) {
      throw new SvcError("not_possible", "the machine was not rebooted");
    }
  }
  const answer = await context.call(calls.rebootSystem, {});
  if (context.json) return context.printJson(answer);
  context.note(`The machine reboots in ${answer.delay_secs} s.`);
}
