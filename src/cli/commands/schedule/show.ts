/** `svc schedule show`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import type { RunCommand } from "../../run-command.ts";
import { inLocalTime, inUtc, relativeTo, type InstantFormat } from "../../output/instant.ts";
import {
  actionText,
  jobOwnerText,
  nextRunText,
  resultText,
  runColor,
  waitText,
  tookText,
  triggerText,
} from "../../output/schedule-table.ts";
import { formatDuration } from "../../output/units.ts";
import type { Schedule } from "../../client/calls.ts";
import { getJob } from "./jobs.ts";
import { ownerOption, type OwnerOption } from "./owner-option.ts";

interface ShowOptions extends OwnerOption {
  readonly utc?: boolean;
}

export function addShowCommand(parent: Command, run: RunCommand): void {
  parent
    .command("show")
    .description("show everything about a job")
    .argument("<job>", "ID of the job")
    .option("--utc", "show times in UTC instead of local time")
    .addOption(ownerOption())
    .action(run((context, id: string, options: ShowOptions) => show(context, id, options)));
}

async function show(context: CommandContext, id: string, options: ShowOptions): Promise<void> {
  const job = await getJob(context, id, options);
  if (context.json) return context.printJson(job);
  const nowMs = context.host.now();
  const clock = options.utc === true ? inUtc : inLocalTime;
  const relative = relativeTo(nowMs);
  const format: InstantFormat = (instantMs) => `${clock(instantMs)} (${relative(instantMs)})`;
  const { action, last_run: last } = job;
  return context.printFields([
    ["ID", job.id],
    ["Trigger", triggerText(job)],
    ["Action", actionText(action)],
    ...Object.entries(action?.headers ?? {}).map(([name, value]) => ["Header", `${name}: ${value}`] as const),
    ["Body", action?.body],
    ["Keep", archivesText(job)],
    ["Left", action?.keep_children === true ? "background processes keep running" : ""],
    ["Next run", nextRunText(job, format)],
    ["Waiting", waitText(job.waiting, format)],
    ["Last run", lastRun(job, nowMs, format), runColor(last?.status)],
    ["Error", last?.error.trim()],
    ["Skipped", skippedText(job, format)],
    ["Timeout", secsText(job.timeout)],
    ["Jitter", job.jitter_secs > 0 ? secsText(job.jitter_secs) : ""],
    ["Retries", job.retries > 0 ? String(job.retries) : ""],
    ["Catch up", job.catch_up === "latest" ? "the latest missed firing" : ""],
    ["Owner", jobOwnerText(job)],
    ["Managed by", job.managed_by ?? "", "cyan"],
    ["Comment", job.comment],
  ]);
}

function secsText(secs: number | undefined): string {
  return secs === undefined ? "" : formatDuration(secs * 1000);
}

function archivesText({ keep, action }: Schedule): string {
  const count = keep ?? action?.keep;
  return count === undefined ? "" : `${count} archives`;
}

/** `FAILED 2026-…, run 12, took 0.2s, exit 3` */
function lastRun(job: Schedule, nowMs: number, format: InstantFormat): string {
  const { last_run: run } = job;
  if (run?.started_at === undefined) return "";
  const parts = [
    `${run.status} ${format(Date.parse(run.started_at))}`,
    `run ${run.id}`,
    tookText(run, nowMs),
  ];
  return [...parts, resultText(run)].filter((part) => part !== "").join(", ");
}

const reasons: Readonly<Record<string, string>> = {
  running: "the previous run was still running",
  late: "the host was suspended",
  down: "the daemon was not running",
  busy: "the previous firing was still waiting to start",
  owner: "the owner no longer exists",
};

/** `3: 2 the previous run was still running (last 2026-…), 1 …` */
function skippedText({ skipped, skips }: Schedule, format: InstantFormat): string {
  if (skipped === 0) return "";
  const parts = skips.map(
    ({ reason, count, last_unix: last }) =>
      `${count} ${reasons[reason] ?? reason}, last ${format(last * 1000)}`,
  );
  return parts.length === 0 ? String(skipped) : `${skipped}: ${parts.join("; ")}`;
}
