/** `svc --help`: the commands of every day, on one screen of 24 lines with 80 columns. */

/** `svc help --all` lists every command and option. */
export const dailyCommands: readonly (readonly [usage: string, summary: string])[] = [
  ["ls", "list the installed apps"],
  ["search WORD", "search the catalog"],
  ["install SPEC", "install by ID, git URL, compose file or directory"],
  ["start, stop, restart ID", "start, stop and restart apps"],
  ["open [ID]", "open an app, or the web page, in a browser"],
  ["info ID", "show the state, address and details of an app"],
  ["logs ID", "show the log of an app; -f follows it"],
  ["shell ID, exec ID CMD", "open a shell, or run a command, in an app"],
  ["settings ID", "show the settings; change them: settings set"],
  ["upgrade ID", "upgrade an app; list updates: outdated"],
  ["clone ID", "copy an app with its data"],
  ["backup ID", "back up an app; list backups: backup ls"],
  ["restore ID latest", "restore an app from its newest backup"],
  ["rm ID", "remove an app with its data"],
  ["schedule", "manage jobs: run commands and backups at set times"],
  ["stats, ports, file, events", "show resource usage, ports, files and events"],
  ["status, doctor", "show the daemon; check this machine for problems"],
];

const usageWidth = 26;

export const dailyHelp = [
  "Usage: svc [options] COMMAND",
  "",
  "Install and run apps on this machine.",
  "",
  ...dailyCommands.map(([usage, summary]) => `  ${usage.padEnd(usageWidth)}${summary}`),
  "",
  "More: svc help --all, svc COMMAND --help, svc help topics, svc help options",
  "",
].join("\n");
