/** The top-level commands: what help and completion show of them, and where their modules are. */
import type { Command } from "commander";
import type { RunCommand, RunDaemon } from "./run-command.ts";

type AddCommand = (program: Command, run: RunCommand, runDaemon: RunDaemon) => void;
/** Loads the module of a command, so that a line loads only the command that it names. */
export type LoadCommand = () => Promise<AddCommand>;

interface ListedCommand {
  /** The command's description; a test compares it with the module's. */
  readonly summary: string;
  /** The arguments as help shows them. */
  readonly args?: string;
  readonly alias?: string;
  readonly load: LoadCommand;
}

/** By heading, in the order of the help. */
export const commandGroups: Readonly<Record<string, Readonly<Record<string, ListedCommand>>>> = {
  "Apps:": {
    ls: {
      summary: "list the installed apps",
      alias: "list",
      load: async () => (await import("./commands/ls.ts")).addLsCommand,
    },
    search: {
      summary: "search the packages of the sources",
      args: "[word...]",
      load: async () => (await import("./commands/search.ts")).addSearchCommand,
    },
    install: {
      summary: "install an app from a source, a git URL or a directory",
      args: "<spec>",
      load: async () => (await import("./commands/install.ts")).addInstallCommand,
    },
    outdated: {
      summary: "check sources and registries for updates of the installed apps and svc",
      load: async () => (await import("./commands/outdated.ts")).addOutdatedCommand,
    },
    upgrade: {
      summary: "upgrade apps to the newest version",
      args: "[id...]",
      load: async () => (await import("./commands/upgrade.ts")).addUpgradeCommand,
    },
    app: {
      summary: "start, stop, look at and change installed apps",
      load: async () => (await import("./commands/app.ts")).addAppCommand,
    },
    backup: {
      summary: "back up apps, and restore them",
      load: async () => (await import("./commands/backup/backup.ts")).addBackupCommand,
    },
    schedule: {
      summary: "manage scheduled jobs",
      load: async () => (await import("./commands/schedule/schedule.ts")).addScheduleCommand,
    },
    operations: {
      summary: "list, follow and cancel long work of the daemon",
      load: async () => (await import("./commands/operations.ts")).addOperationsCommand,
    },
    stats: {
      summary: "show CPU, memory, disk and network usage of running apps",
      args: "[id...]",
      load: async () => (await import("./commands/stats.ts")).addStatsCommand,
    },
    disk: {
      summary: "show disk usage of apps, largest first",
      args: "[id]",
      load: async () => (await import("./commands/disk.ts")).addDiskCommand,
    },
    ports: {
      summary: "show the ports that apps publish",
      args: "[id]",
      load: async () => (await import("./commands/ports.ts")).addPortsCommand,
    },
    stacks: {
      summary: "list the compose projects of apps",
      load: async () => (await import("./commands/stacks.ts")).addStacksCommand,
    },
  },
  "Packages:": {
    source: {
      summary: "list, add and remove sources of packages",
      load: async () => (await import("./commands/source.ts")).addSourceCommand,
    },
    credential: {
      summary: "list, add and remove logins of private git hosts and registries",
      load: async () => (await import("./commands/credential.ts")).addCredentialCommand,
    },
    package: {
      summary: "create, check and try packages",
      load: async () => (await import("./commands/package.ts")).addPackageCommand,
    },
  },
  "This machine:": {
    host: {
      summary: "show the load and free space of this machine",
      load: async () => (await import("./commands/host.ts")).addHostCommand,
    },
    top: {
      summary: "show the processes of apps and containers, busiest first",
      load: async () => (await import("./commands/top.ts")).addTopCommand,
    },
    listening: {
      summary: "show which processes and apps listen on the ports of this machine",
      args: "[port]",
      load: async () => (await import("./commands/listening.ts")).addListeningCommand,
    },
    events: {
      summary: "print the events of the last hour; with --follow, new events until Ctrl-C",
      load: async () => (await import("./commands/events.ts")).addEventsCommand,
    },
    docker: {
      summary: "manage the host's containers, images, volumes and networks; needs root",
      load: async () => (await import("./commands/docker/docker.ts")).addDockerCommand,
    },
    file: {
      summary: "list, read and change files on the daemon's host, with your permissions",
      load: async () => (await import("./commands/file/file.ts")).addFileCommand,
    },
    kill: {
      summary: "send a signal to processes of this machine; needs root",
      args: "<pid...>",
      load: async () => (await import("./commands/kill.ts")).addKillCommand,
    },
    reboot: {
      summary: "reboot this machine (asks first; --yes does not); running apps start again afterwards",
      load: async () => (await import("./commands/reboot.ts")).addRebootCommand,
    },
  },
  "The daemon:": {
    status: {
      summary: "show the daemon and a summary of its apps",
      load: async () => (await import("./commands/status.ts")).addStatusCommand,
    },
    web: {
      summary: "print the address of the daemon's web page, and open it in a browser if there is one",
      load: async () => (await import("./commands/web.ts")).addWebCommand,
    },
    token: {
      summary: "show, issue, revoke and rotate the daemon's tokens",
      load: async () => (await import("./commands/token.ts")).addTokenCommand,
    },
    audit: {
      summary: "show who changed what; needs root",
      load: async () => (await import("./commands/audit.ts")).addAuditCommand,
    },
    node: {
      summary: "manage named remote daemons, for svc -N NAME",
      load: async () => (await import("./commands/node.ts")).addNodeCommand,
    },
    api: {
      summary: "call any method of the API",
      args: "[method] [request]",
      load: async () => (await import("./commands/api.ts")).addApiCommand,
    },
    completion: {
      summary: "print the completion script of a shell",
      args: "<shell>",
      load: async () => (await import("./commands/completion.ts")).addCompletionCommand,
    },
    setup: {
      summary: "write missing files: a commented configuration, completions and, with systemd, units",
      load: async () => (await import("./commands/setup.ts")).addSetupCommand,
    },
    doctor: {
      summary: "check this host for problems and suggest fixes; exits with 1 if there is a problem",
      load: async () => (await import("./commands/doctor.ts")).addDoctorCommand,
    },
    daemon: {
      summary: "run the daemon in the foreground, until SIGTERM or Ctrl-C",
      load: async () => (await import("./commands/daemon.ts")).addDaemonCommand,
    },
  },
};

const hidden = { hidden: true };

/** Commands that help does not list: the other side of `svc -H ssh://…`, and short forms of `svc app …`. */
export const hiddenCommands: Readonly<Record<string, LoadCommand>> = {
  "dial-stdio": async () => (await import("./commands/dial-stdio.ts")).addDialStdioCommand,
  start: loadShortLifecycle,
  stop: loadShortLifecycle,
  restart: loadShortLifecycle,
  logs: async () => {
    const { addLogsCommand } = await import("./commands/app-logs.ts");
    return (program, run) => addLogsCommand(program, run, hidden);
  },
};

async function loadShortLifecycle(): Promise<AddCommand> {
  const { addLifecycleCommands } = await import("./commands/app-lifecycle.ts");
  return (program, run) => addLifecycleCommands(program, run, hidden);
}
