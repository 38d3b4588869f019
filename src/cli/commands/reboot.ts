/** `svc reboot`: the whole machine. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../failure.ts";
import type { RunCommand } from "../run-command.ts";
import { SvcError } from "../../errors.ts";
import { confirm, isInteractive } from "../prompt.ts";
import { calls } from "../transport/calls.ts";

export function addRebootCommand(parent: Command, run: RunCommand): void {
  parent
    .command("reboot")
    .description("reboot this machine (asks first; --yes does not); apps that run start again afterwards")
    .action(run((context) => reboot(context)));
}

async function reboot(context: CommandContext): Promise<void> {
  if (context.options.yes !== true) {
    if (context.json || !isInteractive(context.host)) {
      throw new UsageError("everything on this machine ends: confirm with --yes");
    }
    if (!(await confirm(context.host, "Reboot this machine?"))) {
      throw new SvcError("not_possible", "the machine was not rebooted");
    }
  }
  const answer = await context.call(calls.rebootSystem, {});
  if (context.json) return context.printJson(answer);
  context.note(`The machine reboots in ${answer.delay_secs} s.`);
}
