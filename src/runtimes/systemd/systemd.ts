/** The host's systemd, through systemctl(1) with an argument list, never on the event loop. */
import { readFile } from "node:fs/promises";
import { SvcError } from "../../errors.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { findProgram } from "../../run-as/find-program.ts";
import { systemDirs } from "../../run-as/launch.ts";
import { mayAccess } from "../../sys/may-access.ts";

/** Properties of a unit from `systemctl show`. */
export type UnitProperties = Readonly<Record<string, string>>;

/** Exists while systemd is the host's service manager (sd_booted(3)). */
const bootedDir = "/run/systemd/system";
const queryTimeoutMs = 20_000;
const maxShownBytes = 6 * 1024 * 1024;

/** Whether systemd runs on this host and accepts requests of a daemon with this uid. */
export async function isSystemdHost(selfUid: number): Promise<boolean> {
  return selfUid === 0 && (await mayAccess(bootedDir));
}

/** Limits that systemd can enforce on this host: those that have a kernel controller. */
export async function unitLimits(): Promise<{ memory: boolean; cpus: boolean }> {
  const unified = await readFile("/sys/fs/cgroup/cgroup.controllers", "utf8").catch(() => "");
  const has = async (controller: string): Promise<boolean> =>
    unified.split(/\s/).includes(controller) || (await mayAccess(`/sys/fs/cgroup/${controller}`));
  return { memory: await has("memory"), cpus: await has("cpu") };
}

export class Systemd {
  readonly #userHelpers: UserHelpers;

  constructor(userHelpers: UserHelpers) {
    this.#userHelpers = userHelpers;
  }

  /** Loaded units, by name. @param names names, or patterns such as `svc-*.service` */
  async show(names: readonly string[], properties: readonly string[]): Promise<Map<string, UnitProperties>> {
    const argv = ["show", `--property=Id,${properties.join(",")}`, "--", ...names];
    const { stdout } = await this.#run(argv, queryTimeoutMs);
    const units = new Map<string, UnitProperties>();
    for (const block of stdout.split(/\n\n+/)) {
      const lines = block.split("\n").filter((line) => line.includes("="));
      const shown = Object.fromEntries(
        lines.map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]),
      );
      if (shown["Id"] !== undefined) units.set(shown["Id"], shown);
    }
    return units;
  }

  /** Reloads unit files. */
  async reload(): Promise<void> {
    await this.#run(["daemon-reload"], queryTimeoutMs);
  }

  /** Resolves when the unit has started. @throws SvcError `unavailable` with systemd's message */
  async start(unit: string, timeoutMs: number): Promise<void> {
    await this.#run(["start", "--", unit], timeoutMs);
  }

  /** Resolves when the unit has no processes left. @throws SvcError `unavailable` */
  async stop(unit: string, timeoutMs: number): Promise<void> {
    await this.#run(["stop", "--", unit], timeoutMs);
  }

  /** Sends SIGKILL to all processes of the unit. A unit without processes is fine. */
  async kill(unit: string): Promise<void> {
    await this.#run(["kill", "--signal=SIGKILL", "--", unit], queryTimeoutMs).catch(() => undefined);
  }

  /**
   * Resolves when none of the unit's processes executes. @throws SvcError `unavailable` if the host does not support
   * it
   */
  async freeze(unit: string): Promise<void> {
    await this.#run(["freeze", "--", unit], queryTimeoutMs);
  }

  /** No effect on units that are not frozen. */
  async thaw(unit: string): Promise<void> {
    await this.#run(["thaw", "--", unit], queryTimeoutMs);
  }

  /** Starts a slice with properties that are valid until the next boot, such as `TasksMax=100`. */
  async limitSlice(slice: string, properties: readonly string[]): Promise<void> {
    await this.#run(["set-property", "--runtime", "--", slice, ...properties], queryTimeoutMs);
    await this.#run(["start", "--", slice], queryTimeoutMs);
  }

  /** Resets the failed state of a unit; no effect on a missing unit. */
  async resetFailed(unit: string): Promise<void> {
    await this.#run(["reset-failed", "--", unit], queryTimeoutMs).catch(() => undefined);
  }

  async #run(args: readonly string[], timeoutMs: number): Promise<{ stdout: string }> {
    const userHelper = await this.#userHelpers.as(this.#userHelpers.selfUid);
    const program = (await findProgram("systemctl", systemDirs)) ?? "systemctl";
    const argv = [program, "--no-pager", "--no-ask-password", ...args];
    const { exitCode, stdout, stderr } = await userHelper.runCommand(argv, {
      timeoutMs,
      maxOutputBytes: maxShownBytes,
    });
    if (exitCode === 0) return { stdout };
    const why = stderr.trim().split("\n")[0] ?? "";
    throw new SvcError("unavailable", `systemctl ${args[0] ?? ""} failed: ${why || "no output"}`);
  }
}
