/** `svc schedule add`. */
import { Argument, Option, type Command } from "commander";
import { SvcError } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { ifFound } from "../../output/failure.ts";
import { warnIfManaged } from "../../managed.ts";
import { triggerForms } from "../../input/option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { nextRunSentence } from "../../output/schedule-table.ts";
import { calls, type Schedule, type ScheduleRequest } from "../../client/calls.ts";
import { actionTypes, addJobFlags, bareAction, requireFlags, withFlags, type JobFlags } from "./job-flags.ts";
import { jobName } from "./job-names.ts";
import { getJob } from "./jobs.ts";
import { isAlreadyExists, createJob, createNamedJob } from "./write-job.ts";

interface AddOptions extends JobFlags {
  readonly id?: string;
  readonly disabled?: boolean;
  readonly replace?: boolean;
}

export function addAddCommand(parent: Command, run: RunCommand): void {
  const command = parent
    .command("add")
    .description("add a job")
    .argument("<trigger>", `${triggerForms}; or an event: on:app.crashed`)
    .addArgument(new Argument("<action>", "what the job does").choices(actionTypes))
    .addOption(new Option("--id <id>", "ID of the job (default: derived from the action)"));
  addJobFlags(command);
  command
    .option("--disabled", "add the job disabled")
    .option("--replace", "replace a job with the same ID")
    .addHelpText("after", examples)
    .action(run(add));
}

const examples = `
A system daemon runs http, node_reboot and shell without --app only for root.

Examples:
  svc schedule add 'every 5m' shell --app hello --command 'echo hi'
  svc schedule add 'mon-fri 03:00' app_restart --app hello
  svc schedule add daily@03:30 backup --app hello --keep 7 --catch-up
  svc schedule add '0 4 * * 0' app_update --app hello --time-zone Europe/Berlin --jitter 10m
  sudo svc schedule add 'every 5m' shell --command 'echo hi'
  sudo svc schedule add hourly http --url https://example.org/ping --method POST --header 'Authorization: Bearer x'
  sudo svc schedule add 'on:app.crashed hello' http --url https://example.org/alarm --method POST
`;

async function add(
  context: CommandContext,
  trigger: string,
  type: string,
  options: AddOptions,
): Promise<void> {
  requireFlags(type, options);
  const request = withFlags({ trigger, enabled: options.disabled !== true }, bareAction(type), options);
  const { job, isReplaced } = await write(context, request, options);
  const done = isReplaced ? "Replaced" : "Added";
  return context.printResult(job, `${done} ${job.id}. ${nextRunSentence(job, context.host.now())}`);
}

interface WrittenJob {
  readonly job: Schedule;
  readonly isReplaced: boolean;
}

/** @throws SvcError `already_exists` if the ID is taken and `--replace` is not set */
async function write(
  context: CommandContext,
  job: ScheduleRequest,
  options: AddOptions,
): Promise<WrittenJob> {
  const { id, replace } = options;
  if (id === undefined) {
    const isTaken = async (like: string) => (await ifFound(getJob(context, like, options))) !== undefined;
    const created = await createNamedJob(context, jobName(job.action ?? bareAction("")), job, isTaken);
    return { job: created, isReplaced: false };
  }
  if (replace === true) {
    const stored = await ifFound(getJob(context, id, options));
    if (stored !== undefined) warnIfManaged(context, stored);
    const request = { ...job, id, managed_by: stored?.managed_by ?? "" };
    return { job: await context.call(calls.upsertSchedule, request), isReplaced: stored !== undefined };
  }
  try {
    return { job: await createJob(context, { ...job, id }), isReplaced: false };
  } catch (error) {
    if (!isAlreadyExists(error)) throw error;
    throw new SvcError(
      "already_exists",
      `job "${id}" already exists; change it with: svc schedule edit ${id}; or replace it with --replace`,
    );
  }
}
