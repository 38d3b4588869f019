/** `node_reboot`: reboots the host a moment after the run was recorded (S 1.4.9). */
import { SvcError } from "../../errors.ts";
import type { Identities } from "../../identity/identity.ts";
import { pause, type Clock } from "../../lib/clock.ts";
import type { Action } from "./action.ts";

/** Between the record of the run and the command (S 8). */
const rebootDelayMs = 3_000;
/** For the command to be heard; what it starts ends this process. */
const commandTimeoutMs = 60_000;

export interface NodeRebootOptions {
  /** `[system] reboot_command`, as an argv. */
  command: readonly string[];
  identities: Identities;
  clock: Clock;
}

export function createNodeRebootAction(options: NodeRebootOptions): Action {
  const { command, identities, clock } = options;

  async function reboot(signal: AbortSignal): Promise<void> {
    await pause(clock, rebootDelayMs, signal);
    const identity = await identities.as(identities.selfUid);
    const { exitCode, stderr } = await identity.runCommand(command, { timeoutMs: commandTimeoutMs });
    if (exitCode === 0) return;
    throw new SvcError(
      "unavailable",
      "unavailable",
      `the reboot command ${command.join(" ")} failed: ${stderr.trim() || "it says nothing"}`,
    );
  }

  return {
    run(_job, { isRoot, write }) {
      if (!isRoot) {
        const why = "only root's jobs may reboot the host";
        return Promise.reject(new SvcError("permission_denied", "root_required", why));
      }
      write(`the host reboots in ${rebootDelayMs / 1000} s\n`);
      return Promise.resolve({ afterwards: reboot });
    },
  };
}
