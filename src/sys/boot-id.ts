import { readFile } from "node:fs/promises";

/** The kernel's ID of this boot: a UUID that changes with each reboot (random(4), `/proc/sys/kernel/random/boot_id`). */
export async function readBootId(): Promise<string> {
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
}
