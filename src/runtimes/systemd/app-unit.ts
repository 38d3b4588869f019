/** Writes and removes the units of apps: in `/run`, because only svc decides what starts after a boot. */
import { chmod, lstat, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { SvcError } from "../../errors.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { findProgram } from "../../run-as/find-program.ts";
import { baseEnvironment } from "../../run-as/launch.ts";
import { prepareProcess } from "../app-environment.ts";
import { readMaxHostProcesses } from "../../sys/user-processes.ts";
import { checkoutOf } from "../app-tree.ts";
import { hasPermission, type RunnableApp } from "../runnable-app.ts";
import { absoluteArgv, environmentText, unitText } from "./unit-text.ts";
import type { UnitProperties } from "./systemd.ts";
import { rejectionOf } from "./unit-directives.ts";
import { parseUnit, UnitSyntaxError, type UnitEntry } from "./unit-file.ts";

export interface AppUnitsOptions {
  userHelpers: UserHelpers;
  /** ID of the store that owns the units. */
  storeId: string;
  /** Directory of the environment files; absolute, readable only by root. */
  dir: string;
  /** PATH of apps. */
  searchPath: string;
}

const unitDir = "/run/systemd/system";
/** Units of the host's packages: systemd prefers those in `unitDir` (systemd.unit(5)). */
const packageUnitDirs = ["/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const maxUnitBytes = 64 * 1024;

/** Name of an app's unit; characters that are not allowed are escaped as by systemd-escape(1). */
export function unitName(appId: string): string {
  const escaped = appId.replaceAll(/[^A-Za-z0-9:_.-]/g, (character) =>
    [...Buffer.from(character)].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join(""),
  );
  return `svc-${escaped}.service`;
}

function unitPath(appId: string): string {
  return join(unitDir, unitName(appId));
}

/** Whether a loaded unit comes from the directory of apps' units, and not from one of root's or of a package. */
export function isAppUnit({ Id: name = "", FragmentPath: path }: UnitProperties): boolean {
  return path === join(unitDir, name);
}

/** Path of the unit of a package of the host that has the name of an app's unit. */
export async function packageUnitPath(appId: string): Promise<string | undefined> {
  for (const dir of packageUnitDirs) {
    const path = join(dir, unitName(appId));
    const isThere = await lstat(path).then(
      () => true,
      () => false,
    );
    if (isThere) return path;
  }
  return undefined;
}

export class AppUnits {
  readonly #options: AppUnitsOptions;

  constructor(options: AppUnitsOptions) {
    this.#options = options;
  }

  /** @throws SvcError `denied`, `package_invalid` for settings that the owner's apps may not use */
  async check(app: RunnableApp): Promise<void> {
    await this.#entries(app);
  }

  /** Resolves to whether systemd has to reload the unit. @throws SvcError as {@link check} */
  async write(app: RunnableApp): Promise<boolean> {
    const { userHelpers, storeId, dir, searchPath } = this.#options;
    const path = unitPath(app.id);
    const before = await this.#own(path);
    const entries = await this.#entries(app);
    const { argv, env, cwd } = prepareProcess(app);
    const runtime = serviceOf(app);
    const { user } = await userHelpers.as(app.uid);
    const environmentFile = this.#environmentFile(app.id);
    const text = unitText({
      ...{ app, storeId, entries, environmentFile, workingDir: cwd, isPrivileged: isPrivileged(app) },
      maxProcesses: await readMaxHostProcesses(),
      argv: runtime.argv
        ? await absoluteArgv(argv, cwd, (name) => findProgram(name, searchPath.split(":")))
        : [],
    });
    await mkdir(dir, { recursive: true, mode: 0o700 });
    await replaceFile(
      environmentFile,
      environmentText({ ...baseEnvironment(user, searchPath), ...env }),
      0o600,
    );
    if (text === before) return false;
    await replaceFile(path, text, 0o644);
    return true;
  }

  /** Resolves to whether the unit existed. */
  async remove(appId: string): Promise<boolean> {
    await rm(this.#environmentFile(appId), { force: true });
    const path = unitPath(appId);
    const isThere = await this.#own(path).then(
      (text) => text !== undefined,
      () => false,
    );
    if (isThere) await rm(path, { force: true });
    return isThere;
  }

  #environmentFile(appId: string): string {
    return join(this.#options.dir, `${basename(unitName(appId), ".service")}.env`);
  }

  /** Text of the existing unit. @throws SvcError when it was not written by this svc */
  async #own(path: string): Promise<string | undefined> {
    const text = await readFile(path, "utf8").catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    });
    if (text === undefined || text.includes(`\nX-SvcStore=${this.#options.storeId}\n`)) return text;
    throw new SvcError("already_exists", `${path} already exists and was not created by this svc`);
  }

  async #entries(app: RunnableApp): Promise<UnitEntry[]> {
    const { unit, user } = serviceOf(app);
    if (user !== undefined && !isPrivileged(app)) {
      const message = `service.user: an app that is not root's own runs as its owner, not as "${user}"`;
      throw new SvcError("denied", message);
    }
    if (unit === undefined) return [];
    const owner = await this.#options.userHelpers.as(app.uid);
    const path = join(checkoutOf(app), unit);
    const content = await owner.readFile(app.directory, path, { maxBytes: maxUnitBytes });
    try {
      const entries = readUnit(content.toString());
      if (!isPrivileged(app)) requireAllowed(entries, unit, app);
      return entries;
    } catch (error) {
      if (!(error instanceof UnitSyntaxError)) throw error;
      throw new SvcError("package_invalid", `${unit}, line ${error.line}: ${error.message}`);
    }
  }
}

