/** File systems that users have mounted: a program of the user answers for them (FUSE), late or never. */
import { readFile } from "node:fs/promises";

/** Whether a user other than root has mounted a file system at the path, which this does not access. */
export async function isMountOfUser(path: string): Promise<boolean> {
  const mounts = await readFile("/proc/self/mountinfo", "utf8");
  return mounts.split("\n").some((line) => {
    const [before = "", after = ""] = line.split(" - ", 2);
    return unescape(before.split(" ")[4] ?? "") === path && /[ ,]user_id=[1-9]/.test(after);
  });
}

/** Spaces and similar characters are escaped in octal (proc_pid_mountinfo(5)). */
function unescape(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}
