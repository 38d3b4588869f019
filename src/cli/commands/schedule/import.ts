/** `svc schedule import`: turns a crontab into shell jobs; either all of its lines or none. */
import { readFile } from "node:fs/promises";
import type { Command } from "commander";
import { SvcError } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { readCrontab, type CrontabEntry, type CrontabRemark } from "../../crontab/crontab.ts";
import { asSvcError, UsageError } from "../../output/failure.ts";
import type { RunCommand } from "../../run-command.ts";
import { readInput } from "../../input/local-file.ts";
import { renderTable } from "../../output/table.ts";
import { calls, type Schedule, type ScheduleRequest } from "../../client/calls.ts";
import { bareAction } from "./job-flags.ts";
import { commandName, idsLike } from "./job-names.ts";
import { listAllJobs } from "./jobs.ts";
import { jobRef, ownerOption, type OwnerOption } from "./owner-option.ts";
import { isAlreadyExists, createJob, maxConflicts } from "./write-job.ts";

interface ImportOptions extends OwnerOption {
  readonly system?: boolean;
  readonly app?: string;
  readonly prefix?: string;
  readonly dryRun?: boolean;
  readonly skipBad?: boolean;
  readonly disabled?: boolean;
}

/** A crontab line, and the job made from it. */
interface Planned {
  readonly entry: CrontabEntry;
  readonly job: ScheduleRequest;
}

export function addImportCommand(parent: Command, run: RunCommand): void {
  parent
    .command("import")
    .description("create jobs from the lines of a crontab")
    .argument("<file>", "the crontab; - reads stdin")
    .option("--system", "each line has a user after the time, as in /etc/crontab; needs root")
    .option("--app <id>", "run the commands in this app's directory, as its owner")
    .option("--prefix <text>", "prefix for the job IDs")
    .option("--dry-run", "show the jobs and write nothing")
    .option("--skip-bad", "skip lines that cannot be jobs, instead of failing")
    .option("--disabled", "add the jobs disabled")
    .addOption(ownerOption())
    .addHelpText("after", help)
    .action(run((context, file: string, options: ImportOptions) => importCrontab(context, file, options)));
}

const help = `
All lines are checked first, and problems are listed by line. Lines that already have a job (same time and command) are skipped, so
an import can be repeated. Variables are set in the commands; CRON_TZ becomes the jobs' time zone; comments right above a line
become its comment. Commands start in / or in the app's directory, not in a home directory. Remove the lines from cron afterwards, or
both will run them.

Examples:
  crontab -l | svc schedule import - --app hello --dry-run
  svc schedule import /etc/crontab --system --prefix cron-
`;

async function importCrontab(context: CommandContext, file: string, options: ImportOptions): Promise<void> {
  const { system = false, app } = options;
  if (system && app !== undefined)
    throw new UsageError("pass either --system or --app: an app's jobs run as its owner");
  if (system && context.host.uid !== 0)
    throw new UsageError("--system creates root's jobs: run it with sudo");
  const crontab = readCrontab(await readInput(context.host, file), { withUsers: system, ownUser: "root" });
  if (!system) await noteUserColumn(context, file, crontab.entries);
  for (const { line, text } of crontab.notes) context.note(`line ${line}: ${text}`);
  if (crontab.entries.length > 0) await checkAction(context, options);
  const checked = await checkEntries(context, crontab.entries);
  const problems = [...crontab.problems, ...checked.problems].toSorted((a, b) => a.line - b.line);
  const jobs = await plan(context, checked.good, options);
  for (const { line, text } of problems) context.note(`line ${line}: ${text}`);
  if (problems.length > 0 && options.skipBad !== true) {
    const count =
      problems.length === 1 ? "1 line cannot be a job" : `${problems.length} lines cannot be jobs`;
    const message = `${count}, so nothing was written; change the file, or skip them with --skip-bad`;
    throw new SvcError("invalid_request", message);
  }
  const written = options.dryRun === true ? jobs.map(({ job }) => job) : await write(context, jobs, options);
  return report(context, written, options);
}

/** A system crontab has a column for users, which would be run as commands. */
async function noteUserColumn(
  context: CommandContext,
  file: string,
  entries: readonly CrontabEntry[],
): Promise<void> {
  const users = new Set((await readFile("/etc/passwd", "utf8").catch(() => "")).split(/:.*\n?/));
  const first = entries.map(({ line, written }) => ({ line, word: written.split(/\s/, 1)[0] ?? "" }));
  const found = first.find(({ word }) => word !== "" && users.has(word));
  if (found === undefined) return;
  const what = `line ${found.line}: "${found.word}" is a user of this host, and is run as a command`;
  context.note(`${what}; if each line of ${file} has a user, as in /etc/crontab, pass --system`);
}

/** Whether the user may have such jobs. @throws SvcError `invalid_request` if not, as when writing the first job */
async function checkAction(context: CommandContext, { app = "", owner }: ImportOptions): Promise<void> {
  const action = { ...bareAction("shell"), app, command: "true" };
  await context.call(calls.previewSchedule, {
    trigger: "hourly",
    count: 1,
    action,
    ...(owner !== undefined && { owner }),
  });
}

