/** What the daemon keeps: whether only it can change that, and whether it is whole. */
import { existsSync } from "node:fs";
import { lstat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { inspectDatabase } from "../store/inspection.ts";
import { migrations } from "../store/migrations.ts";
import { storeFiles } from "../store/store-files.ts";
import { unreadableRows } from "../daemon/stored-rows.ts";
import { ok, problem, warning, type Check, type Finding } from "./finding.ts";

/** Of a larger one only the head is read. */
const maxBytes = 512 * 1024 ** 2;
/** Of what cannot be read. */
const maxNamed = 8;

export const checkPermissions: Check = async ({ config, uid }) => {
  const wrong: string[] = [];
  for (const [path, forbidden] of [
    [config.file, 0o022],
    [config.tokenFile, 0o077],
    [config.store.dir, 0o022],
  ] as const) {
    const stats = await lstat(path).catch((error: unknown) => {
      if (["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return undefined;
      throw error;
    });
    if (stats === undefined) continue;
    if (stats.uid !== uid && stats.uid !== 0) wrong.push(`${path} belongs to uid ${stats.uid}: chown it`);
    if ((stats.mode & forbidden) !== 0) {
      const rights = forbidden === 0o077 ? "go=" : "go-w";
      wrong.push(`others may ${forbidden === 0o077 ? "use" : "change"} ${path}: chmod ${rights} it`);
    }
  }
  return wrong.length === 0
    ? ok("configuration, token and store are the daemon's own")
    : problem(wrong.join("; "));
};

export const checkStore: Check = ({ config }) => {
  const path = join(config.store.dir, "svc.db");
  const found = inspectDatabase(path, migrations.length, { maxBytes });
  switch (found.condition) {
    case "missing":
      return ok(`there is none at ${path} yet; the first start makes it`);
    case "corrupt":
      return problem(
        `${path} is damaged (${found.problem}): restart the daemon, which puts its last good copy in place`,
      );
    case "sound":
      return found.version < migrations.length
        ? warning(`${path} is sound and of an older svc: the next start of the daemon brings it up to date`)
        : namedRows(path);
  }
};

/** A row that cannot be read takes away nothing but what it is of, which says so where it is listed. */
function namedRows(path: string): Finding {
  const things: string[] = [];
  let more = 0;
  for (const { name, remedy } of unreadableRows(path)) {
    if (things.length < maxNamed) things.push(`${name}: ${remedy}`);
    else more += 1;
  }
  if (things.length === 0) return ok(`${path} is sound`);
  const others = more === 0 ? "" : `; and of ${more} more`;
  const { wholeSnapshot } = storeFiles(dirname(path));
  const copy = existsSync(wholeSnapshot) ? `; what they were is in ${wholeSnapshot}` : "";
  return problem(`${path} has what cannot be read of ${things.join("; of ")}${others}${copy}`);
}
