/**
 * `shell`: a command for `/bin/sh -c`. All of it happens below a process with the identity of whoever it is for, so
 * that environment, descriptors and groups are theirs alone, and every process of the run is ended with it
 * (S 1.4.9, D19, D29; threats 36 to 38 and 43).
 */
import { constants } from "node:os";
import type { Apps } from "../../apps/apps.ts";
import { SvcError } from "../../errors.ts";
import type { Identities } from "../../identity/identities.ts";
import type { JobEnd } from "../../identity/job-processes.ts";
import { systemClock } from "../../lib/clock.ts";
import type { Job } from "../jobs/job.ts";
import type { UserPlaces, PlaceBounds } from "../../lib/user-places.ts";
import type { ActionResult, ActionWork, PlainAction } from "./action.ts";
import { callerOf } from "./job-app.ts";

export interface ShellOptions {
  identities: Pick<Identities, "selfUid" | "runJob">;
  apps: Pick<Apps, "place">;
  /** For commands that are being started. */
  starts: Pick<UserPlaces, "wait">;
}

/**
 * How many commands are started at once: as many as keep the processors busy, so that what all users have due in one
 * minute is no crowd that a quick job has to make its way through. For the same reason a user's newest is started first.
 */
export const startBounds: PlaceBounds = { root: 8, users: 16, perUser: 2, first: "newest" };
/** One that has not begun by then, in a directory that hangs, say, keeps its place no longer. */
const maxStartMs = 200;

/** Where a command runs, and as whom. */
interface Workplace {
  uid: number;
  cwd: string;
  env: Record<string, string>;
}

export function createShellAction(options: ShellOptions): PlainAction {
  const { identities, apps, starts } = options;

  async function workplaceOf(job: Pick<Job, "ownerUid" | "action">, work: ActionWork): Promise<Workplace> {
    const { app } = job.action;
    if (app !== undefined) {
      const { directory, uid } = await apps.place(app, callerOf(job, work));
      return { uid, cwd: directory, env: { SVC_APP_ID: app, SVC_APP_DIR: directory } };
    }
    if (!work.isRoot) {
      throw new SvcError(
        "root_required",
        "a shell job without an app runs as the daemon's user: only root may have one",
      );
    }
    return { uid: identities.selfUid, cwd: "/", env: {} };
  }

  return async (job, work) => {
    const { uid, cwd, env } = await workplaceOf(job, work);
    using place = await starts.wait(uid);
    const begun = (): void => place[Symbol.dispose]();
    using _tooLong = systemClock().setTimer(maxStartMs, begun);
    const end = await identities.runJob(uid, {
      command: job.action.command ?? "",
      cwd,
      env: { ...env, ...work.env },
      output: work.write,
      keepChildren: job.action.keepChildren ?? false,
      signal: work.signal,
      begun,
    });
    if (end.leftProcesses > 0 && !work.signal.aborted) {
      work.write(`[ended ${end.leftProcesses} left process${end.leftProcesses === 1 ? "" : "es"}]\n`);
    }
    return resultOf(end, work.signal.aborted);
  };
}

/** @param isStopped its end is not its own, whatever it exits with on SIGTERM */
function resultOf({ exitCode }: JobEnd, isStopped: boolean): ActionResult {
  if (isStopped) return { exitCode, error: "it was ended" };
  if (exitCode === 0) return { exitCode };
  return { exitCode, error: `the command exited with status ${exitCode}${signalOf(exitCode)}` };
}

/** What a shell says of a command that a signal ended. */
function signalOf(exitCode: number): string {
  const name = Object.entries(constants.signals).find(([, number]) => exitCode === 128 + number)?.[0];
  return name === undefined ? "" : `, which is ${name}`;
}
