/**
 * `shell`: a command for `/bin/sh -c`. All of it happens in a helper process with the identity of whoever it is for, so
 * that environment, descriptors and groups are theirs alone, and every process of the run is ended with it
 * (S 1.4.9, D19, D29; threats 36 to 38 and 43).
 */
import { Writable } from "node:stream";
import { SvcError } from "../../errors.ts";
import type { CommandResult, Identities } from "../../identity/identity.ts";
import type { Job } from "../job.ts";
import type { Action, ActionResult, ActionWork } from "./action.ts";
import { callerOf, type AppHands } from "./app-hands.ts";

/** More than the longest timeout of a job, which comes first: by the signal. */
const helperTimeoutMs = 2 * 3_600_000;

export interface ShellOptions {
  identities: Identities;
  apps: Pick<AppHands, "place">;
}

/** Where a command runs, and as whom. */
interface Workplace {
  uid: number;
  cwd: string;
  env: Record<string, string>;
}

export function createShellAction(options: ShellOptions): Action {
  const { identities, apps } = options;

  async function workplaceOf(job: Job, work: ActionWork): Promise<Workplace> {
    const { app } = job.action;
    if (app !== undefined) {
      const { directory, uid } = await apps.place(app, callerOf(job, work));
      return { uid, cwd: directory, env: { SVC_APP_ID: app, SVC_APP_DIR: directory } };
    }
    if (!work.isRoot) {
      throw new SvcError(
        "permission_denied",
        "root_required",
        "a shell job without an app runs as the daemon's user: only root may have one",
      );
    }
    return { uid: identities.selfUid, cwd: "/", env: {} };
  }

  return {
    async run(job, work) {
      const { uid, cwd, env } = await workplaceOf(job, work);
      const identity = await identities.as(uid);
      const argv = ["/bin/sh", "-c", job.action.command ?? ""];
      const stdout = new Writable({
        write(chunk: Buffer, _encoding, done) {
          work.write(chunk);
          done();
        },
      });
      const { signal } = work;
      return resultOf(
        await identity.runCommand(argv, {
          cwd,
          env,
          stdout,
          merged: true,
          signal,
          timeoutMs: helperTimeoutMs,
        }),
      );
    },
  };
}

function resultOf({ exitCode, signal }: CommandResult): ActionResult {
  if (exitCode === 0) return { exitCode };
  if (exitCode !== null) return { exitCode, error: `the command exited with status ${exitCode}` };
  return { error: `the command was ended by ${signal ?? "a signal"}` };
}
