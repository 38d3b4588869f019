/** Checks that only the daemon can change the store, and that it is intact. */
import { existsSync } from "node:fs";
import { lstat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { findReplaceable } from "../sys/replaceable-path.ts";
import { inspectDatabase } from "../store/inspection.ts";
import { migrations } from "../store/migrations.ts";
import { storeFiles } from "../store/store-files.ts";
import { auditProblem, storedUnlistedImages, unreadableRows } from "../daemon/stored-rows.ts";
import { unlistedWarning } from "../daemon/unlisted-images.ts";
import { ok, problem, warning, type Check, type Finding } from "./finding.ts";

/** Larger databases are read only up to their header. */
const maxBytes = 512 * 1024 ** 2;
/** For unreadable files. */
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
  if (config.mode === "system") {
    const { dir } = config.store;
    const replaceableDir = await findReplaceable(dir, uid);
    // The directory itself was checked above.
    if (replaceableDir !== undefined && replaceableDir !== dir)
      wrong.push(
        `other users can replace ${dir}, as they can change ${replaceableDir}: run chown root and chmod go-w on it`,
      );
  }
  return wrong.length === 0
    ? ok("only the daemon's user can change the configuration, the token and the store")
    : problem(wrong.join("; "));
};

export const checkStore: Check = async ({ config, uid }) => {
  const path = join(config.store.dir, "svc.db");
  const replaceable = await findReplaceable(path, uid);
  if (replaceable !== undefined) return notExamined(path, replaceable);
  const found = inspectDatabase(path, migrations.length, { maxBytes });
  switch (found.condition) {
    case "missing":
      return ok(`no database at ${path} yet; the first start creates it`);
    case "corrupt":
      return problem(
        `${path} is damaged (${found.problem}): restart the daemon, which restores the last intact copy`,
      );
    case "sound":
      return found.version < migrations.length
        ? warning(`${path} is intact, from an older svc: the next start of the daemon upgrades it`)
        : rowFinding(path);
  }
};

/** Opening a database writes files beside it. */
function notExamined(path: string, replaceable: string): Finding {
  return warning(
    `did not examine ${path}, as another user can change ${replaceable}: run svc doctor as the user of that daemon`,
  );
}

export const checkRegistries: Check = async ({ config, uid }) => {
  const path = join(config.store.dir, "svc.db");
  const replaceable = await findReplaceable(path, uid);
  if (replaceable !== undefined) return notExamined(path, replaceable);
  const found = inspectDatabase(path, migrations.length, { maxBytes: 0 });
  if (found.condition !== "sound" || found.version < migrations.length)
    return ok("not examined, because the store is missing, damaged or from another version");
  const text = unlistedWarning(storedUnlistedImages(path, config.docker.usersRegistries));
  return text === undefined
    ? ok("all images of users come from registries that users may use")
    : warning(text);
};

/** An unreadable row affects only the object that it describes, whose listing says so. */
async function rowFinding(path: string): Promise<Finding> {
  const things: string[] = [];
  let more = 0;
  for (const { name, remedy } of unreadableRows(path)) {
    if (things.length < maxNamed) things.push(`${name}: ${remedy}`);
    else more += 1;
  }
  if (things.length === 0) return chainFinding(path);
  const others = more === 0 ? "" : `; and ${more} more`;
  const { wholeSnapshot } = storeFiles(dirname(path));
  const copy = existsSync(wholeSnapshot) ? `; the last intact copy of the store is ${wholeSnapshot}` : "";
  return problem(`${path} has unreadable rows: ${things.join("; ")}${others}${copy}`);
}

/** As `svc audit --verify`. */
async function chainFinding(path: string): Promise<Finding> {
  const broken = await auditProblem(path);
  return broken === undefined
    ? ok(`${path} is intact`)
    : problem(`the audit log in ${path} is not as it was written: ${broken}; see svc audit --verify`);
}
