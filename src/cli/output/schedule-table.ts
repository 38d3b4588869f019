/** Tables of jobs, runs and firings. */
import type { Schedule, ScheduleFiring, ScheduleRun } from "../client/calls.ts";
import type { Color } from "./color.ts";
import { formatTook, inLocalTime, relativeTo, type InstantFormat } from "./instant.ts";
import type { Column } from "./table.ts";

/** A job's action: `run "echo hi" in hello`. */
export function actionText(action: Schedule["action"]): string {
  if (action === undefined) return "";
  const { type, app = "", storages, command = "", method = "GET", url = "" } = action;
  switch (type) {
    case "node_reboot":
      return "reboot the host";
    case "backup":
      return `back up ${app}${storages.length > 0 ? ` to ${storages.join(", ")}` : ""}`;
    case "backup_verify":
      return `verify the backups of ${app}${storages.length > 0 ? ` on ${storages.join(", ")}` : ""}`;
    case "shell":
      return `run "${command}"${app === "" ? "" : ` in ${app}`}`;
    case "http":
      return `${method} ${url}`;
    default:
      return `${type.replace(/^app_/, "")} ${app}`;
  }
}

/** The trigger, with its time zone if that is not the node's. */
export function triggerText({ trigger, utc, time_zone: zone }: Schedule): string {
  if (utc) return `${trigger} UTC`;
  return zone === "" ? trigger : `${trigger} ${zone}`;
}

/** Older daemons do not report it. */
export function isStopped({ disabled_reason: reason }: Partial<Schedule>): boolean {
  return reason !== undefined && reason !== "";
}

/** Whether it is an event such as `on:app.crashed`, which has no fixed time. */
export function isEvent(trigger: string): boolean {
  return trigger.startsWith("on:");
}

export function nextRunText(job: Schedule, format: InstantFormat): string {
  if (job.enabled === false) return "disabled";
  if (isStopped(job)) return `stopped: ${job.disabled_reason}`;
  if (job.next_run_unix !== undefined) return format(job.next_run_unix * 1000);
  if (job.later_run_unix !== undefined) return dateText(job.later_run_unix);
  return isEvent(job.trigger) ? "when it happens" : "not within nine years";
}

/** `29 Feb 2028`, in the time zone of this process. */
function dateText(unix: number): string {
  const parts = { day: "numeric", month: "short", year: "numeric" } as const;
  return new Date(unix * 1000).toLocaleDateString("en-GB", parts);
}

/** When the job fires next, or why it does not. */
export function nextRunSentence(job: Schedule, nowMs: number): string {
  if (job.enabled === false) return `The job is disabled. Enable it: svc schedule enable ${job.id}`;
  if (isStopped(job)) return `The job does not run: ${job.disabled_reason}`;
  const nextUnix = job.next_run_unix ?? job.later_run_unix;
  if (nextUnix === undefined)
    return isEvent(job.trigger) ? "The job runs on the event" : "The trigger does not fire within nine years";
  const nextMs = nextUnix * 1000;
  return `Next run ${relativeTo(nowMs)(nextMs)}, at ${inLocalTime(nextMs)}`;
}

/** `SUCCEEDED 3m ago`; for a current run, its start. Empty before the first run. */
function lastRunText({ last_run: run }: Schedule, format: InstantFormat): string {
  const at = run?.ended_at ?? run?.started_at;
  return run === undefined || at === undefined ? "" : `${run.status} ${format(Date.parse(at))}`;
}

/** Jobs whose last run failed; a canceled or interrupted run is not a failure. */
export function failedJobs(jobs: readonly Schedule[]): readonly Schedule[] {
  return jobs.filter(({ last_run: run }) => run?.status === "FAILED" || run?.status === "TIMED_OUT");
}

/** The command that prints the output of the job's last run. */
export function lastOutputCommand(job: Schedule, callerUid: number): string {
  const owner = job.owner === callerUid ? "" : ` --owner ${jobOwnerText(job)}`;
  return `svc schedule runs ${job.id} --output${owner}`;
}

const waits: Readonly<Record<string, string>> = {
  jitter: "a random delay",
  room: "other runs to finish",
  retry: "another attempt",
};

