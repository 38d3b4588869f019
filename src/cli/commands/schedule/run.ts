/** `svc schedule run`: a job now, in the foreground. */
import type { Command } from "commander";
import type { ScheduleRun as ScheduleRunMessage } from "../../../../gen/svc/v1/schedule_pb.ts";
import { SvcError } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { exitCodes } from "../../exit-codes.ts";
import { AdvisedError, asSvcError, ReportedError } from "../../failure.ts";
import type { RunCommand } from "../../run-command.ts";
import { ByteOutput, writeOutput } from "../../render/byte-output.ts";
import { resultText, tookText } from "../../render/schedule-table.ts";
import { calls, type ScheduleRun } from "../../transport/calls.ts";
import { jobRef, ownerOption, type OwnerOption } from "./owner-option.ts";

interface RunOptions extends OwnerOption {
  readonly detach?: boolean;
}

export function addRunCommand(parent: Command, run: RunCommand): void {
  parent
    .command("run")
    .description("run a job now, print its output and end with its exit code")
    .argument("<job>", "its id")
    .option("-d, --detach", "only start it")
    .addOption(ownerOption())
    .addHelpText("after", help)
    .action(
      run((context, id: string, options: RunOptions) =>
        options.detach === true ? startRun(context, id, options) : followRun(context, id, options),
      ),
    );
}

const help = `
Ends with the command's exit code; 1 when another action failed, 124 when the job's timeout passed, 130 when the run was
canceled. Ctrl-C cancels the run that it started. While a run is under way already, it waits for that one: one at a time.
On a terminal, control characters in the output are shown as \\xNN. A pipe or a file gets it as it is.
With --json: the run as it ended, its output in it.
`;

async function startRun(context: CommandContext, id: string, options: OwnerOption): Promise<void> {
  const client = await context.client();
  if (!(await client.outlives())) {
    const message =
      "there is no daemon that would go on with the run; leave --detach out, or start one: svc daemon";
    throw new SvcError("unavailable", message);
  }
  const answer = await context.call(calls.runSchedule, jobRef(id, options));
  const { started, run } = answer;
  const text = started
    ? `Started run ${run?.id ?? ""} of ${id}`
    : `Run ${run?.id ?? ""} of ${id} is under way already`;
  return context.tell(answer, `${text}. Follow it: svc schedule run ${id}`);
}

/** @throws ReportedError with the exit code of a run that did not succeed */
async function followRun(context: CommandContext, id: string, options: OwnerOption): Promise<void> {
  const { ScheduleRunSchema, ScheduleService } = await import("../../../../gen/svc/v1/schedule_pb.ts");
  const { messageToRest } = await import("../../transport/rest-json.ts");
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
        `run ${first.run.id} of ${id} ended with the daemon; what came of it: svc schedule runs ${id}`,
      );
    throw error;
  } finally {
    if (!context.json) await output.end();
  }
  if (last === undefined || last.status === "RUNNING") {
    throw new SvcError("internal", `the daemon did not tell how the run of ${id} ended`);
  }
  const run = messageToRest(ScheduleRunSchema, last);
  if (context.json) await context.printJson(run);
  else {
    // Nothing came of a run that somebody else started, but it is on record.
    if (first?.started === false) await writeOutput(context.host.stdout, run.output);
    noteEnd(context, run);
  }
  const exitCode = exitCodeOfRun(run);
  if (exitCode !== exitCodes.ok) throw new ReportedError(exitCode);
}

function noteOther(context: CommandContext, runId: string): void {
  context.note(`Run ${runId} is under way already: waiting for its end and its output.`);
}

function noteLeft(
  context: CommandContext,
  id: string,
  { run, started }: { run: ScheduleRunMessage; started: boolean },
): void {
  context.note(
    started ? `Canceled run ${run.id} of ${id}.` : `Run ${run.id} goes on. End it: svc schedule cancel ${id}`,
  );
}

function noteEnd(context: CommandContext, run: ScheduleRun): void {
  const parts = [resultText(run), `took ${tookText(run, context.host.now())}`].filter((part) => part !== "");
  if (run.error !== "") context.noteLines(run.error.trimEnd());
  context.note(`Run ${run.id} ${endWords[run.status] ?? run.status}: ${parts.join(", ")}`);
}

const endWords: Readonly<Record<string, string>> = {
  SUCCEEDED: "succeeded",
  FAILED: "failed",
  TIMED_OUT: "timed out",
  CANCELED: "was canceled",
  INTERRUPTED: "was interrupted: the daemon ended",
};

/** The exit code of `svc schedule run` for a run that has ended. */
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
