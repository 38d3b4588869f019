/** Rewords Commander's usage errors: first the option or argument, then what it must be. */
import { nearWord } from "../../lib/near-word.ts";
import { shellWord } from "../../lib/shell-word.ts";

const forms: readonly (readonly [RegExp, string])[] = [
  [
    /^command-argument value '(.*)' is invalid for argument '(.*)'\. Allowed choices are (.*)\./s,
    'unknown $2 "$1"; choose one of: $3',
  ],
  [/^command-argument value '(.*)' is invalid for argument '(.*)'\. It (must .*)\./s, '<$2> $3, got "$1"'],
  [
    /^option '(?:-., )?(--[\w-]+).*?' argument '(.*)' is invalid\. Allowed choices are (.*)\./s,
    '$1 must be one of $3; got "$2"',
  ],
  [/^option '(?:-., )?(--[\w-]+).*?' argument '(.*)' is invalid\. It (must .*)\./s, '$1 $3; got "$2"'],
  [/^option '(?:-., )?(--[\w-]+).*?' argument missing/, "$1 needs a value"],
  [
    /^option '(?:-., )?(--[\w-]+).*?' cannot be used with option '(?:-., )?(--[\w-]+).*?'/,
    "$1 cannot be used with $2",
  ],
  [/^missing required argument '(.*?)'/, "missing argument <$1>"],
  [/^required option '(?:-., )?(--[\w-]+ <[\w-]+>)' not specified/, "$1 is required"],
  [/^unknown option '(.*?)'/, "unknown option $1"],
  [/^unknown command '(.*?)'/, 'unknown command "$1"'],
  [
    /^too many arguments.*?\. Expected (\d+) arguments? but got (\d+): (.*)\./s,
    "too many arguments: expected $1, got $2 ($3)",
  ],
];

const stopTime =
  "the package sets the time until the app is killed: grace of stop in svc.yaml, or stop_grace_period in a compose file";

const saveElsewhere = "to save files elsewhere: svc backup get, or svc backup download";
const restorePaths = "to restore only some paths: --paths PATH";
const restoreOptions = { "--to": saveElsewhere, "--file": restorePaths, "--path": restorePaths };

/** Options that people know from other tools, each with its equivalent in svc; by the line of the command. */
const otherOptions: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  exec: { "-u": "the command runs as the owner of the app", "-w": "it starts in the directory of the app" },
  events: {
    "--tail": "choose the time with --since 10m",
    "-n": "choose the time with --since 10m",
  },
  ls: { "-l": "for all columns: svc ls -o wide" },
  info: { "-f": "choose the fields with --format '{{.id}} {{.state}}'" },
  install: {
    "-d": "apps always run in the background; start the app after installing with --start",
    "-f": "pass the compose file as the argument: svc install ./compose.yaml",
    "-v": "the package sets the volumes; for your own, write a compose file: svc install ./compose.yaml",
    "--volume":
      "the package sets the volumes; for your own, write a compose file: svc install ./compose.yaml",
    "--port": "choose the port with --set port=NUMBER",
    "--publish": "choose the port with --set port=NUMBER",
    "-p": "choose the port with --set port=NUMBER",
    "--env": "change a setting with --set KEY=VALUE",
    "-e": "change a setting with --set KEY=VALUE",
  },
  "schedule add": {
    "--cron": "the trigger is the first argument, in quotes: svc schedule add '0 3 * * *' ACTION",
    "--name": "choose the ID of the job with --id",
  },
  "backup storage add": {
    "--secret-key": "pass --secret-key-file FILE, or - for stdin; arguments are visible to other users",
    "--name": "the name is the first argument: svc backup storage add NAME",
  },
  backup: { "--all": "back up every app with: svc backup create --all" },
  clone: { "--start": "the copy is stopped; start it with svc start" },
  "backup rm": { "--all": "to delete all archives of an app: svc backup rm ID $(svc backup ls ID -q)" },
  "backup create": { "--to": "choose the storage with --storage NAME" },
  logs: {
    "--lines": "choose the number of lines with -n",
    "-u": "name the app without an option: svc logs ID",
    "--unit": "name the app without an option: svc logs ID",
    "-e": "svc logs shows the newest lines; follow the log with -f",
    "-t": "show the times with --timestamps",
  },
  remove: {
    "-v": "svc rm also removes the volumes of the app",
    "--volumes": "svc rm also removes the volumes of the app",
  },
  restart: {
    "--service": "services of an app restart together: svc restart ID",
    "-t": stopTime,
    "--time": stopTime,
  },
  restore: restoreOptions,
  "backup restore": restoreOptions,
  "settings set": { "--restart": "restart the app afterwards: svc restart ID" },
  "credential add": { "--password-stdin": "read the password from stdin with --secret-file -" },
  upgrade: { "--rollback": "to go back: --version OLD", "--to": "choose the version with --version TAG" },
  web: { "--port": "set the port with [api] listen in the configuration" },
  start: {
    "--now": "svc start also starts the app at boot",
    "--service": "services of an app start together: svc start ID",
    "-d": "apps always run in the background",
    "-a": "attach to a running app with: svc app attach ID",
  },
  stats: { "-a": "stopped apps use neither CPU nor memory; for all apps: svc ls" },
  stop: {
    "--now": "svc stop also keeps the app stopped at boot",
    "--service": "services of an app stop together: svc stop ID",
    "-t": stopTime,
    "--time": stopTime,
  },
};

