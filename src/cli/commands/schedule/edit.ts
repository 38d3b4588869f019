/** `svc schedule edit`: changes single fields by flags, or the whole job in an editor. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../output/failure.ts";
import { warnIfManaged } from "../../managed.ts";
import { triggerForms } from "../../input/option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { isInteractive } from "../../input/prompt.ts";
import { nextRunSentence } from "../../output/schedule-table.ts";
import { calls, type Schedule } from "../../client/calls.ts";
import { addJobFlags, bareAction, hasFlags, withFlags, type JobFlags } from "./job-flags.ts";
import { getJob, requestOf } from "./jobs.ts";
import { changeJob } from "./write-job.ts";

interface EditOptions extends JobFlags {
  readonly trigger?: string;
}

export function addEditCommand(parent: Command, run: RunCommand): void {
  const command = parent
    .command("edit")
    .description("change a job by flags, or without flags in $VISUAL or $EDITOR")
    .argument("<job>", "ID of the job")
    .option("--trigger <trigger>", `when it fires: ${triggerForms}; or an event`);
  addJobFlags(command);
  command
    .option("--no-utc", "read the trigger in local time")
    .addHelpText("after", help)
    .action(run((context, id: string, options: EditOptions) => edit(context, id, options)));
}

const help = `
--header 'Name: value' sets one header and keeps the others, 'Name:' removes one; --time-zone '' returns to local time.

Examples:
  svc schedule edit echo --trigger hourly --timeout 90s
  EDITOR=nano svc schedule edit echo
`;

async function edit(context: CommandContext, id: string, options: EditOptions): Promise<void> {
  const { trigger } = options;
  if (trigger !== undefined || hasFlags(options)) {
    const changed = await changeJob(context, id, options, (request, { action = bareAction("") }) =>
      withFlags({ ...request, ...(trigger !== undefined && { trigger }) }, action, options),
    );
    return show(context, changed);
  }
  const job = await getJob(context, id, options);
  if (!isInteractive(context.host)) {
    throw new UsageError("pass a change, such as --trigger hourly; the editor needs a terminal");
  }
  warnIfManaged(context, job);
  const { editJob } = await import("./edit-in-editor.ts");
  const edited = await editJob(context, requestOf(job, options), (request) =>
    context.call(calls.upsertSchedule, request),
  );
  if (edited === undefined) context.note(`${id} is unchanged.`);
  else await show(context, edited);
}

function show(context: CommandContext, job: Schedule): Promise<void> {
  return context.printResult(job, `Changed ${job.id}. ${nextRunSentence(job, context.host.now())}`);
}
