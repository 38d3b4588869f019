/**
 * Runs before `npm start`, `npm test`, `npm run check` and `npm run bench`: installs the dependencies if they are
 * missing or differ from the lock file. Runs on any installed Node before anything is installed: only node: imports,
 * and nothing newer than Node 18.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const neededMajor = 24;

const why = missingDependency();
if (why !== undefined) {
  console.error(`Installing the dependencies of this clone (${why}): a minute or so, once …`);
  // Quiet, because npm warns about the Node that it runs on; the relevant one is installed with the dependencies.
  const install = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: root,
    stdio: "inherit",
  });
  if (install.status !== 0) fail("npm ci failed: see above.");
}

// npm puts node_modules/.bin first in PATH, so that the script which follows runs on the Node that is installed there.
const bundled = join(root, "node_modules/.bin/node");
const program = existsSync(bundled) ? bundled : process.execPath;
const asked = spawnSync(program, ["--version"], { encoding: "utf8" });
const version = asked.error === undefined ? asked.stdout : "";
const major = Number(/^v(\d+)\./.exec(version)?.[1] ?? 0);
if (major < neededMajor) {
  fail(
    `Node ${neededMajor} is needed, and ${program} is ${version.trim() || "none"}. It comes as the npm package "node": ` +
      "allow its install script (`npm rebuild node`), or install Node 24 yourself.",
  );
}

/** The first difference between npm's own record of node_modules and package-lock.json; undefined if there is none. */
function missingDependency() {
  const record = join(root, "node_modules/.package-lock.json");
  if (!existsSync(record)) return "none yet";
  const wanted = lockedPackages(join(root, "package-lock.json"));
  const installed = lockedPackages(record);
  for (const [path, entry] of Object.entries(wanted)) {
    // Packages for other platforms are omitted on purpose.
    if (path === "" || entry.optional || entry.devOptional) continue;
    if (installed[path]?.version !== entry.version)
      return `${path.replace(/^.*node_modules\//, "")} ${entry.version}`;
  }
  return undefined;
}

/**
 * @param {string} file
 * @returns {Record<string, { version?: string, optional?: boolean, devOptional?: boolean }>}
 */
function lockedPackages(file) {
  return JSON.parse(readFileSync(file, "utf8")).packages;
}

/** @param {string} message */
function fail(message) {
  console.error(message);
  process.exit(1);
}
