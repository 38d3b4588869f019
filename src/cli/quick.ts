/**
 * The lines of the commands that are typed all day, as long as they leave no doubt: whatever is said in another way, or
 * wrongly, is for Commander.
 */
import type { CommandContext, GlobalOptions } from "./context.ts";
import { showAppLogs } from "./app-logs.ts";
import { showInfo } from "./commands/app-info.ts";
import { startApps, stopApps } from "./commands/app-lifecycle.ts";
import { showApps } from "./commands/ls.ts";
import { showStatus } from "./commands/status.ts";
import type { CliHost } from "./host.ts";
import { defaultTail } from "./logs.ts";
import { runAction } from "./run-action.ts";
import type { CliDependencies } from "./run-command.ts";
import { calls } from "./transport/calls.ts";

interface QuickCommand {
  /** How many apps it names. */
  readonly apps: "none" | "one" | "some";
  readonly run: (context: CommandContext, ids: readonly string[]) => Promise<void>;
}

const ofOne =
  (run: (context: CommandContext, id: string) => Promise<void>): QuickCommand["run"] =>
  (context, [id = ""]) =>
    run(context, id);

const list: QuickCommand = { apps: "none", run: (context) => showApps(context) };
const start: QuickCommand = {
  apps: "some",
  run: (context, ids) => startApps(context, ids, calls.startApp, {}),
};
const restart: QuickCommand = {
  apps: "some",
  run: (context, ids) => startApps(context, ids, calls.restartApp, {}),
};
const stop: QuickCommand = { apps: "some", run: stopApps };
const logs: QuickCommand = {
  apps: "one",
  run: ofOne((context, id) => showAppLogs(context, id, { tail: defaultTail })),
};

const topCommands: Readonly<Record<string, QuickCommand>> = {
  ls: list,
  list,
  status: { apps: "none", run: showStatus },
  start,
  restart,
  stop,
  logs,
};
const appCommands: Readonly<Record<string, QuickCommand>> = {
  start,
  restart,
  stop,
  logs,
  info: { apps: "one", run: ofOne(showInfo) },
};

export interface QuickLine {
  readonly command: QuickCommand;
  /** Its words: `app logs`. */
  readonly name: string;
  readonly ids: readonly string[];
  readonly options: GlobalOptions;
}

/** @returns the exit code; undefined for a line that is not one of these */
export async function runQuickLine(
  host: CliHost,
  { openInProcess, runDaemon }: CliDependencies,
): Promise<number | undefined> {
  const configFile = readDaemonLine(host.args);
  if (configFile !== undefined) {
    const daemon = { configFile: configFile || undefined, checkOnly: false, stop: host.interrupted };
    const run = { options: { color: true }, line: "svc daemon", app: undefined, openInProcess };
    return runAction(host, run, () => runDaemon(daemon));
  }
  const line = readQuickLine(host.args);
  if (line === undefined) return undefined;
  const { command, name, ids, options } = line;
  const run = { options, line: `svc ${name}`, app: ids[0], openInProcess };
  return runAction(host, run, (context) => command.run(context, ids));
}

/** `daemon`, as units say it. @returns the configuration file, empty for the mode's own; undefined for another line */
function readDaemonLine([first, option, file = "", ...others]: readonly string[]): string | undefined {
  if (first !== "daemon" || others.length > 0) return undefined;
  if (option === undefined) return "";
  return option === "--config" && file !== "" && !file.startsWith("-") ? file : undefined;
}

/** @returns undefined for a line that is not one of these */
function readQuickLine(args: readonly string[]): QuickLine | undefined {
  const words: string[] = [];
  let options: GlobalOptions = { color: true };
  for (let at = 0; at < args.length; at += 1) {
    const arg = args[at] ?? "";
    if (!arg.startsWith("-")) {
      words.push(arg);
      continue;
    }
    const flag = flags[arg];
    const value = values[arg]?.(args[at + 1] ?? "");
    if (flag === undefined && value === undefined) return undefined;
    options = { ...options, ...(flag ?? value) };
    if (value !== undefined) at += 1;
  }
  const [first = "", second = ""] = words;
  const isApp = first === "app";
  const [known, name] = isApp ? [appCommands, second] : [topCommands, first];
  const command = Object.hasOwn(known, name) ? known[name] : undefined;
  const ids = words.slice(isApp ? 2 : 1);
  if (command === undefined || !isCount(command.apps, ids.length)) return undefined;
  return { command, name: isApp ? `app ${name}` : name, ids, options };
}

const flags: Readonly<Record<string, Partial<GlobalOptions> | undefined>> = {
  "--json": { json: true },
  "--no-color": { color: false },
  "-y": { yes: true },
  "--yes": { yes: true },
};

/** Options with a value, of what is certainly one. */
const values: Readonly<Record<string, ((word: string) => Partial<GlobalOptions> | undefined) | undefined>> = {
  "--socket": (path) => (path === "" || path.startsWith("-") ? undefined : { socket: path }),
  "--timeout": (secs) => (/^[1-9]\d{0,3}$/.test(secs) ? { timeout: Number(secs) } : undefined),
};

function isCount(wanted: QuickCommand["apps"], count: number): boolean {
  return wanted === "none" ? count === 0 : wanted === "one" ? count === 1 : count > 0;
}
