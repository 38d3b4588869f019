/** Suggests the right command for an unknown one. Commander compares only letters: it would suggest kill for pull. */
import type { Command } from "commander";
import { nearWord } from "../lib/near-word.ts";
import { isCalled, isCommandName, lineOf } from "./program.ts";

/** Commands of other tools, and other words for commands of svc. */
const otherNames: Readonly<Record<string, readonly string[]>> = {
  alerts: ["status"],
  apply: ["install ./DIR", "settings set ID"],
  auth: ["credential", "token"],
  backups: ["backup ls"],
  bash: ["shell ID"],
  build: ["package run ./DIR", "install ./DIR"],
  "cluster-info": ["status"],
  catalog: ["search"],
  compose: ["install ./compose.yaml", "stacks"],
  config: ["settings ID", "status"],
  console: ["app attach ID"],
  container: ["ls", "docker ps"],
  containers: ["ls", "docker ps"],
  copy: ["clone ID", "app copy ID"],
  cp: ["file get APP:PATH .", "file put FILE APP:PATH"],
  create: ["install", "backup create"],
  cron: ["schedule"],
  crontab: ["schedule list", "schedule import FILE"],
  "daemon-reload": ["daemon reload"],
  dashboard: ["web"],
  delete: ["rm"],
  deploy: ["install"],
  describe: ["info"],
  destroy: ["rm"],
  details: ["info"],
  df: ["disk", "docker df"],
  disable: ["stop ID", "schedule disable JOB"],
  down: ["stop ID", "rm ID"],
  downgrade: ["upgrade ID --version OLD"],
  du: ["disk"],
  edit: ["settings set ID", "schedule edit JOB"],
  enable: ["start ID", "schedule enable JOB"],
  env: ["settings"],
  explain: ["help"],
  expose: ["settings set ID port=PORT", "help reach-it-from-another-computer"],
  files: ["file"],
  find: ["search"],
  forget: ["backup rm"],
  free: ["host"],
  get: ["ls", "info ID"],
  gh: ["help cheat-sheet"],
  health: ["info"],
  history: ["events", "operations ls"],
  image: ["docker images", "app image ID"],
  "is-active": ["info"],
  "is-enabled": ["info"],
  job: ["schedule"],
  jobs: ["schedule list"],
  journal: ["logs"],
  journalctl: ["logs"],
  kubectl: ["help cheat-sheet"],
  "list-timers": ["schedule list"],
  "list-units": ["ls"],
  log: ["logs"],
  login: ["credential add", "web"],
  logout: ["credential remove"],
  man: ["help"],
  mask: ["stop ID"],
  metrics: ["host", "stats"],
  migrate: ["app move"],
  monit: ["stats --watch"],
  mount: ["backup browse"],
  network: ["docker networks"],
  pause: ["stop", "docker pause"],
  ping: ["status"],
  pm2: ["help cheat-sheet"],
  podman: ["help cheat-sheet"],
  port: ["ports ID", "settings set ID port=PORT"],
  "port-forward": ["help reach-it-from-another-computer"],
  processes: ["top"],
  publish: ["settings set ID port=PORT", "help reach-it-from-another-computer"],
  pull: ["upgrade ID", "app repull ID"],
  purge: ["rm ID"],
  reinstall: ["upgrade ID"],
  release: ["outdated"],
  releases: ["outdated"],
  reload: ["restart ID", "daemon reload"],
  repo: ["source"],
  restic: ["help cheat-sheet"],
  rollback: ["upgrade ID --version OLD"],
  rollout: ["info ID", "upgrade ID --version OLD"],
  run: ["install PACKAGE --start", "install ./compose.yaml --start", "package run ./DIR", "schedule run JOB"],
  save: ["help cheat-sheet"],
  "self-update": ["help update-svc"],
  sh: ["shell ID"],
  share: ["help reach-it-from-another-computer"],
  show: ["info"],
  snapshot: ["backup ID"],
  snapshots: ["backup ls"],
  ssh: ["shell"],
  startup: ["help cheat-sheet"],
  stat: ["stats"],
  state: ["info"],
  swarm: ["help run-on-a-swarm"],
  system: ["status", "docker df", "docker prune"],
  systemctl: ["help cheat-sheet"],
  tag: ["upgrade ID --version TAG"],
  tail: ["logs"],
  terminal: ["shell ID"],
  timer: ["schedule list"],
  timers: ["schedule list"],
  ui: ["web"],
  undo: ["upgrade ID --version OLD"],
  unpause: ["start", "docker unpause"],
  up: ["start", "install ./compose.yaml --start"],
  uptime: ["host"],
  url: ["open --print"],
  usage: ["stats", "disk"],
  user: ["status"],
  users: ["status"],
  versions: ["outdated", "upgrade ID --version TAG"],
  view: ["info"],
  volume: ["docker volumes", "file", "disk"],
  whoami: ["status"],
};

