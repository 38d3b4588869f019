/** `svc schedule run`: runs a job now, in the foreground. */
import type { Command } from "commander";
import type { ScheduleRun as ScheduleRunMessage } from "../../../../gen/svc/v1/schedule_pb.ts";
import { SvcError } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { exitCodes } from "../../output/exit-codes.ts";
import { AdvisedError, asSvcError, ReportedError } from "../../output/failure.ts";
import type { RunCommand } from "../../run-command.ts";
import { ByteOutput, writeOutput } from "../../output/byte-output.ts";
import { resultText, tookText } from "../../output/schedule-table.ts";
import { calls, type ScheduleRun } from "../../client/calls.ts";
import { jobRef, ownerOption, type OwnerOption } from "./owner-option.ts";

interface RunOptions extends OwnerOption {
  readonly detach?: boolean;
}

export function addRunCommand(parent: Command, run: RunCommand): void {
  parent
    .command("run")
    .description("run a job now, print its output and exit with its exit code")
    .argument("<job>", "ID of the job")
    .option("-d, --detach", "only start the run")
    .addOption(ownerOption())
    .addHelpText("after", help)
    .action(
      run((context, id: string, options: RunOptions) =>
        options.detach === true ? startRun(context, id, options) : followRun(context, id, options),
      ),
    );
}

const help = `
Exits with the exit code of a shell job's command; 1 if another action failed, 124 after the job's timeout, 130 if the run was
canceled. Ctrl-C cancels a run that this command started. If the job is already running, waits for that run instead.
On a terminal, control characters in the output are shown as \\xNN. A pipe or a file gets the output unchanged.
With --json, prints the finished run including its output.
`;

async function startRun(context: CommandContext, id: string, options: OwnerOption): Promise<void> {
  const client = await context.client();
  if (!(await client.outlives())) {
    const message =
      "--detach needs a daemon that continues the run; omit --detach, or start a daemon: svc daemon";
    throw new SvcError("unavailable", message);
  }
  const answer = await context.call(calls.runSchedule, jobRef(id, options));
  const { started, run } = answer;
  const text = started
    ? `Started run ${run?.id ?? ""} of ${id}`
    : `Run ${run?.id ?? ""} of ${id} is already in progress`;
  return context.printResult(answer, `${text}. Follow it: svc schedule run ${id}`);
}

/** @throws ReportedError with the exit code of a run that did not succeed */
async function followRun(context: CommandContext, id: string, options: OwnerOption): Promise<void> {
  const { ScheduleRunSchema, ScheduleService } = await import("../../../../gen/svc/v1/schedule_pb.ts");
  const { messageToRest } = await import("../../client/rest-json.ts");
  const request = jobRef(id, options);
  const method = ScheduleService.method.runScheduleStream;
  const output = new ByteOutput(context.host.stdout);
  let first: { run: ScheduleRunMessage; started: boolean } | undefined;
  let last: ScheduleRunMessage | undefined;
  try {
    for await (const { event, started } of context.invoke(method, [request])) {
      if (event.case === "run") {
        last = event.value;
        if (first === undefined && !started) noteOther(context, last.id);
        first ??= { run: last, started };
      } else if (event.case === "output" && !context.json) {
        await output.write(event.value);
      }
    }
  } catch (error) {
    if (first !== undefined && context.host.interrupted.aborted) noteLeft(context, id, first);
    else if (first !== undefined && asSvcError(error)?.code === "unavailable")
      throw new AdvisedError(
        error as SvcError,
        `run ${first.run.id} of ${id} was interrupted with the daemon; see its result: svc schedule runs ${id}`,
      );
    throw error;
  } finally {
    if (!context.json) await output.end();
  }
  if (last === undefined || last.status === "RUNNING") {
    throw new SvcError("internal", `the daemon did not report the result of the run of ${id}`);
  }
  const run = messageToRest(ScheduleRunSchema, last);
  if (context.json) await context.printJson(run);
  else {
    // Output of a run that somebody else started is not streamed to this command, but it is stored.
    if (first?.started === false) await writeOutput(context.host.stdout, run.output);
    noteEnd(context, run);
  }
  const exitCode = exitCodeOfRun(run);
  if (exitCode !== exitCodes.ok) throw new ReportedError(exitCode);
}

function noteOther(context: CommandContext, runId: string): void {
  context.note(`Run ${runId} is already in progress: waiting for it to finish.`);
}

function noteLeft(
  context: CommandContext,
  id: string,
  { run, started }: { run: ScheduleRunMessage; started: boolean },
): void {
  context.note(
    started
      ? `Canceled run ${run.id} of ${id}.`
      : `Run ${run.id} continues. Cancel it: svc schedule cancel ${id}`,
  );
}

function noteEnd(context: CommandContext, run: ScheduleRun): void {
  const parts = [resultText(run), `took ${tookText(run, context.host.now())}`].filter((part) => part !== "");
  if (run.error !== "") context.noteLines(run.error.trimEnd());
  context.note(`Run ${run.id} ${outcomes[run.status] ?? run.status}: ${parts.join(", ")}`);
}

const outcomes: Readonly<Record<string, string>> = {
  SUCCEEDED: "succeeded",
  FAILED: "failed",
  TIMED_OUT: "timed out",
  CANCELED: "was canceled",
  INTERRUPTED: "was interrupted: the daemon stopped",
};

/** The exit code of `svc schedule run` for a finished run. */
export function exitCodeOfRun({
  status,
  exit_code: code,
}: Pick<ScheduleRun, "status" | "exit_code">): number {
  switch (status) {
    case "SUCCEEDED":
      return exitCodes.ok;
    case "TIMED_OUT":
      return exitCodes.jobTimedOut;
    case "CANCELED":
      return exitCodes.interrupted;
    default:
      return code !== undefined && code > 0 && code < 256 ? code : exitCodes.failed;
  }
}

/** `svc schedule cancel`. */
export function addCancelCommand(parent: Command, run: RunCommand): void {
  parent
    .command("cancel")
    .description("cancel the current run of a job, with all its processes")
    .argument("<job>", "ID of the job")
    .addOption(ownerOption())
    .action(run((context, id: string, options: OwnerOption) => cancel(context, id, options)));
}

async function cancel(context: CommandContext, id: string, options: OwnerOption): Promise<void> {
  const run = await context.call(calls.cancelScheduleRun, jobRef(id, options));
  return context.printResult(run, `Run ${run.id} of ${id} is ${run.status}`);
}
