/** `svc schedule runs`: the runs of a job. */
import { InvalidArgumentError, Option, type Command } from "commander";
import { notFound } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../output/failure.ts";
import type { RunCommand } from "../../run-command.ts";
import { writeOutput } from "../../output/byte-output.ts";
import { escapeCell } from "../../output/escape.ts";
import { parseCount } from "../../input/option-values.ts";
import { inLocalTime, inUtc, relativeTo } from "../../output/instant.ts";
import { resultText, runColor, runColumns, tookText, waitText } from "../../output/schedule-table.ts";
import { pagesOf } from "../../pages.ts";
import { calls, type ScheduleRun, type ScheduleRuns } from "../../client/calls.ts";
import { jobRef, ownerOption, type OwnerOption } from "./owner-option.ts";

interface RunsOptions extends OwnerOption {
  readonly limit?: number;
  readonly follow?: boolean;
  /** Number of a run, or true for the newest. */
  readonly output?: string | true;
  readonly utc?: boolean;
}

type JobRef = ReturnType<typeof jobRef>;

const maxRuns = 50;

export function addRunsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("runs")
    .description("list the runs of a job, newest first; at most 50 are kept")
    .argument("[job]", "ID of the job; optional with --follow (default: all visible jobs)")
    .option("-n, --limit <runs>", "show the newest N runs, at most 50", parseCount(1, 50))
    .option("-f, --follow", "print runs as they start and finish, until Ctrl-C")
    .addOption(
      new Option("-o, --output [run]", "print the output of a run (default: the newest)").argParser(parseRun),
    )
    .option("--utc", "show times in UTC")
    .addOption(ownerOption())
    .addHelpText(
      "after",
      "\nExamples:\n  svc schedule runs echo --limit 5\n  svc schedule runs echo --output\n  svc schedule runs --follow\n",
    )
    .action(run((context, id: string | undefined, options: RunsOptions) => showRuns(context, id, options)));
}

function parseRun(text: string): string {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("It must be a run number.");
  return text;
}

async function showRuns(
  context: CommandContext,
  id: string | undefined,
  options: RunsOptions,
): Promise<void> {
  const { follow, output, limit, utc } = options;
  if (follow === true) {
    if (output !== undefined || limit !== undefined) {
      throw new UsageError("--follow cannot be combined with --output or --limit");
    }
    return followRuns(context, id ?? "", options);
  }
  if (id === undefined)
    throw new UsageError("name a job: svc schedule runs JOB; or pass --follow for all jobs");
  const job = jobRef(id, options);
  if (output !== undefined) return printOutput(context, id, await findRun(context, job, output), output);
  const answer = await listRuns(context, job, limit);
  if (context.json) return context.printJson(answer);
  const nowMs = context.host.now();
  const columns = runColumns(answer.runs, nowMs, utc === true ? inUtc : relativeTo(nowMs));
  const none = `${id} has not run yet. Run it: svc schedule run ${id}`;
  const wait = waitText(answer.waiting, utc === true ? inUtc : relativeTo(nowMs));
  if (wait !== "") context.note(`Waiting: ${wait}.`);
  return context.printTable(columns, answer.runs, none);
}

/** The newest runs, from as many pages as needed. */
async function listRuns(context: CommandContext, job: JobRef, limit = maxRuns): Promise<ScheduleRuns> {
  const runs: ScheduleRun[] = [];
  let waiting: ScheduleRuns["waiting"];
  for await (const page of pagesOf(context, calls.listScheduleRuns, { ...job, limit })) {
    runs.push(...page.runs.slice(0, limit - runs.length));
    waiting ??= page.waiting;
    if (runs.length === limit) break;
  }
  return { runs, ...(waiting !== undefined && { waiting }), next_page_token: "" };
}

/** A run by its number, or the newest. */
async function findRun(
  context: CommandContext,
  job: JobRef,
  selected: string | true,
): Promise<ScheduleRun | undefined> {
  const limit = selected === true ? 1 : maxRuns;
  for await (const { runs } of pagesOf(context, calls.listScheduleRuns, { ...job, limit })) {
    const run = selected === true ? runs[0] : runs.find((each) => each.id === selected);
    if (run !== undefined || selected === true) return run;
  }
  return undefined;
}

async function printOutput(
  context: CommandContext,
  id: string,
  run: ScheduleRun | undefined,
  selected: string | true,
): Promise<void> {
  if (run === undefined) {
    const what =
      selected === true ? `${id} has not run yet` : `run ${selected} of ${id} does not exist any more`;
    throw notFound(
      "run",
      selected === true ? id : selected,
      `${what}; see its runs with: svc schedule runs ${id}`,
    );
  }
  if (context.json) return context.printJson(run);
  await writeOutput(context.host.stdout, run.output);
  if (run.truncated)
    context.note(`The output of run ${run.id} is truncated: only its beginning and end are stored.`);
  if (run.error !== "") context.noteLines(run.error.trimEnd());
}

async function followRuns(
  context: CommandContext,
  id: string,
  options: Pick<RunsOptions, "owner" | "utc">,
): Promise<void> {
  const { ScheduleRunSchema, ScheduleService } = await import("../../../../gen/svc/v1/schedule_pb.ts");
  const { messageToRest } = await import("../../client/rest-json.ts");
  const { SeenRuns } = await import("./seen-runs.ts");
  const job = jobRef(id, options);
  const seen = new SeenRuns(context);
  const method = ScheduleService.method.followScheduleRuns;
  const format = options.utc === true ? inUtc : inLocalTime;
  for await (const message of context.follow(method, () => ({ ...job, ...seen.request() }))) {
    const run = messageToRest(ScheduleRunSchema, message);
    if (!seen.isNew(run)) continue;
    await (context.json ? context.printJsonLine(run) : context.print(runLine(context, run, format)));
  }
}

/** `2026-03-29 03:00:00 +02:00  echo  run 12  SUCCEEDED  took 0.2s, exit 0` */
function runLine(context: CommandContext, run: ScheduleRun, format: (instantMs: number) => string): string {
  const at = run.ended_at ?? run.started_at;
  const time = at === undefined ? "" : format(Date.parse(at));
  const took = run.ended_at === undefined ? "" : `took ${tookText(run, Date.parse(run.ended_at))}`;
  const error = run.error.split("\n", 1)[0] ?? "";
  const details = [took, resultText(run), error].filter((part) => part !== "").join(", ");
  const status = context.paint(runColor(run.status), run.status.padEnd("INTERRUPTED".length));
  return (
    `${context.paint("dim", time)}  ${escapeCell(run.job_id)}  run ${run.id}  ${status}  ${escapeCell(details)}`.trimEnd() +
    "\n"
  );
}