type ExcessAdvice = (words: readonly string[]) => string | undefined;

const restoreExcess: ExcessAdvice = ([, , name]) => {
  if (name === undefined) return undefined;
  const word = shellWord(name);
  const asPath = `to restore only this path: --paths ${word}`;
  return name.includes("/") ? asPath : `${asPath}; to restore to a new app: --as-new --name ${word}`;
};

const fileExcess =
  (command: string): ExcessAdvice =>
  ([id = "", path = ""]) =>
    /^[\w-]+$/.test(id)
      ? `for a path in an app: svc file ${command} ${shellWord(`${id}:${path}`)}`
      : undefined;

/** What to type instead of surplus arguments, by the line of the command. */
const excess: Readonly<Record<string, ExcessAdvice>> = {
  ls: ([word = ""]) => (/^[\w-]+$/.test(word) ? `for one app: svc info ${word}` : undefined),
  outdated: ([word = ""]) => `for one app: svc upgrade ${shellWord(word)} --dry-run`,
  top: ([word = ""]) => (/^[\w-]+$/.test(word) ? `for one app: svc stats ${word}` : undefined),
  restore: restoreExcess,
  "backup restore": restoreExcess,
  "backup ls": ([id = "", archive = ""]) =>
    `for one archive: svc backup show ${shellWord(id)} ${shellWord(archive)}`,
  ...Object.fromEntries(
    ["ls", "stat", "cat", "du", "tail"].map((name) => [`file ${name}`, fileExcess(name)]),
  ),
  daemon: ([word = ""]) => {
    if (word === "status") return "for its state: svc status";
    return /^(start|stop|restart|enable|disable)$/.test(word)
      ? `svc daemon runs it in the foreground; for the system service: sudo systemctl ${word} svc; for your own: systemctl --user ${word} svc`
      : undefined;
  },
  "schedule add": (words) => {
    const [minute = "", hour = "", id] = words;
    if (hour === "shell") return `pass the command as --command ${shellWord(words.slice(2).join(" "))}`;
    if (words.length > 2 && minute.includes(" ") && !hour.startsWith("backup"))
      return `to run a command: svc schedule add ${shellWord(minute)} shell --command ${shellWord(words.slice(1).join(" "))}`;
    // The shell replaces an unquoted * by the names of files.
    if (words.length > 4 && [minute, hour].every((field) => /^[\d*,/-]+$/.test(field)))
      return `quote the trigger: '${minute} ${hour} * * *'`;
    return hour.startsWith("backup") && id !== undefined ? `name the app with --app ${id}` : undefined;
  },
};

