/** Checks each assumption of svc about this host (`svc doctor`). Changes nothing. */
import { existsSync } from "node:fs";
import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { loadConfig, parseConfig, type Config } from "../daemon/config.ts";
import { defaultPaths, type PathEnvironment } from "../daemon/paths.ts";
import { SvcError } from "../errors.ts";
import { findReplaceable } from "../sys/replaceable-path.ts";
import { checkCgroups } from "./cgroups.ts";
import { checkDisk } from "./disk.ts";
import { checkDns } from "./dns.ts";
import { checkDaemon, checkExposure, checkPort } from "./addresses.ts";
import { checkEngine } from "./engine.ts";
import { ok, problem, type Check, type Finding, type ExaminedHost, type ServedListener } from "./finding.ts";
import { checkGit, checkNode, checkSetpriv, checkUnshare } from "./programs.ts";
import { checkPermissions, checkRegistries, checkStore } from "./store.ts";
import { checkClock, checkTimeZone } from "./time.ts";

export interface NamedFinding extends Finding {
  readonly check: string;
}

export interface ExamineOptions {
  /** Default: that of the mode. */
  readonly configFile: string | undefined;
  readonly environment: PathEnvironment;
  /** The first socket on which a daemon responds: the configured one, then others that this user may use. */
  readonly findDaemon: (configured: string) => Promise<string | undefined>;
  /** Asks the daemon on a socket for its listeners. Default: none. */
  readonly readListeners?: (socket: string) => Promise<readonly ServedListener[]>;
}

/** In display order. */
const checks: Readonly<Record<string, Check>> = {
  node: checkNode,
  git: checkGit,
  setpriv: checkSetpriv,
  unshare: checkUnshare,
  engine: checkEngine,
  cgroups: checkCgroups,
  disk: checkDisk,
  clock: checkClock,
  "time zone": checkTimeZone,
  dns: checkDns,
  daemon: checkDaemon,
  port: checkPort,
  exposure: checkExposure,
  permissions: checkPermissions,
  store: checkStore,
  registries: checkRegistries,
};

/** The checks that do not depend on the configuration and files of the daemon. */
const checksOfHost: ReadonlySet<string> = new Set(["node", "git", "cgroups", "clock", "time zone", "daemon"]);

/** Each has a section in docs/troubleshooting.md. */
export const checkNames: readonly string[] = ["configuration", ...Object.keys(checks)];

/**
 * Without a valid configuration, the other checks use the defaults. If another user's daemon responds, only the host is checked.
 */
export async function examine({
  configFile,
  environment,
  findDaemon,
  readListeners = () => Promise.resolve([]),
}: ExamineOptions): Promise<readonly NamedFinding[]> {
  const { config, finding } = await configurationAt(configFile, environment);
  const { uid, env } = environment;
  const servedAt = await findDaemon(config.api.socket);
  const listeners = servedAt === undefined ? [] : await readListeners(servedAt);
  // A chosen configuration is checked in any case.
  const isOthers = configFile === undefined && servedAt !== undefined && (await stat(servedAt)).uid !== uid;
  const host: ExaminedHost = { config, uid, env, servedAt, isOthers, listeners };
  const examined = Object.entries(checks).filter(([name]) => !isOthers || checksOfHost.has(name));
  const found = await Promise.all(
    examined.map(async ([name, check]) => ({ check: name, ...(await findingOf(check, host)) })),
  );
  return isOthers ? found : [{ check: "configuration", ...finding }, ...found];
}

async function configurationAt(
  file: string | undefined,
  environment: PathEnvironment,
): Promise<{ readonly config: Config; readonly finding: Finding }> {
  try {
    await requireOwnFile(file, environment);
    const config = await loadConfig({ file, environment });
    const isThere = existsSync(config.file);
    return { config, finding: ok(isThere ? config.file : `the defaults, as there is no ${config.file}`) };
  } catch (error) {
    if (!(error instanceof SvcError)) throw error;
    const at = file ?? defaultPaths(environment).configFile;
    return {
      config: parseConfig({}, resolve(at), environment),
      finding: problem(`${error.message}; the other checks use the defaults`),
    };
  }
}

/** Root reads no file that a user can exchange. @throws SvcError `denied` */
async function requireOwnFile(file: string | undefined, { uid }: PathEnvironment): Promise<void> {
  if (file === undefined || uid !== 0) return;
  const replaceable = await findReplaceable(resolve(file), uid);
  if (replaceable === undefined) return;
  const message = `did not read ${file}, as another user can change ${replaceable}: run svc doctor as that user`;
  throw new SvcError("denied", message);
}

async function findingOf(check: Check, host: ExaminedHost): Promise<Finding> {
  try {
    return await check(host);
  } catch (error) {
    return problem(`the check failed: ${error instanceof Error ? error.message : String(error)}`);
  }
}
