/**
 * `npm run svc`: the CLI of this checkout. It is bundled once for each state of the sources, which takes a second and
 * then starts in a fifth of the time; if the bundle cannot be stored, the sources themselves run.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
// A namespace import, because an older Node may lack some exports: a missing one must not be an error here.
import * as fs from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const { accessSync, constants, existsSync, globSync, readdirSync, rmSync, statSync } = fs;
const root = join(fileURLToPath(import.meta.url), "../..");
if (!existsSync(join(root, "node_modules/.package-lock.json"))) {
  console.error(`svc: the dependencies of this clone are not installed: run npm start in ${root} first`);
  process.exit(1);
}
const bundles = join(root, "node_modules/.cache/svc");
/** Running daemons and supervisors load some parts later, so earlier bundles are retained for a while. */
const keptBundles = 10;

const sources = join(root, "src/main.ts");
process.env["SVC_CHECKOUT"] = join(root, ".svc");
process.argv[1] = bundle() ?? sources;
if (process.argv[1] === sources) await import(sources);
else createRequire(import.meta.url)(process.argv[1]);

/** @returns {string | undefined} */
function bundle() {
  const dir = join(bundles, fingerprint());
  const main = join(dir, "svc.cjs");
  if (existsSync(main)) return main;
  if (!canWrite(join(root, "node_modules"))) return undefined;
  if (!process.argv.includes("--json"))
    console.error("Building svc from these sources. This takes some seconds, once per change …");
  const { status } = spawnSync(process.execPath, [join(root, "src/build/bundle.ts"), dir], {
    stdio: "ignore",
  });
  if (status !== 0) return undefined;
  forgetOld();
  return main;
}

/** The paths and change times of all files in a bundle. */
function fingerprint() {
  const hash = createHash("sha256");
  const patterns = [
    ...["src/**/*.*", "gen/**/*.*", "openapi/openapi.json", "package.json", "package-lock.json"],
    "{docs,examples,packaging}/**/*",
  ];
  for (const file of globSync(patterns, { cwd: root }).sort()) {
    const { mtimeMs, size } = statSync(join(root, file));
    hash.update(`${file} ${mtimeMs} ${size}\n`);
  }
  return hash.digest("hex").slice(0, 16);
}

function forgetOld() {
  const dirs = readdirSync(bundles).map((name) => join(bundles, name));
  const newestFirst = dirs.sort((one, other) => statSync(other).mtimeMs - statSync(one).mtimeMs);
  for (const dir of newestFirst.slice(keptBundles)) rmSync(dir, { recursive: true, force: true });
}

/** @param {string} dir */
function canWrite(dir) {
  try {
    accessSync(dir, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
