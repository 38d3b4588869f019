/** A file that a walk came by is opened as that file, or not at all. */
import { execFileSync } from "node:child_process";
import { closeSync, lstatSync, openSync } from "node:fs";
import { mkdir, mkdtempDisposable, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { openEntry } from "../../src/identity/helper/host/tree-entries.mjs";

for (const [what, replace] of [
  [
    "another file",
    (path: string) => writeFile(`${path}.new`, "other").then(() => rename(`${path}.new`, path)),
  ],
  ["a link to it", (path: string) => rename(path, `${path}.old`).then(() => symlink(`${path}.old`, path))],
  ["a FIFO, which nobody waits for", (path: string) => rm(path).then(() => execFileSync("mkfifo", [path]))],
  ["a directory", (path: string) => rm(path).then(() => mkdir(path))],
] as const) {
  test(`what took its place is not opened: ${what}`, async (t) => {
    await using place = await mkdtempDisposable(join(tmpdir(), "svc-entry-"));
    const path = join(place.path, "f");
    await writeFile(path, "text");
    const parent = openSync(place.path, "r");
    try {
      const stats = lstatSync(path, { bigint: true });
      const entry = { parent, name: "f", path: ["f"], stats, isLeft: false };
      {
        await using file = await openEntry(entry);
        t.is(await file?.readFile("utf8"), "text");
      }
      await replace(path);
      await using other = await openEntry(entry);
      t.is(other, undefined);
    } finally {
      closeSync(parent);
    }
  });
}