/**
 * Problems in a package's unit file, with their lines.
 * @param isPrivileged root's app with the permission may use any directive; the user who installed it has
 *   acknowledged that
 */
export function unitProblems(text: string, isPrivileged: boolean): { line: number; message: string }[] {
  try {
    const entries = readUnit(text);
    return isPrivileged ? [] : refusals(entries);
  } catch (error) {
    if (!(error instanceof UnitSyntaxError)) throw error;
    return [{ line: error.line, message: error.message }];
  }
}

/** @throws UnitSyntaxError also for a unit that is not a valid service */
function readUnit(text: string): UnitEntry[] {
  const entries = parseUnit(text);
  const stray = entries.find(({ section }) => !["Unit", "Service", "Install"].includes(section));
  if (stray !== undefined)
    throw new UnitSyntaxError(stray.line, `a service cannot have the section [${stray.section}]`);
  const isRunnable = entries.some(({ section, key }) => section === "Service" && key === "ExecStart");
  if (!isRunnable) throw new UnitSyntaxError(1, "ExecStart is missing");
  return entries;
}

function refusals(entries: readonly UnitEntry[]): { line: number; message: string }[] {
  return entries.flatMap((entry) => {
    // svc never reads this section, because it decides what starts when.
    const why = entry.section === "Install" ? undefined : rejectionOf(entry);
    return why === undefined ? [] : [{ line: entry.line, message: `${entry.key}= is not allowed: ${why}` }];
  });
}

/** Root's apps with the permission may use any directive; the user who installed them has acknowledged that. */
function requireAllowed(entries: readonly UnitEntry[], unit: string, app: RunnableApp): void {
  const [first] = refusals(entries);
  if (first === undefined) return;
  const hint = app.ownerUid === 0 ? `; add "privileged" to the manifest's permissions to allow it` : "";
  throw new SvcError("denied", `${unit}, line ${first.line}: ${first.message}${hint}`);
}

/** Whether the app is root's and has the permission for everything, so that no restrictions apply. */
export function isPrivileged(app: RunnableApp): boolean {
  return hasPermission(app, "privileged");
}

function serviceOf({
  id,
  manifest: { runtime },
}: RunnableApp): Extract<RunnableApp["manifest"]["runtime"], { kind: "service" }> {
  if (runtime.kind !== "service") throw new Error(`app ${id} runs as ${runtime.kind}`);
  return runtime;
}

/** Replaces the file atomically for readers. */
async function replaceFile(path: string, text: string, mode: number): Promise<void> {
  const next = `${path}.new`;
  await writeFile(next, text, { mode });
  await chmod(next, mode);
  await rename(next, path);
}
