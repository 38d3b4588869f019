/** `svc schedule edit`: single fields by flags, or the whole job in an editor. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../failure.ts";
import { warnIfManaged } from "../../managed.ts";
import type { RunCommand } from "../../run-command.ts";
import { isInteractive } from "../../prompt.ts";
import { nextRunSentence } from "../../render/schedule-table.ts";
import { calls, type Schedule } from "../../transport/calls.ts";
import { addJobFlags, bareAction, saysSomething, withFlags, type JobFlags } from "./job-flags.ts";
import { getJob, requestOf } from "./jobs.ts";
import { changeJob } from "./write-job.ts";

interface EditOptions extends JobFlags {
  readonly trigger?: string;
}

export function addEditCommand(parent: Command, run: RunCommand): void {
  const command = parent
    .command("edit")
    .description("change a job: by flags, or without any in $VISUAL or $EDITOR")
    .argument("<job>", "its id")
    .option("--trigger <trigger>", "when it fires");
  addJobFlags(command);
  command
    .option("--no-utc", "read the trigger in local time again")
    .addHelpText("after", help)
    .action(run((context, id: string, options: EditOptions) => edit(context, id, options)));
}

const help = `
--header 'Name: value' sets one header and keeps the others, 'Name:' takes one away; --time-zone '' goes back to local time.

Examples:
  svc schedule edit echo --trigger hourly --timeout 90s
  EDITOR=nano svc schedule edit echo
`;

async function edit(context: CommandContext, id: string, options: EditOptions): Promise<void> {
  const { trigger } = options;
  if (trigger !== undefined || saysSomething(options)) {
    const changed = await changeJob(context, id, options, (request, { action = bareAction("") }) =>
      withFlags({ ...request, ...(trigger !== undefined && { trigger }) }, action, options),
    );
    return show(context, changed);
  }
  const job = await getJob(context, id, options);
  if (!isInteractive(context.host)) {
    throw new UsageError("say what to change, such as --trigger hourly; an editor opens on a terminal only");
  }
  warnIfManaged(context, job);
  const { editJob } = await import("./edit-in-editor.ts");
  const edited = await editJob(context, requestOf(job, options), (wanted) =>
    context.call(calls.upsertSchedule, wanted),
  );
  if (edited === undefined) context.note(`${id} stays as it is.`);
  else await show(context, edited);
}

function show(context: CommandContext, job: Schedule): Promise<void> {
  return context.tell(job, `Changed ${job.id}. ${nextRunSentence(job, context.host.now())}`);
}
