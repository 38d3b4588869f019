/** The host's systemd, asked through systemctl(1) with an argv, never on the event loop. */
import { readFile } from "node:fs/promises";
import { SvcError } from "../../errors.ts";
import type { Identities } from "../../identity/identities.ts";
import { findProgram } from "../../identity/find-program.ts";
import { systemDirs } from "../../identity/launch.ts";
import { mayAccess } from "../../lib/may-access.ts";

/** What `systemctl show` says of a unit, by property. */
export type UnitProperties = Readonly<Record<string, string>>;

/** There while systemd is the host's service manager (sd_booted(3)). */
const bootedDir = "/run/systemd/system";
const askMs = 20_000;
const maxShownBytes = 6 * 1024 * 1024;

/** Whether systemd runs on this host, and listens to a daemon of this uid. */
export async function isSystemdHost(selfUid: number): Promise<boolean> {
  return selfUid === 0 && (await mayAccess(bootedDir));
}

/** What systemd can hold units to on this host: that for which the kernel has a controller. */
export async function unitLimits(): Promise<{ memory: boolean; cpus: boolean }> {
  const unified = await readFile("/sys/fs/cgroup/cgroup.controllers", "utf8").catch(() => "");
  const has = async (controller: string): Promise<boolean> =>
    unified.split(/\s/).includes(controller) || (await mayAccess(`/sys/fs/cgroup/${controller}`));
  return { memory: await has("memory"), cpus: await has("cpu") };
}

export class Systemd {
  readonly #identities: Identities;

  constructor(identities: Identities) {
    this.#identities = identities;
  }

  /** Units that systemd has in memory, by name. @param names or patterns such as `svc-*.service` */
  async show(names: readonly string[], properties: readonly string[]): Promise<Map<string, UnitProperties>> {
    const argv = ["show", `--property=Id,${properties.join(",")}`, "--", ...names];
    const { stdout } = await this.#run(argv, askMs);
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

  /** Has unit files read again. */
  async reload(): Promise<void> {
    await this.#run(["daemon-reload"], askMs);
  }

  /** Resolves when the unit has started. @throws SvcError `unavailable` with systemd's words */
  async start(unit: string, timeoutMs: number): Promise<void> {
    await this.#run(["start", "--", unit], timeoutMs);
  }

  /** Resolves when nothing of the unit runs. @throws SvcError `unavailable` */
  async stop(unit: string, timeoutMs: number): Promise<void> {
    await this.#run(["stop", "--", unit], timeoutMs);
  }

  /** Resolves when nothing of the unit executes. @throws SvcError `unavailable` where the host cannot do that */
  async freeze(unit: string): Promise<void> {
    await this.#run(["freeze", "--", unit], askMs);
  }

  /** What is not frozen stays as it is. */
  async thaw(unit: string): Promise<void> {
    await this.#run(["thaw", "--", unit], askMs);
  }

  /** Lets go of how a unit failed; one that is not there is fine. */
  async resetFailed(unit: string): Promise<void> {
    await this.#run(["reset-failed", "--", unit], askMs).catch(() => undefined);
  }

  async #run(args: readonly string[], timeoutMs: number): Promise<{ stdout: string }> {
    const identity = await this.#identities.as(this.#identities.selfUid);
    const program = (await findProgram("systemctl", systemDirs)) ?? "systemctl";
    const argv = [program, "--no-pager", "--no-ask-password", ...args];
    const { exitCode, stdout, stderr } = await identity.runCommand(argv, {
      timeoutMs,
      maxOutputBytes: maxShownBytes,
    });
    if (exitCode === 0) return { stdout };
    const why = stderr.trim().split("\n")[0] ?? "";
    throw new SvcError("unavailable", `systemctl ${args[0] ?? ""} failed: ${why || "it says nothing"}`);
  }
}
