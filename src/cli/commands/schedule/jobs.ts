/** Jobs as the API gives and takes them. */
import { outputOnlyFields } from "../../../../gen/svc/v1/fields.ts";
import type { CommandContext } from "../../context.ts";
import { pagesOf } from "../../pages.ts";
import { calls, type Schedule, type ScheduleRequest } from "../../transport/calls.ts";
import { jobRef, type OwnerOption } from "./owner-option.ts";

/** @param managedBy only jobs of this owner; empty for the operator's, undefined for all */
export async function listAllJobs(context: CommandContext, managedBy?: string): Promise<readonly Schedule[]> {
  const jobs: Schedule[] = [];
  const wanted = managedBy === undefined ? {} : { managed_by: managedBy };
  for await (const page of pagesOf(context, calls.listSchedules, wanted)) jobs.push(...page.schedules);
  return jobs;
}

/** @throws SvcError `not_found` */
export function getJob(context: CommandContext, id: string, owner: OwnerOption): Promise<Schedule> {
  return context.call(calls.getSchedule, jobRef(id, owner));
}

/** What to send so that a stored job stays as it is, its `managed_by` claimed (D22), as long as nobody changes it. */
export function requestOf(job: Schedule, owner: OwnerOption): ScheduleRequest {
  const isSaid = (name: string): boolean => !outputOnlyFields.has(`svc.v1.UpsertScheduleRequest.${name}`);
  const said: ScheduleRequest = Object.fromEntries(Object.entries(job).filter(([name]) => isSaid(name)));
  return { ...said, ...jobRef(job.id, owner) };
}
