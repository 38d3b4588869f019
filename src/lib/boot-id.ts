import { readFile } from "node:fs/promises";

/**
 * The kernel's id of this boot: a UUID that is new after each reboot (random(4), `/proc/sys/kernel/random/boot_id`).
 *
 * @param procDir where procfs is mounted
 */
export async function readBootId(procDir = "/proc"): Promise<string> {
  return (await readFile(`${procDir}/sys/kernel/random/boot_id`, "utf8")).trim();
}
