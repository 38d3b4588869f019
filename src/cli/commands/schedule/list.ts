/** `svc schedule list`. */
import { Option, type Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { inUtc, relativeTo } from "../../output/instant.ts";
import { failedJobs, jobColumns, lastOutputCommand } from "../../output/schedule-table.ts";
import { asSvcError } from "../../output/failure.ts";
import { calls } from "../../client/calls.ts";
import { pagesOf } from "../../pages.ts";
import { listAllJobs } from "./jobs.ts";
import { watchable, watchOption } from "../../output/watched.ts";

interface ListOptions {
  readonly managedBy?: string;
  readonly utc?: boolean;
}

export function addListCommand(parent: Command, run: RunCommand): void {
  parent
    .command("list", { isDefault: true })
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
  const policies = managedBy === undefined ? await backupPolicies(context) : [];
  const which = policies.length === 0 ? "jobs" : "other jobs";
  const none =
    managedBy === undefined ? `No ${which} yet. Add one: svc schedule add ${example}` : "No job matches.";
  if (policies.length > 0)
    context.note(`Backups by policy: ${policies.join(", ")}. Details: svc backup policy ID`);
  const failed = failedJobs(jobs);
  const failedFirst = [...failed, ...jobs.filter((job) => !failed.includes(job))];
  await context.printTable(jobColumns(jobs, host.uid, format), failedFirst, none);
  const [first] = failed;
  if (first !== undefined && context.options.quiet !== true)
    context.note(`The last run of ${first.id} failed. See its output: ${lastOutputCommand(first, host.uid)}`);
}

/** The most policies that are read. */
const maxPolicies = 20;

/** `shop (03:30)`, for apps with automatic backups. Empty if the daemon cannot tell. */
async function backupPolicies(context: CommandContext): Promise<readonly string[]> {
  try {
    const ids: string[] = [];
    for await (const { apps } of pagesOf(context, calls.listApps, {}))
      ids.push(...apps.filter(({ backups }) => backups !== undefined).map(({ id }) => id));
    const policies = await Promise.all(
      ids.slice(0, maxPolicies).map((id) => context.call(calls.getBackupPolicy, { app_id: id })),
    );
    const named = policies.filter(({ trigger }) => trigger !== "");
    const texts = named.map(({ app_id: id, trigger }) => `${id} (${trigger})`);
    return ids.length > maxPolicies ? [...texts, "…"] : texts;
  } catch (error) {
    if (asSvcError(error) === undefined) throw error;
    return [];
  }
}
