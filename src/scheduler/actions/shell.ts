/**
 * `shell`: a command for `/bin/sh -c`. It runs below a process of the target user, so that environment,
 * descriptors and groups are only that user's, and all processes of the run are stopped with it.
 */
import { constants } from "node:os";
import type { AppFinder } from "../../apps/records/app-finder.ts";
import { SvcError } from "../../errors.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { JobEnd } from "../../run-as/job-processes.ts";
import { systemClock } from "../../lib/clock.ts";
import type { Job } from "../jobs/job.ts";
import type { Limiter } from "../../lib/limiter.ts";
import { type ActionResult, type ActionWork, type PlainAction, callerOf } from "./action.ts";

export interface ShellOptions {
  userHelpers: Pick<UserHelpers, "selfUid" | "runJob">;
  finder: Pick<AppFinder, "location">;
  /** Limits concurrent starts of commands. */
  starts: Pick<Limiter<number>, "acquire">;
}

/**
 * Concurrent starts of commands: enough to keep the CPUs busy, so that a quick job does not compete with all
 * jobs of a minute. For the same reason a user's newest command starts first.
 */
export const startBounds = { total: 24, reserved: 8, perKey: 2, first: "newest" } as const;
/** After this time a start releases its slot, for example if its directory hangs. */
const maxStartMs = 200;

/** The directory and user of a command. */
interface Workplace {
  uid: number;
  cwd: string;
  env: Record<string, string>;
}

export function createShellAction(options: ShellOptions): PlainAction {
  const { userHelpers, finder, starts } = options;

  async function workingDirectoryOf(
    job: Pick<Job, "ownerUid" | "action">,
    work: ActionWork,
  ): Promise<Workplace> {
    const { app } = job.action;
    if (app !== undefined) {
      const { directory, uid } = await finder.location(app, callerOf(job, work));
      return { uid, cwd: directory, env: { SVC_APP_ID: app, SVC_APP_DIR: directory } };
    }
    if (!work.isRoot) {
      throw new SvcError(
        "root_required",
        "a shell job without an app runs as the daemon's user: only root may have one",
      );
    }
    return { uid: userHelpers.selfUid, cwd: "/", env: {} };
  }

  return async (job, work) => {
    const { uid, cwd, env } = await workingDirectoryOf(job, work);
    using slot = await starts.acquire(uid);
    const begun = (): void => slot[Symbol.dispose]();
    using _tooLong = systemClock().setTimer(maxStartMs, begun);
    const end = await userHelpers.runJob(uid, {
      command: job.action.command ?? "",
      cwd,
      env: { ...env, ...work.env },
      output: work.write,
      keepChildren: job.action.keepChildren ?? false,
      signal: work.signal,
      begun,
    });
    if (end.leftProcesses > 0 && !work.signal.aborted) {
      work.write(`[stopped ${end.leftProcesses} background process${end.leftProcesses === 1 ? "" : "es"}]\n`);
    }
    return resultOf(end, work.signal.aborted);
  };
}

/** @param isStopped it was stopped, regardless of its exit code after SIGTERM */
function resultOf({ exitCode }: JobEnd, isStopped: boolean): ActionResult {
  if (isStopped) return { exitCode, error: "the run was stopped" };
  if (exitCode === 0) return { exitCode };
  return { exitCode, error: `the command exited with status ${exitCode}${signalOf(exitCode)}` };
}

/** The signal's name for a shell's exit code above 128. */
function signalOf(exitCode: number): string {
  const name = Object.entries(constants.signals).find(([, number]) => exitCode === 128 + number)?.[0];
  return name === undefined ? "" : `, which is ${name}`;
}
