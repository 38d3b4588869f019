/** Writes jobs safely while others write theirs: no unseen change is overwritten. */
import type { CommandContext } from "../../context.ts";
import { asSvcError } from "../../output/failure.ts";
import { calls, type Schedule, type ScheduleRequest } from "../../client/calls.ts";
import { idsLike } from "./job-names.ts";
import { warnIfManaged } from "../../managed.ts";
import { getJob, requestOf } from "./jobs.ts";
import type { OwnerOption } from "./owner-option.ts";

/** How often a command may lose against concurrent changes before it fails. */
export const maxConflicts = 50;
/** The longest random wait before the next attempt, in milliseconds: it separates commands that collided. */
const longestPauseMs = 50;

/**
 * Creates a job under the first free ID like `name`.
 * @param isTaken whether an ID is known to be in use, before it is tried
 * @throws SvcError `already_exists` if others took each ID first
 */
export async function createNamedJob(
  context: CommandContext,
  name: string,
  job: ScheduleRequest,
  isTaken: (id: string) => boolean | Promise<boolean>,
): Promise<Schedule> {
  let losses = 0;
  for (const id of idsLike(name)) {
    if (await isTaken(id)) continue;
    try {
      return await createJob(context, { ...job, id });
    } catch (error) {
      losses += 1;
      if (!isAlreadyExists(error) || losses === maxConflicts) throw error;
    }
  }
  throw new Error("ids do not end");
}

/** @throws SvcError `already_exists` if there is a job with this ID */
export function createJob(context: CommandContext, job: ScheduleRequest): Promise<Schedule> {
  return context.call(calls.upsertSchedule, { ...job, create_only: true });
}

export function isAlreadyExists(error: unknown): boolean {
  return asSvcError(error)?.code === "already_exists";
}

/**
 * Changes a job; after a concurrent change, starts again from the new state. Warns once if a platform manages
 * the job.
 * @param change returns the request to send, given the job and the request that would leave it unchanged
 * @throws SvcError `not_found`; `aborted` if others keep changing the job; any error of `change`
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
      if (asSvcError(error)?.code !== "aborted" || losses === maxConflicts) throw error;
    }
    await context.pause(Math.random() * longestPauseMs);
  }
}
