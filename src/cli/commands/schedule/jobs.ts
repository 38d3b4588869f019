/** Jobs in the API's format. */
import { outputOnlyFields } from "../../../../gen/svc/v1/fields.ts";
import type { CommandContext } from "../../context.ts";
import { pagesOf } from "../../pages.ts";
import { calls, type Schedule, type ScheduleRequest } from "../../client/calls.ts";
import { jobRef, type OwnerOption } from "./owner-option.ts";

/** @param managedBy only jobs of this manager; empty for the operator's, undefined for all */
export async function listAllJobs(context: CommandContext, managedBy?: string): Promise<readonly Schedule[]> {
  const jobs: Schedule[] = [];
  const filter = managedBy === undefined ? {} : { managed_by: managedBy };
  for await (const page of pagesOf(context, calls.listSchedules, filter)) jobs.push(...page.schedules);
  return jobs;
}

/** @throws SvcError `not_found` */
export function getJob(context: CommandContext, id: string, owner: OwnerOption): Promise<Schedule> {
  return context.call(calls.getSchedule, jobRef(id, owner));
}

/**
 * The request that leaves a stored job unchanged. It names the job's manager, without which the daemon
 * rejects changes to managed jobs, and the revision, so that it fails if somebody else changes the job first.
 */
export function requestOf(job: Schedule, owner: OwnerOption): ScheduleRequest {
  const isSettable = (name: string): boolean => !outputOnlyFields.has(`svc.v1.UpsertScheduleRequest.${name}`);
  const settable: ScheduleRequest = Object.fromEntries(
    Object.entries(job).filter(([name]) => isSettable(name)),
  );
  return { ...settable, ...jobRef(job.id, owner) };
}
