/** Holds each assumption that svc makes against this host (`svc doctor`). Changes nothing. */
import { loadConfig } from "../daemon/config.ts";
import type { PathEnvironment } from "../daemon/paths.ts";
import { checkCgroups } from "./cgroups.ts";
import { checkDisk } from "./disk.ts";
import { checkDns } from "./dns.ts";
import { checkDaemon, checkExposure, checkPort } from "./doors.ts";
import { checkEngine } from "./engine.ts";
import { problem, type Check, type Finding, type Place } from "./finding.ts";
import { checkGit, checkMkfifo, checkNode, checkSetpriv } from "./programs.ts";
import { checkPermissions, checkStore } from "./store.ts";
import { checkClock, checkTimeZone } from "./time.ts";

export interface NamedFinding extends Finding {
  readonly check: string;
}

export interface ExamineOptions {
  /** Default: the mode's own. */
  readonly configFile: string | undefined;
  readonly environment: PathEnvironment;
  /** The first socket on which a daemon answers, the configured one before others that this user may use. */
  readonly findDaemon: (configured: string) => Promise<string | undefined>;
}

/** In the order in which they are shown. */
const checks: Readonly<Record<string, Check>> = {
  node: checkNode,
  git: checkGit,
  setpriv: checkSetpriv,
  mkfifo: checkMkfifo,
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
};

/** @throws SvcError for a configuration that cannot be used: what else there is follows from it */
export async function examine({
  configFile,
  environment,
  findDaemon,
}: ExamineOptions): Promise<readonly NamedFinding[]> {
  const config = await loadConfig({ file: configFile, environment });
  const { uid, env } = environment;
  const place: Place = { config, uid, env, servedAt: await findDaemon(config.api.socket) };
  return Promise.all(
    Object.entries(checks).map(async ([check, look]) => ({ check, ...(await findingOf(look, place)) })),
  );
}

async function findingOf(look: Check, place: Place): Promise<Finding> {
  try {
    return await look(place);
  } catch (error) {
    return problem(`it cannot be checked: ${error instanceof Error ? error.message : String(error)}`);
  }
}
