import { readFile } from "node:fs/promises";

/**
 * When the host was booted, unix milliseconds (proc_stat(5), `btime`: whole seconds).
 *
 * @param procDir where procfs is mounted
 */
export async function readBootTimeMs(procDir = "/proc"): Promise<number> {
  const seconds = /^btime (\d+)$/m.exec(await readFile(`${procDir}/stat`, "latin1"))?.[1];
  if (seconds === undefined) throw new Error(`${procDir}/stat names no boot time`);
  return Number(seconds) * 1000;
}