/** Why a due job waits; empty if it does not wait. */
export function waitText(waiting: Schedule["waiting"], format: InstantFormat): string {
  if (waiting === undefined) return "";
  const { reason, until } = waiting;
  const what = waits[reason] ?? reason;
  return until === undefined ? what : `${what}, ${format(Date.parse(until))}`;
}

export function runColor(status: string | undefined): Color | undefined {
  switch (status) {
    case "SUCCEEDED":
      return "green";
    case "FAILED":
    case "TIMED_OUT":
      return "red";
    case undefined:
      return undefined;
    default:
      return "yellow";
  }
}

/** The owner's name, or the uid if the host knows no name. */
export function jobOwnerText({ owner, owner_name: name }: Pick<Schedule, "owner" | "owner_name">): string {
  return name === "" ? String(owner) : name;
}

/** @param callerUid jobs of this user are shown without an owner */
export function jobColumns(
  jobs: readonly Schedule[],
  callerUid: number,
  format: InstantFormat,
): Column<Schedule>[] {
  return [
    { title: "ID", value: (job) => job.id },
    { title: "TRIGGER", value: triggerText, shrinkTo: 12, dispensable: 1 },
    { title: "ACTION", value: (job) => actionText(job.action), shrinkTo: 16, dispensable: 2 },
    {
      title: "NEXT RUN",
      value: (job) => nextRunText(job, format),
      color: (job) => (job.enabled === false ? "dim" : undefined),
    },
    {
      title: "LAST RUN",
      value: (job) => lastRunText(job, format),
      color: (job) => runColor(job.last_run?.status),
    },
    {
      title: "OWNER",
      dispensable: 3,
      value: jobOwnerText,
      shrinkTo: 6,
      isHidden: jobs.every((job) => job.owner === callerUid),
    },
    {
      title: "MANAGED BY",
      dispensable: 4,
      value: (job) => job.managed_by ?? "",
      color: () => "cyan",
      shrinkTo: 10,
      isHidden: jobs.every((job) => job.managed_by === undefined),
    },
  ];
}

/** `schedule`, or `schedule, attempt 2`. */
function causeText({ trigger, attempt }: ScheduleRun): string {
  return attempt > 1 ? `${trigger}, attempt ${attempt}` : trigger;
}

/** How long a run took, or has been running. */
export function tookText({ started_at: start, ended_at: end }: ScheduleRun, nowMs: number): string {
  if (start === undefined) return "";
  return formatTook((end === undefined ? nowMs : Date.parse(end)) - Date.parse(start));
}

/** `exit 3`, `HTTP 200`; empty for a run with neither. */
export function resultText({ exit_code: code, http_status: status }: ScheduleRun): string {
  if (status !== undefined) return `HTTP ${status}`;
  return code === undefined ? "" : `exit ${code}`;
}

export function runColumns(
  runs: readonly ScheduleRun[],
  nowMs: number,
  format: InstantFormat = relativeTo(nowMs),
): Column<ScheduleRun>[] {
  return [
    { title: "RUN", value: (run) => run.id, align: "right" },
    { title: "STATUS", value: (run) => run.status, color: (run) => runColor(run.status) },
    { title: "TRIGGER", value: causeText },
    {
      title: "STARTED",
      value: ({ started_at: start }) => (start === undefined ? "" : format(Date.parse(start))),
    },
    { title: "TOOK", value: (run) => tookText(run, nowMs), align: "right" },
    { title: "RESULT", value: resultText },
    {
      title: "ERROR",
      value: (run) => run.error.split("\n", 1)[0] ?? "",
      shrinkTo: 12,
      isHidden: runs.every((run) => run.error === ""),
    },
  ];
}

/** An irregularity of a firing; empty for none. */
function anomalyText({ anomaly }: ScheduleFiring): string {
  switch (anomaly) {
    case "gap":
      return "the clock skips this time: runs right after the gap";
    case "repeated":
      return "the hour occurs twice: runs once";
    default:
      return "";
  }
}

export function firingColumns(firings: readonly ScheduleFiring[], nowMs: number): Column<ScheduleFiring>[] {
  const format = relativeTo(nowMs);
  return [
    { title: "TIME", value: (firing) => firing.local_time },
    { title: "FROM NOW", value: (firing) => format(firing.unix * 1000) },
    {
      title: "CLOCK CHANGE",
      value: anomalyText,
      color: () => "yellow",
      isHidden: firings.every((firing) => anomalyText(firing) === ""),
    },
  ];
}
