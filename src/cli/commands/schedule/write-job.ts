/** Jobs that are written while others write theirs: nothing is written over that was not seen. */
import type { CommandContext } from "../../context.ts";
import { asSvcError } from "../../failure.ts";
import { calls, type Schedule, type ScheduleRequest } from "../../transport/calls.ts";
import { idsLike } from "./job-names.ts";
import { warnIfManaged } from "../../managed.ts";
import { getJob, requestOf } from "./jobs.ts";
import type { OwnerOption } from "./owner-option.ts";

/** How often others may be quicker before a command gives up. */
export const maxLosses = 50;
/** The longest wait before a next attempt, so that those who meet once do not go on meeting. */
const longestPauseMs = 50;

/**
 * Makes a job under the first id like `name` that is free.
 * @param isTaken what is known of an id before it is tried
 * @throws SvcError `already_exists` when others took each id first
 */
export async function makeNamedJob(
  context: CommandContext,
  name: string,
  job: ScheduleRequest,
  isTaken: (id: string) => boolean | Promise<boolean>,
): Promise<Schedule> {
  let losses = 0;
  for (const id of idsLike(name)) {
    if (await isTaken(id)) continue;
    try {
      return await makeJob(context, { ...job, id });
    } catch (error) {
      losses += 1;
      if (!isAlreadyThere(error) || losses === maxLosses) throw error;
    }
  }
  throw new Error("ids do not end");
}

/** @throws SvcError `already_exists` when there is a job of its id */
export function makeJob(context: CommandContext, job: ScheduleRequest): Promise<Schedule> {
  return context.call(calls.upsertSchedule, { ...job, create_only: true });
}

export function isAlreadyThere(error: unknown): boolean {
  return asSvcError(error)?.code === "already_exists";
}

/**
 * Changes a job as it is; when somebody else changed it meanwhile, as it is then. Warns once if it is a platform's.
 * @param change what is to be sent, by the job and the request that would leave it as it is
 * @throws SvcError `not_found`; `aborted` when others change it all the time; what `change` throws
 */
export async function changeJob(
  context: CommandContext,
  id: string,
  owner: OwnerOption,
  change: (request: ScheduleRequest, job: Schedule) => ScheduleRequest,
): Promise<Schedule> {
  for (let losses = 0; ;) {
    const job = await getJob(context, id, owner);
    if (losses === 0) warnIfManaged(context, job);
    try {
      const changed = await context.call(calls.upsertSchedule, change(requestOf(job, owner), job));
      for (const warning of changed.warnings) context.note(`warning: ${warning}`);
      return changed;
    } catch (error) {
      losses += 1;
      if (asSvcError(error)?.code !== "aborted" || losses === maxLosses) throw error;
    }
    await context.pause(Math.random() * longestPauseMs);
  }
}
