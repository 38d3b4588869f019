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
  readonly aliases?: readonly string[];
  readonly load: LoadCommand;
}

/** By heading, in the order of the help. */
export const commandGroups: Readonly<Record<string, Readonly<Record<string, ListedCommand>>>> = {
  "Apps:": {
    ls: {
      summary: "list the installed apps",
      aliases: ["list", "ps"],
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
    adopt: {
      summary:
        "list compose projects and containers that svc does not manage, or turn one into an app; needs root",
      args: "[name]",
      load: async () => (await import("./commands/adopt.ts")).addAdoptCommand,
    },
    start: {
      summary: "start apps; running ones are left as they are",
      args: "[id...]",
      load: loadLifecycle,
    },
    restart: {
      summary: "restart apps; stopped ones are started",
      args: "[id...]",
      load: loadLifecycle,
    },
    stop: {
      summary: "stop apps with all their processes",
      args: "[id...]",
      load: loadLifecycle,
    },
    open: {
      summary: "open an app in a browser, or the web page without an ID, and print the address",
      args: "[id]",
      load: async () => (await import("./commands/open.ts")).addOpenCommand,
    },
    info: {
      summary: "show an app: state, address, resource usage, version, backups and the next job",
      args: "<id...>",
      aliases: ["inspect"],
      load: async () => (await import("./commands/app-info.ts")).addInfoCommand,
    },
    logs: {
      summary: "show the last lines of the logs of apps",
      args: "[id...]",
      load: async () => (await import("./commands/app-logs.ts")).addLogsCommand,
    },
    shell: {
      summary: "open a shell in an app, as its owner, in its directory or container",
      args: "<id> [command...]",
      load: loadShells,
    },
    exec: {
      summary: "run a command in an app, as its owner, in its directory or container",
      args: "<id> <command...>",
      load: loadShells,
    },
    settings: {
      summary: "show and change the settings of an app",
      load: async () => (await import("./commands/app-settings.ts")).addSettingsCommand,
    },
    outdated: {
      summary: "check sources and registries for updates of the installed apps and svc",
      load: async () => (await import("./commands/outdated.ts")).addOutdatedCommand,
    },
    upgrade: {
      summary: "upgrade apps to the newest version",
      args: "[id...]",
      aliases: ["update"],
      load: async () => (await import("./commands/upgrade.ts")).addUpgradeCommand,
    },
    rename: {
      summary: "change the display name of an app; its ID stays",
      args: "<id> <name>",
      load: async () => (await import("./commands/app-rename.ts")).addRenameCommand,
    },
    clone: {
      summary: "copy an app with its data; the copy is stopped",
      args: "<id> [name]",
      load: async () => (await import("./commands/app-clone.ts")).addCloneCommand,
    },
    remove: {
      summary: "stop apps and remove them with all their data (asks for confirmation; skip with --yes)",
      args: "[id...]",
      aliases: ["rm", "uninstall"],
      load: async () => (await import("./commands/app-remove.ts")).addRemoveCommand,
    },
    backup: {
      summary: "back up apps, and restore them",
      load: async () => (await import("./commands/backup/backup.ts")).addBackupCommand,
    },
    restore: {
      summary:
        "restore an app from an archive (asks for confirmation before it replaces one; skip with --yes)",
      args: "<id> <archive>",
      load: async () => (await import("./commands/backup/restore.ts")).addRestoreCommand,
    },
    schedule: {
      summary: "manage jobs, which run at set times or after events",
      load: async () => (await import("./commands/schedule/schedule.ts")).addScheduleCommand,
    },
    app: {
      summary: "inspect and manage installed apps",
      load: async () => (await import("./commands/app.ts")).addAppCommand,
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
      args: "[app]",
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
      summary:
        "reboot this machine (asks for confirmation; skip with --yes); running apps start again afterwards",
      load: async () => (await import("./commands/reboot.ts")).addRebootCommand,
    },
  },
  "The daemon:": {
    status: {
      summary: "show the daemon and a summary of its apps, or one app",
      args: "[id]",
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
    version: {
      summary: "show the versions of this program and of the daemon",
      load: async () => (await import("./commands/version.ts")).addVersionCommand,
    },
  },
};

/** The other side of `svc -H ssh://…`, which help does not list. */
export const hiddenCommands: Readonly<Record<string, LoadCommand>> = {
  "dial-stdio": async () => (await import("./commands/dial-stdio.ts")).addDialStdioCommand,
};

async function loadLifecycle(): Promise<AddCommand> {
  return (await import("./commands/app-lifecycle.ts")).addLifecycleCommands;
}

async function loadShells(): Promise<AddCommand> {
  return (await import("./commands/app-console.ts")).addShellCommands;
}
