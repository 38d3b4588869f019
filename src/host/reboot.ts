/** Rebooting the host: by the operator's own command, a moment after whoever asked was answered (S 1.4.9, 4.2). */
import { SvcError } from "../errors.ts";
import type { Identities } from "../identity/identities.ts";
import { pause, type Clock } from "../lib/clock.ts";
import type { Log } from "../lib/log.ts";

export interface HostRebootOptions {
  /** `[system] reboot_command`, as an argv. */
  command: readonly string[];
  identities: Identities;
  clock: Clock;
  log: Pick<Log, "warn">;
}

/** Between the answer and the command (S 8). */
export const rebootDelaySecs = 3;
/** For the command to be heard; what it starts ends this process. */
const commandTimeoutMs = 60_000;

export class HostReboot implements AsyncDisposable {
  readonly #options: HostRebootOptions;
  readonly #stopped = new AbortController();
  #requested: Promise<void> | undefined;

  constructor(options: HostRebootOptions) {
    this.#options = options;
  }

  /** Reboots after the delay, beside everything else; while one is on its way, that is the one. */
  request(): void {
    this.#requested ??= this.perform(this.#stopped.signal)
      .catch((error: unknown) => {
        if (!this.#stopped.signal.aborted)
          this.#options.log.warn({ err: error }, "the host was not rebooted");
      })
      .finally(() => (this.#requested = undefined));
  }

  /**
   * Reboots after the delay.
   * @throws SvcError `unavailable` when the command fails; the signal's reason within the delay
   */
  async perform(signal: AbortSignal): Promise<void> {
    const { command, identities, clock } = this.#options;
    await pause(clock, rebootDelaySecs * 1000, signal);
    const identity = await identities.as(identities.selfUid);
    const { exitCode, stderr } = await identity.runCommand(command, { timeoutMs: commandTimeoutMs });
    if (exitCode === 0) return;
    const why = `the reboot command ${command.join(" ")} failed: ${stderr.trim() || "it says nothing"}`;
    throw new SvcError("unavailable", why);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopped.abort();
    await this.#requested;
  }
}