/** Words that people type for an action of a job. */
const otherActions: Readonly<Record<string, string>> = {
  command: "shell",
  exec: "shell",
  run: "shell",
  update: "app_update",
  upgrade: "app_update",
};

function likeAction(typed: string, choices: readonly string[]): string | undefined {
  if (Object.hasOwn(otherActions, typed)) return otherActions[typed];
  return choices.find((choice) => choice.endsWith(`_${typed}`)) ?? nearWord(typed, choices);
}

/** The command whose usage is wrong. */
export interface UsedCommand {
  /** Without `svc`, and without `app`: `svc app logs` and `svc logs` are the same command. */
  readonly line: string;
  /** Whether it is the default command of its group, and the line does not name it. */
  readonly isImplied?: boolean;
  readonly args: readonly UsedArgument[];
}

export interface UsedArgument {
  readonly name: string;
  /** As help shows it, such as `<id>`. */
  readonly form: string;
  readonly description: string;
  /** The only values; absent if any is allowed. */
  readonly choices?: readonly string[] | undefined;
}

/** @param text Commander's message, possibly with a suggestion on a second line */
export function usageMessage(text: string, command?: UsedCommand): string {
  const message = text.replace(/^error: /, "");
  const known = command === undefined ? undefined : knownMistake(message, command);
  if (known !== undefined) return `${known}\n`;
  const form = forms.find(([pattern]) => pattern.test(message));
  const reworded = (form === undefined ? message : message.replace(...form)).replace(
    /\n\(Did you mean (?:one of )?(.*)\?\)/,
    "\nDid you mean: $1",
  );
  const meant = command?.line === "schedule add" ? meantAction(message, command) : undefined;
  return meant === undefined ? reworded : `${reworded.trimEnd()}\nDid you mean: ${meant}\n`;
}

function meantAction(message: string, { args }: UsedCommand): string | undefined {
  const [, typed] = /^command-argument value '(.*)' is invalid for argument 'action'/s.exec(message) ?? [];
  const { choices = [] } = args.find(({ name }) => name === "action") ?? {};
  return typed === undefined ? undefined : likeAction(typed, choices);
}

function knownMistake(message: string, { line, args, isImplied = false }: UsedCommand): string | undefined {
  const [, option = ""] = /^unknown option '(.*?)'/.exec(message) ?? [];
  const instead = otherOptions[line]?.[option];
  if (instead !== undefined) return `unknown option ${option}; ${instead}`;
  const [, action = ""] =
    /^command-argument value '(.* .*)' is invalid for argument 'action'/s.exec(message) ?? [];
  if (action !== "")
    return `unknown action; to run a command: svc schedule add TRIGGER shell --command ${shellWord(action)}`;
  const [, missing] = /^missing required argument '(.*?)'/.exec(message) ?? [];
  const argument = args.find((each) => each.name === missing);
  if (argument !== undefined) return `missing argument <${argument.name}>: ${meaningOf(argument)}`;
  const [, words] = /^too many arguments.*? but got \d+: (.*)\.\n?$/s.exec(message) ?? [];
  if (words === undefined) return undefined;
  // A default command gets the words that are not commands of its group.
  if (isImplied && args.length === 0) return `unknown command "${words.split(", ", 1).join("")}"`;
  const advice = excess[line]?.(words.split(", "));
  if (args.length === 0 && advice === undefined) return undefined;
  const expected = args.length === 0 ? "none" : args.map(({ form }) => form).join(" ");
  return `too many arguments: expected ${expected}, got ${words}${advice === undefined ? "" : `; ${advice}`}`;
}

function meaningOf({ description, choices }: UsedArgument): string {
  if (/^the apps?$/.test(description)) return "the ID of an app; see them with: svc ls";
  return choices === undefined ? description : choices.join(", ");
}