/** Checks each distinct time with the daemon, once. */
async function checkEntries(
  context: CommandContext,
  entries: readonly CrontabEntry[],
): Promise<{ good: readonly CrontabEntry[]; problems: readonly CrontabRemark[] }> {
  const lookups = new Map<string, Promise<string | undefined>>();
  const good: CrontabEntry[] = [];
  const problems: CrontabRemark[] = [];
  for (const entry of entries) {
    context.throwIfInterrupted();
    const key = `${entry.timeZone}\n${entry.trigger}`;
    const asking = lookups.get(key) ?? triggerProblem(context, entry);
    lookups.set(key, asking);
    const problem = await asking;
    if (problem === undefined) good.push(entry);
    else problems.push({ line: entry.line, text: problem });
  }
  return { good, problems };
}

async function triggerProblem(
  context: CommandContext,
  { trigger, timeZone }: CrontabEntry,
): Promise<string | undefined> {
  try {
    await context.call(calls.previewSchedule, { trigger, time_zone: timeZone, count: 1 });
    return undefined;
  } catch (error) {
    const known = asSvcError(error);
    if (known?.code !== "invalid_argument") throw error;
    return known.message;
  }
}

/** Gives each line a free ID; leaves out lines that already have a job. */
async function plan(
  context: CommandContext,
  entries: readonly CrontabEntry[],
  options: ImportOptions,
): Promise<readonly Planned[]> {
  const { app = "", prefix = "", disabled = false } = options;
  const uid = options.owner ?? context.host.uid;
  const stored = (await listAllJobs(context)).filter((job) => job.owner === uid);
  const taken = new Set(stored.map(({ id }) => id));
  const planned: Planned[] = [];
  for (const entry of entries) {
    const { line, trigger, timeZone, command, written, comment } = entry;
    const twin = stored.find((job) => isSameJob(job, entry, app));
    if (twin !== undefined) {
      context.note(`line ${line}: already exists as job ${twin.id}`);
      continue;
    }
    const [id = ""] = idsLike(`${prefix}${commandName(written)}`).filter((each) => !taken.has(each));
    taken.add(id);
    const action = { ...bareAction("shell"), app, command };
    planned.push({
      entry,
      job: {
        ...jobRef(id, options),
        trigger,
        enabled: !disabled,
        time_zone: timeZone,
        comment,
        action,
      },
    });
  }
  return planned;
}

function isSameJob(job: Schedule, { trigger, timeZone, command }: CrontabEntry, app: string): boolean {
  const { action } = job;
  const does = action?.type === "shell" && action.command === command && (action.app ?? "") === app;
  return does && job.trigger === trigger && (job.utc ? "UTC" : job.time_zone) === timeZone;
}

/** Codes of errors that the same import would get again. */
const permanentCodes: ReadonlySet<string> = new Set([
  "invalid_argument",
  "permission_denied",
  "resource_exhausted",
]);

async function write(
  context: CommandContext,
  planned: readonly Planned[],
  options: ImportOptions,
): Promise<readonly Schedule[]> {
  const written: Schedule[] = [];
  for (const each of planned) {
    try {
      const job = await make(context, each, options);
      if (job !== undefined) written.push(job);
    } catch (error) {
      const done = `${written.length} of ${planned.length} jobs were written`;
      const code = asSvcError(error)?.code ?? "";
      const next = permanentCodes.has(code) ? "" : "; repeat the import to continue";
      context.note(`line ${each.entry.line}: ${done}${next}`);
      throw error;
    }
  }
  return written;
}

/**
 * Creates the job. If somebody else has taken its ID since, uses the next free one.
 * @returns undefined if the other user's job is identical
 */
async function make(
  context: CommandContext,
  { entry, job }: Planned,
  options: ImportOptions,
): Promise<Schedule | undefined> {
  let request: ScheduleRequest | undefined = job;
  for (let losses = 0; request !== undefined;) {
    context.throwIfInterrupted();
    try {
      return await createJob(context, request);
    } catch (error) {
      losses += 1;
      if (!isAlreadyExists(error) || losses === maxConflicts) throw error;
    }
    const [next] = await plan(context, [entry], options);
    request = next?.job;
  }
  return undefined;
}

async function report(
  context: CommandContext,
  jobs: readonly (Schedule | ScheduleRequest)[],
  { dryRun }: ImportOptions,
): Promise<void> {
  if (context.json) return context.printJson({ schedules: jobs });
  if (jobs.length === 0) {
    context.note("There is nothing to import.");
    return;
  }
  const table = renderTable<Schedule | ScheduleRequest>(
    [
      { title: "ID", value: ({ id }) => id ?? "", shrinkTo: 12 },
      {
        title: "TRIGGER",
        value: (job) => [job.trigger ?? "", job.time_zone ?? ""].filter((part) => part !== "").join(" "),
        shrinkTo: 12,
      },
      { title: "COMMAND", value: ({ action }) => action?.command ?? "", shrinkTo: 16 },
      { title: "COMMENT", value: ({ comment }) => comment?.split("\n", 1)[0] ?? "", shrinkTo: 8 },
    ],
    jobs,
    context.tableStyle,
  );
  context.note(
    dryRun === true
      ? "Nothing was written. These would be the jobs:"
      : `Imported ${jobs.length === 1 ? "1 job" : `${jobs.length} jobs`}. Remove their lines from cron, or both will run them.`,
  );
  return context.print(table);
}
