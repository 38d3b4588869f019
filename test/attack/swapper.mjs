/**
 * What an owner does who wants a container to mount something else: puts links in the place of what leads to its mounts, and
 * takes them away again. Tells on standard input's end how often it could: `{"tries": 1200, "swaps": 0}`.
 *
 * Arguments: `stealth` (put back at once) or `open` (left for a while), where links lead, then the paths.
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
