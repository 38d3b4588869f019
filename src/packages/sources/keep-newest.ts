import { readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { mapBounded } from "../../lib/map-bounded.ts";

/** Removes all but the newest files of a daemon-owned directory. */
export async function removeOldest(directory: string, maxFiles: number): Promise<void> {
  const names = await readdir(directory);
  if (names.length <= maxFiles) return;
  const files = await mapBounded(names, 16, async (name) => {
    const path = join(directory, name);
    // Another process may have removed it.
    const mtimeMs = await stat(path).then(
      (stats) => stats.mtimeMs,
      () => 0,
    );
    return { path, mtimeMs };
  });
  const gone = files.toSorted((a, b) => b.mtimeMs - a.mtimeMs).slice(maxFiles);
  for (const { path } of gone) await rm(path, { force: true });
}
