/** Writing and removing the unit of an app: below `/run`, since svc alone decides what starts after a boot. */
import { chmod, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { SvcError } from "../../errors.ts";
import type { Identities } from "../../identity/identities.ts";
import { findProgram } from "../../identity/find-program.ts";
import { baseEnvironment } from "../../identity/launch.ts";
import { prepareProcess } from "../app-environment.ts";
import { checkoutOf } from "../app-tree.ts";
import type { RunnableApp } from "../runtime.ts";
import { absoluteArgv, environmentText, unitText } from "./unit-text.ts";
import { whyRefused } from "./unit-directives.ts";
import { parseUnit, UnitSyntaxError, type UnitEntry } from "./unit-file.ts";

export interface AppUnitsOptions {
  identities: Identities;
  /** Whose units they are. */
  storeId: string;
  /** Where the environments are kept; absolute, nobody but root reads it. */
  dir: string;
  /** PATH of apps. */
  searchPath: string;
}

const unitDir = "/run/systemd/system";
const maxUnitBytes = 64 * 1024;

/** The name of an app's unit; characters that a name may not have are escaped as by systemd-escape(1). */
export function unitName(appId: string): string {
  const escaped = appId.replaceAll(/[^A-Za-z0-9:_.-]/g, (character) =>
    [...Buffer.from(character)].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join(""),
  );
  return `svc-${escaped}.service`;
}

export function unitPath(appId: string): string {
  return join(unitDir, unitName(appId));
}

export class AppUnits {
  readonly #options: AppUnitsOptions;

  constructor(options: AppUnitsOptions) {
    this.#options = options;
  }

  /** @throws SvcError `denied`, `package_invalid` for what the owner's apps may not say */
  async check(app: RunnableApp): Promise<void> {
    await this.#entries(app);
  }

  /** Resolves with whether systemd has to read it again. @throws SvcError as {@link check} */
  async write(app: RunnableApp): Promise<boolean> {
    const { identities, storeId, dir, searchPath } = this.#options;
    const path = unitPath(app.id);
    const before = await this.#own(path);
    const entries = await this.#entries(app);
    const { argv, env, cwd } = prepareProcess(app);
    const runtime = serviceOf(app);
    const { user } = await identities.as(app.uid);
    const environmentFile = this.#environmentFile(app.id);
    const text = unitText({
      ...{ app, storeId, entries, environmentFile, workingDir: cwd, isPrivileged: isPrivileged(app) },
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

  /** Resolves with whether there was one. */
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

  /** The text of the unit that is there. @throws SvcError when somebody else has made it */
  async #own(path: string): Promise<string | undefined> {
    const text = await readFile(path, "utf8").catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    });
    if (text === undefined || text.includes(`\nX-SvcStore=${this.#options.storeId}\n`)) return text;
    throw new SvcError("already_exists", `${path} is there already, and this svc did not make it`);
  }

  async #entries(app: RunnableApp): Promise<UnitEntry[]> {
    const { unit, user } = serviceOf(app);
    if (user !== undefined && !isPrivileged(app)) {
      const message = `service.user: an app that is not root's own runs as its owner, not as "${user}"`;
      throw new SvcError("denied", message);
    }
    if (unit === undefined) return [];
    const owner = await this.#options.identities.as(app.uid);
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
 * What is wrong in a unit file of a package, each with its line.
 * @param isPrivileged root's own with the permission say what they like; whoever installed them has acknowledged that
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

/** @throws UnitSyntaxError for what no service can be, too */
function readUnit(text: string): UnitEntry[] {
  const entries = parseUnit(text);
  const stray = entries.find(({ section }) => !["Unit", "Service", "Install"].includes(section));
  if (stray !== undefined)
    throw new UnitSyntaxError(stray.line, `a service has no section [${stray.section}]`);
  const isRunnable = entries.some(({ section, key }) => section === "Service" && key === "ExecStart");
  if (!isRunnable) throw new UnitSyntaxError(1, "it says no ExecStart");
  return entries;
}

function refusals(entries: readonly UnitEntry[]): { line: number; message: string }[] {
  return entries.flatMap((entry) => {
    // svc decides what starts when, so it is never read.
    const why = entry.section === "Install" ? undefined : whyRefused(entry);
    return why === undefined ? [] : [{ line: entry.line, message: `${entry.key}= is refused: ${why}` }];
  });
}

/** Root's own with the permission say what they like; whoever installed them has acknowledged that. */
function requireAllowed(entries: readonly UnitEntry[], unit: string, app: RunnableApp): void {
  const [first] = refusals(entries);
  if (first === undefined) return;
  const hint = app.ownerUid === 0 ? `; with "privileged" in the manifest's permissions it may` : "";
  throw new SvcError("denied", `${unit}, line ${first.line}: ${first.message}${hint}`);
}

function isPrivileged({ ownerUid, manifest }: RunnableApp): boolean {
  return ownerUid === 0 && manifest.permissions.includes("privileged");
}

function serviceOf({
  id,
  manifest: { runtime },
}: RunnableApp): Extract<RunnableApp["manifest"]["runtime"], { kind: "service" }> {
  if (runtime.kind !== "service") throw new Error(`app ${id} runs as ${runtime.kind}`);
  return runtime;
}

/** As a whole or not at all, whenever somebody reads it. */
async function replaceFile(path: string, text: string, mode: number): Promise<void> {
  const next = `${path}.new`;
  await writeFile(next, text, { mode });
  await chmod(next, mode);
  await rename(next, path);
}
