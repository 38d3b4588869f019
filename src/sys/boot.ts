import { readFile } from "node:fs/promises";

/** The kernel's ID of this boot: a UUID that changes with each reboot (random(4), `/proc/sys/kernel/random/boot_id`). */
export async function readBootId(): Promise<string> {
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
}

/** The boot time of the host in unix milliseconds (proc_stat(5), `btime`: whole seconds). */
export async function readBootTimeMs(): Promise<number> {
  const seconds = /^btime (\d+)$/m.exec(await readFile("/proc/stat", "latin1"))?.[1];
  if (seconds === undefined) throw new Error("/proc/stat has no boot time");
  return Number(seconds) * 1000;
}