/** The same after the name of a group. The suggestion is the first of these commands that the group has. */
const otherNamesInGroups: Readonly<Record<string, readonly string[]>> = {
  add: ["issue"],
  container: ["ps"],
  create: ["add", "issue"],
  delete: ["remove", "rm"],
  edit: ["set", "get"],
  forget: ["rm"],
  history: ["runs", "ls"],
  image: ["images"],
  log: ["runs JOB --output", "logs"],
  logs: ["runs JOB --output"],
  remove: ["unset"],
  network: ["networks"],
  new: ["add", "issue"],
  pause: ["disable"],
  replace: ["add TRIGGER ACTION --id ID --replace"],
  reset: ["unset"],
  prune: ["policy ID set --keep COUNT"],
  resume: ["enable"],
  rm: ["unset"],
  schedule: ["policy ID set"],
  set: ["edit"],
  snapshots: ["ls"],
  unpause: ["enable"],
  update: ["edit"],
  volume: ["volumes"],
};

/** Groups in which people type the commands of other tools. */
const groupsOfOtherTools: ReadonlySet<string> = new Set(["svc app", "svc docker"]);

/** Words that ask for information. A suggestion for them never names a command that changes something. */
export const readingWords: ReadonlySet<string> = new Set([
  ...["alerts", "backups", "cluster-info", "describe", "details", "df", "diff", "du", "env", "explain"],
  ...["find", "free", "get", "health", "history", "info", "inspect", "is-active", "is-enabled", "jobs"],
  ...["journal", "journalctl", "list", "list-timers", "list-units", "log", "logs", "ls", "man", "metrics"],
  ...["ping", "processes", "ps", "show", "snapshots", "stat", "state", "stats", "status", "tail", "timer"],
  ...["timers", "uptime", "url", "usage", "user", "users", "view", "whoami"],
]);

/** Commands of a group that list or show what is in it, the best suggestion first. */
const readingCommands = ["info", "show", "status", "list", "ls", "get"];

/** The first word of the line that is not a command, in the group where a command is expected. */
interface UnknownWord {
  readonly group: Command;
  readonly word: string;
  /** Whether no further word follows. */
  readonly isLast: boolean;
}

/** @returns undefined if all groups of the line are followed by one of their commands */
export function findUnknownWord(program: Command, args: readonly string[]): UnknownWord | undefined {
  let group = program;
  let rest = [...args];
  for (;;) {
    const { operands, unknown } = group.parseOptions(rest);
    // In a group with a default command, Commander leaves the word to that command.
    const word = operands[0] ?? unknown.find((each) => !each.startsWith("-"));
    if (word === undefined) return undefined;
    const command = group.commands.find((each) => isCalled(each, word));
    if (command === undefined) return { group, word, isLast: operands.length === 1 };
    if (command.commands.length === 0) return undefined;
    [group, rest] = [command, unknown];
  }
}

/** `svc backup hello` is short for `svc backup create hello`. */
export function isBackupOfApp({ group, word, isLast }: UnknownWord): boolean {
  const isOtherName = readingWords.has(word) || Object.hasOwn(otherNamesInGroups, word);
  return lineOf(group) === "svc backup" && isLast && !isOtherName;
}

export function withCreate(args: readonly string[], id: string): readonly string[] {
  return args.toSpliced(args.indexOf(id, args.indexOf("backup") + 1), 0, "create");
}

/** The right command for a misplaced, mistyped or unknown word: `svc reload` is `svc daemon reload`. */
export function suggestion(program: Command, { group, word }: UnknownWord): string | undefined {
  return didYouMean(suggestedLines(program, group, word));
}

/** @returns undefined if there are no lines */
export function didYouMean(lines: readonly string[]): string | undefined {
  return lines.length === 0 ? undefined : `Did you mean: ${lines.join(", or ")}`;
}

function suggestedLines(program: Command, group: Command, word: string): readonly string[] {
  const isShort = (name: string): boolean => lineOf(group) === "svc app" && isCommandName(name);
  const inGroup = (name: string): string => (isShort(name) ? `svc ${name}` : `${lineOf(group)} ${name}`);
  if (group === program) {
    const others = commandsFor(word, otherNames);
    if (others.length > 0) return others.map((line) => `svc ${line}`);
    const known = program.commands.flatMap(({ commands }) => commands.filter((each) => isCalled(each, word)));
    const ofApps = known.find(({ parent }) => parent?.name() === "app");
    if (known.length > 0) return (ofApps === undefined ? known : [ofApps]).map(lineOf);
  } else {
    if (isShort(word)) return [inGroup(word)];
    const others = [
      ...commandsFor(word, otherNamesInGroups),
      ...(readingWords.has(word) ? readingCommands : []),
    ];
    const found = others.find((line) =>
      group.commands.some((each) => isCalled(each, line.replace(/ .*/, ""))),
    );
    if (found !== undefined) return [inGroup(found)];
    // Also the words of docker and of apps that svc has elsewhere, such as `svc docker exec`.
    if (groupsOfOtherTools.has(lineOf(group))) {
      const elsewhere = isCommandName(word) ? [`svc ${word}`] : suggestedLines(program, program, word);
      if (elsewhere.length > 0) return elsewhere;
    }
  }
  if (readingWords.has(word)) return [];
  const names = group.commands.flatMap((each) => [each.name(), ...each.aliases()]);
  const near = nearWord(word, names);
  return near === undefined ? [] : [inGroup(near)];
}

function commandsFor(word: string, names: typeof otherNames): readonly string[] {
  return Object.hasOwn(names, word) ? (names[word] ?? []) : [];
}
