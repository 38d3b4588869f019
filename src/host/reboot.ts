/** Reboots the host with the configured command, shortly after the caller got a response. */
import { SvcError } from "../errors.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import { pause, type Clock } from "../lib/clock.ts";
import type { Log } from "../lib/log.ts";

export interface HostRebootOptions {
  /** `[system] reboot_command`, as an argv. */
  command: readonly string[];
  userHelpers: UserHelpers;
  clock: Clock;
  log: Pick<Log, "warn">;
}

/** Delay between the response and the command. */
export const rebootDelaySecs = 3;
/** Time for the command to take effect; the reboot ends this process. */
const commandTimeoutMs = 60_000;

export class HostReboot implements AsyncDisposable {
  readonly #options: HostRebootOptions;
  readonly #stopped = new AbortController();
  #requested: Promise<void> | undefined;

  constructor(options: HostRebootOptions) {
    this.#options = options;
  }

  /** Reboots after the delay, in the background; does nothing if a reboot is already under way. */
  request(): void {
    this.#requested ??= this.perform(this.#stopped.signal)
      .catch((error: unknown) => {
        if (!this.#stopped.signal.aborted)
          this.#options.log.warn({ err: error }, "failed to reboot the host");
      })
      .finally(() => (this.#requested = undefined));
  }

  /**
   * Reboots after the delay.
   * @throws SvcError `unavailable` when the command fails; the signal's reason within the delay
   */
  async perform(signal: AbortSignal): Promise<void> {
    const { command, userHelpers, clock } = this.#options;
    await pause(clock, rebootDelaySecs * 1000, signal);
    const userHelper = await userHelpers.as(userHelpers.selfUid);
    const { exitCode, stderr } = await userHelper.runCommand(command, { timeoutMs: commandTimeoutMs });
    if (exitCode === 0) return;
    const why = `the reboot command ${command.join(" ")} failed: ${stderr.trim() || "no output"}`;
    throw new SvcError("unavailable", why);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopped.abort();
    await this.#requested;
  }
}
