/** File systems that users have mounted: a program of the user answers for them (FUSE), late or never. */
import { readFile } from "node:fs/promises";
import { parseMounts } from "./mountinfo.ts";

/** Whether a user other than root has mounted a file system at the path, which this does not access. */
export async function isMountOfUser(path: string): Promise<boolean> {
  const mounts = parseMounts(await readFile("/proc/self/mountinfo", "utf8"));
  return mounts.some(
    ({ mountPoint, options }) => mountPoint === path && /(?:^|,)user_id=[1-9]/.test(options),
  );
}
