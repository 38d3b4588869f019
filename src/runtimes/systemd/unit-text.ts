/** Generates the unit of an app (systemd.exec(5), systemd.service(5)). */
import { isAbsolute, join } from "node:path";
import type { Manifest } from "../../packages/manifest/manifest.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { leastDelayMs } from "../process/restart-policy.mjs";
import type { UnitEntry } from "./unit-file.ts";

/** The parts of an app's unit. */
export interface UnitParts {
  readonly app: Pick<RunnableApp, "id" | "name" | "uid" | "directory" | "manifest">;
  /** ID of the app's store: svc does not touch units of other stores. */
  readonly storeId: string;
  /** The program's absolute path, then its arguments. Empty if the package's unit sets it. */
  readonly argv: readonly string[];
  /** Entries of the package's own unit; empty without one. */
  readonly entries: readonly UnitEntry[];
  /** Whether the app is root's and has the permission for everything, so that no restrictions apply. */
  readonly isPrivileged: boolean;
  /** Absolute. */
  readonly workingDir: string;
  readonly environmentFile: string;
  /** Limit of the processes of the app's user, in all apps together. */
  readonly maxProcesses: number;
}

export function unitText(parts: UnitParts): string {
  const { entries, storeId, app, isPrivileged } = parts;
  const own = (section: string): string[] =>
    entries
      .filter((entry) => entry.section === section)
      .map((entry) => `${entry.key}=${valueOf(entry, parts)}`);
  const has = (key: string): boolean => entries.some((entry) => entry.key === key);
  const unlessSet = (lines: readonly string[]): string[] =>
    lines.filter((line) => !isPrivileged || !has(line.slice(0, line.indexOf("="))));
  const lines = [
    "# Written by svc at each start of the app; changes are lost.",
    "[Unit]",
    `Description=${specifiers(`${app.name} (svc app ${app.id})`)}`,
    `X-SvcStore=${storeId}`,
    ...unlessSet(["After=network.target", ...startLimit(app.manifest)]),
    ...own("Unit"),
    "[Service]",
    ...(has("Type") ? [] : ["Type=exec"]),
    ...own("Service"),
    ...(parts.argv.length > 0 ? [`ExecStart=:${parts.argv.map(quoted).join(" ")}`] : []),
    `EnvironmentFile=${specifiers(parts.environmentFile)}`,
    ...unlessSet([
      `User=${userOf(parts)}`,
      // Without the slash, a path that ends in a backslash would continue on the next line.
      `WorkingDirectory=${specifiers(parts.workingDir)}/`,
      ...restart(app.manifest),
      ...stop(app.manifest),
      ...limits(app.manifest),
      ...(isPrivileged ? [] : hardening(parts)),
    ]),
    "CPUAccounting=yes",
    "MemoryAccounting=yes",
    "TasksAccounting=yes",
    "IOAccounting=yes",
    "",
  ];
  return lines.map(oneLine).join("\n");
}

/** systemd also ends a line at NUL and at a carriage return: no value may start a new line. */
function oneLine(line: string): string {
  return line.replaceAll(/[\u0000-\u0008\u000a-\u001f\u007f]/g, " ");
}

/** Resolves paths relative to the checkout, whose location a package does not know. */
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

/** After this many starts within this time, the unit stays failed. */
function startLimit({ restart: { maxAttempts, resetAfterMs } }: Manifest): string[] {
  if (maxAttempts === 0) return ["StartLimitIntervalSec=0"];
  return [`StartLimitIntervalSec=${resetAfterMs}ms`, `StartLimitBurst=${maxAttempts + 1}`];
}

/**
 * Whether the unit stays active after its program exits with code 0: otherwise systemd would forget it at once, and
 * it would look like a stopped one. A package's own unit sets this itself.
 */
export function keepsExit({ runtime, restart: { policy } }: Manifest): boolean {
  return runtime.kind === "service" && runtime.argv !== undefined && policy !== "always";
}

function restart(manifest: Manifest): string[] {
  const { policy, delayMs } = manifest.restart;
  const exitLines = keepsExit(manifest) ? ["RemainAfterExit=yes"] : [];
  if (policy === "never") return ["Restart=no", ...exitLines];
  // A signal from another process does not count as an intended exit.
  const forced = policy === "on-failure" ? ["RestartForceExitStatus=SIGHUP SIGINT SIGTERM SIGPIPE"] : [];
  return [`Restart=${policy}`, ...forced, `RestartSec=${Math.max(leastDelayMs, delayMs)}ms`, ...exitLines];
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

function hardening({ app: { uid, directory }, maxProcesses }: UnitParts): string[] {
  return [
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    `ReadWritePaths=${quoted(directory)}`,
    "PrivateTmp=yes",
    "RestrictSUIDSGID=yes",
    ...(uid === 0 ? [] : ["CapabilityBoundingSet=", "AmbientCapabilities=", `LimitNPROC=${maxProcesses}`]),
  ];
}

/** In double quotes, with escapes, so that systemd reads exactly this text. */
export function quoted(text: string): string {
  const escaped = specifiers(text).replaceAll(/[\\"\u0000-\u001f\u007f]/g, (character) =>
    character === "\\" || character === '"'
      ? `\\${character}`
      : `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
  return `"${escaped}"`;
}

/** Escapes per cent signs. */
function specifiers(text: string): string {
  return text.replaceAll("%", "%%");
}

/**
 * The environment as a file for systemd: only root reads it, while every user can read units.
 * @param env values may have several lines
 */
export function environmentText(env: Readonly<Record<string, string>>): string {
  return Object.entries(env)
    .map(([name, value]) => `${name}="${value.replaceAll(/[\\"`$]/g, String.raw`\$&`)}"\n`)
    .join("");
}

/** Resolves the program of an argv to an absolute path. @param find searches for a program without a path */
export async function absoluteArgv(
  [program = "", ...args]: readonly string[],
  workingDir: string,
  find: (name: string) => Promise<string | undefined>,
): Promise<string[]> {
  if (isAbsolute(program)) return [program, ...args];
  const path = program.includes("/") ? join(workingDir, program) : await find(program);
  // If it does not exist, systemd reports it.
  return [path ?? join("/usr/bin", program), ...args];
}
