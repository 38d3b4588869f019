/**
 * An owner who wants a container to mount something else: replaces the parents of its mounts by links, and restores
 * them. When standard input closes, prints how often it succeeded: `{"tries": 1200, "swaps": 0}`. Arguments: `stealth`
 * (restore at once) or `open` (keep the link for a while), the target of the links, then the paths.
 */
import { renameSync, symlinkSync, unlinkSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";

const [form, target = "/", ...paths] = process.argv.slice(2);
const leftMs = 20;
let tries = 0;
let swaps = 0;
process.stdin.resume();
console.log("ready");
while (!process.stdin.readableEnded) {
  for (const path of paths) {
    tries++;
    try {
      renameSync(path, `${path}.gone`);
    } catch {
      continue;
    }
    try {
      symlinkSync(target, path);
      swaps++;
      if (form === "open") await wait(leftMs);
      unlinkSync(path);
    } finally {
      renameSync(`${path}.gone`, path);
    }
  }
  await wait(0);
}
console.log(JSON.stringify({ tries, swaps }));
