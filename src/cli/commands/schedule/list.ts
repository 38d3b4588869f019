/** `svc schedule list`. */
import { Option, type Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { inUtc, relativeTo } from "../../output/instant.ts";
import { failedJobs, jobColumns, lastOutputCommand } from "../../output/schedule-table.ts";
import { listAllJobs } from "./jobs.ts";
import { watchable, watchOption } from "../../output/watched.ts";

interface ListOptions {
  readonly managedBy?: string;
  readonly utc?: boolean;
}

export function addListCommand(parent: Command, run: RunCommand): void {
  parent
    .command("list")
    .alias("ls")
    .description("list the jobs with their next and last run; failed ones first")
    .option("--managed-by <name>", "only jobs of this manager, such as platform; '' for unmanaged jobs")
    .option("--utc", "show times in UTC instead of relative to now")
    .addOption(new Option("-a, --all", "has no effect: disabled jobs are listed, too").hideHelp())
    .option(...watchOption)
    .action(run(watchable((context, options: ListOptions) => list(context, options))));
}

async function list(context: CommandContext, { managedBy, utc }: ListOptions): Promise<void> {
  const jobs = await listAllJobs(context, managedBy);
  if (context.json) return context.printJson({ schedules: jobs, next_page_token: "" });
  const { host } = context;
  const format = utc === true ? inUtc : relativeTo(host.now());
  // A regular user's command needs an app of that user.
  const example = host.uid === 0 ? "'*/5 * * * *' shell --command 'echo hi'" : "daily@03:00 backup --app ID";
  const none =
    managedBy === undefined ? `No jobs yet. Add one: svc schedule add ${example}` : "No job matches.";
  const failed = failedJobs(jobs);
  const failedFirst = [...failed, ...jobs.filter((job) => !failed.includes(job))];
  await context.printTable(jobColumns(jobs, host.uid, format), failedFirst, none);
  const [first] = failed;
  if (first !== undefined && context.options.quiet !== true)
    context.note(`The last run of ${first.id} failed. See its output: ${lastOutputCommand(first, host.uid)}`);
}
