/** The unit of an app, as systemd reads it (systemd.exec(5), systemd.service(5)). */
import { isAbsolute, join } from "node:path";
import type { Manifest } from "../../packages/manifest.ts";
import type { RunnableApp } from "../runtime.ts";
import type { UnitEntry } from "./unit-file.ts";

/** What the unit of an app is made of. */
export interface UnitParts {
  readonly app: Pick<RunnableApp, "id" | "name" | "uid" | "directory" | "manifest">;
  /** Whose store the app is in: units of others are left alone. */
  readonly storeId: string;
  /** Absolute: the program, found; then its arguments. Empty where the entries say it. */
  readonly argv: readonly string[];
  /** Of the package's own unit; empty without one. */
  readonly entries: readonly UnitEntry[];
  /** Root's own, with the permission for everything: nothing is closed to it. */
  readonly isPrivileged: boolean;
  /** Absolute. */
  readonly workingDir: string;
  readonly environmentFile: string;
}

export function unitText(parts: UnitParts): string {
  const { entries, storeId, app, isPrivileged } = parts;
  const own = (section: string): string[] =>
    entries
      .filter((entry) => entry.section === section)
      .map((entry) => `${entry.key}=${valueOf(entry, parts)}`);
  const has = (key: string): boolean => entries.some((entry) => entry.key === key);
  const unlessSaid = (lines: readonly string[]): string[] =>
    lines.filter((line) => !isPrivileged || !has(line.slice(0, line.indexOf("="))));
  const lines = [
    "# Made by svc with each start of the app; what is changed here is lost.",
    "[Unit]",
    `Description=${specifiers(`${app.name} (svc app ${app.id})`)}`,
    `X-SvcStore=${storeId}`,
    ...unlessSaid(["After=network.target", ...startLimit(app.manifest)]),
    ...own("Unit"),
    "[Service]",
    ...(has("Type") ? [] : ["Type=exec"]),
    ...own("Service"),
    ...(parts.argv.length > 0 ? [`ExecStart=:${parts.argv.map(quoted).join(" ")}`] : []),
    `EnvironmentFile=${specifiers(parts.environmentFile)}`,
    ...unlessSaid([
      `User=${userOf(parts)}`,
      // A name that ends in a backslash would go on with the next line.
      `WorkingDirectory=${specifiers(parts.workingDir)}/`,
      ...restart(app.manifest),
      ...stop(app.manifest),
      ...limits(app.manifest),
      ...(isPrivileged ? [] : hardening(app)),
    ]),
    "CPUAccounting=yes",
    "MemoryAccounting=yes",
    "TasksAccounting=yes",
    "IOAccounting=yes",
    "",
  ];
  return lines.map(oneLine).join("\n");
}

/** systemd ends a line at NUL and at a carriage return, too: nothing that somebody said may begin another one. */
function oneLine(line: string): string {
  return line.replaceAll(/[\u0000-\u0008\u000a-\u001f\u007f]/g, " ");
}

/** Paths of its own checkout are not known to who writes a unit. */
function valueOf({ key, value }: UnitEntry, { workingDir }: UnitParts): string {
  if (!key.startsWith("Exec")) return value;
  return value.replace(/^([-@:+!]*)\.\//, (_, prefix: string) => `${prefix}${escapedPath(workingDir)}/`);
}

function escapedPath(path: string): string {
  return specifiers(path).replaceAll(" ", String.raw`\x20`);
}

function userOf({ app, isPrivileged }: UnitParts): string {
  const { runtime } = app.manifest;
  return isPrivileged && runtime.kind === "service" ? (runtime.user ?? String(app.uid)) : String(app.uid);
}

/** After so many starts in so long it is left as it failed. */
function startLimit({ restart: { maxAttempts, resetAfterMs } }: Manifest): string[] {
  if (maxAttempts === 0) return ["StartLimitIntervalSec=0"];
  return [`StartLimitIntervalSec=${resetAfterMs}ms`, `StartLimitBurst=${maxAttempts + 1}`];
}

/**
 * Whether the unit is to stay active when its program has ended with exit code 0: systemd forgets at once what is inactive, and
 * it could not be told from what somebody stopped. A package's own unit says for itself what it is afterwards.
 */
export function keepsExit({ runtime, restart: { policy } }: Manifest): boolean {
  return runtime.kind === "service" && runtime.argv !== undefined && policy !== "always";
}

function restart(manifest: Manifest): string[] {
  const { policy, delayMs } = manifest.restart;
  const kept = keepsExit(manifest) ? ["RemainAfterExit=yes"] : [];
  if (policy === "never") return ["Restart=no", ...kept];
  // A signal of somebody else's is no end of the app's own that it was meant to come to.
  const forced = policy === "on-failure" ? ["RestartForceExitStatus=SIGHUP SIGINT SIGTERM SIGPIPE"] : [];
  return [`Restart=${policy}`, ...forced, `RestartSec=${delayMs}ms`, ...kept];
}

function stop({ stop: { signal, graceMs } }: Manifest): string[] {
  return [`KillSignal=${signal}`, `TimeoutStopSec=${graceMs}ms`];
}

function limits({ limits: { memoryBytes, cpus, openFiles } }: Manifest): string[] {
  return [
    ...(memoryBytes === undefined ? [] : [`MemoryMax=${memoryBytes}`]),
    ...(cpus === undefined ? [] : [`CPUQuota=${Math.max(1, Math.round(cpus * 100))}%`]),
    ...(openFiles === undefined ? [] : [`LimitNOFILE=${openFiles}`]),
  ];
}

function hardening({ uid, directory }: UnitParts["app"]): string[] {
  return [
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    `ReadWritePaths=${quoted(directory)}`,
    "PrivateTmp=yes",
    "RestrictSUIDSGID=yes",
    ...(uid === 0 ? [] : ["CapabilityBoundingSet=", "AmbientCapabilities="]),
  ];
}

/** In double quotes, so that systemd reads the very same text. */
export function quoted(text: string): string {
  const escaped = specifiers(text).replaceAll(/[\\"\u0000-\u001f\u007f]/g, (character) =>
    character === "\\" || character === '"'
      ? `\\${character}`
      : `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
  return `"${escaped}"`;
}

/** Per cent signs that stand for themselves. */
function specifiers(text: string): string {
  return text.replaceAll("%", "%%");
}

/**
 * The environment, as systemd reads it from a file: nobody but root reads that, where everybody reads units.
 * @param env values of one or several lines
 */
export function environmentText(env: Readonly<Record<string, string>>): string {
  return Object.entries(env)
    .map(([name, value]) => `${name}="${value.replaceAll(/[\\"`$]/g, String.raw`\$&`)}"\n`)
    .join("");
}

/** The program of an argv as systemd takes it. @param find the path of a program that is named without one */
export async function absoluteArgv(
  [program = "", ...args]: readonly string[],
  workingDir: string,
  find: (name: string) => Promise<string | undefined>,
): Promise<string[]> {
  if (isAbsolute(program)) return [program, ...args];
  const path = program.includes("/") ? join(workingDir, program) : await find(program);
  // systemd says that it is not there.
  return [path ?? join("/usr/bin", program), ...args];
}
