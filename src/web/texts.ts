/** Every text of the page, so that it can be shown in other languages. */

/** `1 app`, `2 apps`. */
function count(number: number, one: string, many: string): string {
  return `${String(number)} ${number === 1 ? one : many}`;
}

export const texts = {
  skip: "Skip to the content",
  mainNavigation: "Main",
  signOut: "Sign out",
  you: (name: string, host: string) => `${name} on ${host}`,
  loading: "Loading …",
  more: (left: number) => `Show more (${String(left)} are left)`,
  backups: { title: "Backups" },
  schedules: { title: "Schedules" },
  files: { title: "Files" },
  inventory: { title: "Inventory" },
  host: { title: "Machine" },
  access: { title: "Access" },
  sources: { title: "Sources" },
  notLoaded:
    "This part of the page could not be loaded. Reload the page: the daemon may be another version now.",

  confirm: {
    type: "To go on, type",
    leave: "Leave it as it is",
  },

  connection: {
    connecting: "Connecting …",
    live: "Live",
    lost: "Not connected: what you see may be old. Trying again …",
  },

  signIn: {
    title: "Sign in",
    how: "On this machine, run this command, and open the address that it prints:",
    command: "svc web",
    orToken: "Or paste a token:",
    token: "Token",
    submit: "Sign in",
    kept: "It is kept in this tab only, until you close or reload it.",
    working: "Signing in …",
    ended: "You have signed out.",
  },

  overview: {
    title: "Overview",
    apps: "Apps",
    attention: "Needs attention",
    nothing: "Nothing needs your attention.",
    underWay: "Under way",
    host: "This machine now",
    processor: (cores: number) => `Processor, ${count(cores, "core", "cores")}`,
    memory: "Memory",
    load: "Load",
    uptime: "Up for",
    disk: (path: string) => `Disk ${path}`,
    used: (used: string, total: string) => `${used} of ${total}`,
    noBackup: "It should have been backed up for an hour, and was not.",
    restart: "Its settings changed: restart it to take them up.",
  },

  apps: {
    title: "Apps",
    filter: "Filter by name, id or owner",
    none: "You have no apps yet.",
    noneFound: "No app has this in its name, id or owner.",
    counted: (number: number) => count(number, "app", "apps"),
    columns: { name: "Name", state: "State", version: "Version", owner: "Owner" },
  },

  app: {
    back: "All apps",
    missing: "There is no such app, or none that you may see.",
    start: "Start",
    stop: "Stop",
    restart: "Restart",
    facts: "About it",
    version: "Version",
    runtime: "Runs as",
    owner: "Owner",
    since: "Running since",
    restarts: "Restarts",
    ports: "Ports",
    directory: "Directory",
    health: "Health",
    exit: "Ended with",
    exitCode: (code: number) => `code ${String(code)}`,
    backups: "Backups",
    itsBackups: "Its backups, and when they are made",
    operation: "Under way",
    underWay: (kind: string, phase: string) => `Under way: ${[kind, phase].filter(Boolean).join(", ")}`,
    lastLines: "Its last lines",
    portName: (port: number, name: string) => `${String(port)} (${name})`,
  },

  install: {
    title: "Install an app",
    spec: "Package",
    specHint:
      "Its id, such as hello or hello@1.0.0; the URL of a git repository; or a directory of this machine.",
    name: "Name",
    nameHint: "What you call it; the package's name when empty.",
    submit: "Install",
    choose: "Several packages have this id: which one?",
  },

  /** Of what takes its time. */
  work: {
    busy: "Something that you began goes on: wait until it has ended.",
    cancel: "Cancel",
    cancelled: "Cancelled: everything is as it was before.",
    steps: "What happens",
    asks: "It asks you to accept this first",
    accept: "Accept and go on",
  },

  manage: {
    title: "Upgrade, copy, remove",
    upgrade: "Upgrade",
    upgradeTitle: "Upgrade to another version",
    version: "Version",
    versionHint: (now: string) => `A tag; the newest when empty. It has ${now} now.`,
    backup: "Back it up first",
    upgradeHint: "If the new version fails, the old one stays as it was.",
    upToDate: (version: string) => `Nothing newer is there: it stays at ${version}.`,
    upgraded: (from: string, to: string) => `Upgraded from ${from} to ${to}.`,
    upgradeStops: "It runs: it is stopped once the new version is fetched and accepted, and started again.",
    changedSettings: "What changed of its settings",
    stays: (version: string) => `It stays at ${version}.`,
    copy: "Copy",
    copyTitle: "Make a copy, with its data",
    copyName: "Name of the copy",
    copyHint: "A new id and free ports; the copy is stopped. What runs is copied as it is at this moment.",
    share: "Let the copy use the volumes that cannot be copied",
    copied: (name: string, bytes: string) => `${name} is there: ${bytes} were copied.`,
    look: "Look at it",
    removing: (name: string) => `Remove ${name}?`,
    remove: "Remove",
    lost: (bytes: string) =>
      `Its files, settings and volumes go with it: ${bytes}. This cannot be taken back.`,
    lostUnknown: "Its files, settings and volumes go with it. This cannot be taken back.",
    stopsFirst: "It runs now, and is stopped first.",
    jobs: "Jobs that act on it are disabled. Backups of it stay.",
    keep: "Make a backup first, and leave it as it is if that fails",
  },

  settings: {
    title: "Settings",
    save: "Save",
    undo: "Take back",
    saved: "Saved.",
    savedForRestart: "Saved. Restart it to take them up.",
    standard: (text: string) => `Default: ${text}`,
    kept: "It is set; leave it empty to keep it.",
    hidden: "set, and not shown",
    newSetting: (key: string, standard: string, isRequired: boolean) =>
      `New setting ${key}${standard === "" ? "" : `, ${standard} by default`}${isRequired ? ", which is needed" : ""}`,
    goneSetting: (key: string) => `The setting ${key} is gone`,
    otherDefault: (key: string, before: string, now: string) =>
      `The default of ${key} is ${now || "empty"}, and was ${before || "empty"}`,
    notJson: "A value is no JSON: numbers and words in quotes, lists in [ ].",
  },

  charts: {
    host: "This machine over time",
    app: "What it took",
    span: "Of the last",
    hour: "hour",
    day: "day",
    month: "month",
    processor: "Processor",
    memory: "Memory",
    disks: "Disks",
    network: "Network",
    used: "used",
    read: "read",
    written: "written (dashed)",
    received: "received",
    sent: "sent (dashed)",
    nothing: "nothing is known of this time",
    says: (label: string, now: string, most: string) => `${label} ${now}, at most ${most}`,
  },

  terminal: {
    open: (session: string) => (session === "shell" ? "Open a shell" : "Open its console"),
    title: (session: string) => (session === "shell" ? "Shell" : "Console"),
    leave: "Ctrl+Shift+X leaves the terminal for the keyboard.",
    close: "Close the terminal",
    again: "Open it again",
    ended: (code: number) => `It ended with code ${String(code)}.`,
    lost: "The terminal's connection ended.",
  },

  log: {
    title: "Log",
    empty: "It has printed nothing yet.",
    filter: "Show only lines with",
    follow: "Follow",
    ended: "The log's connection ended.",
    again: "Connect again",
    left: (bytes: string) => `${bytes} were left out here`,
    label: (app: string) => `Log of ${app}`,
  },

  states: {
    INSTALLING: "Installing",
    STOPPED: "Stopped",
    STARTING: "Starting",
    RUNNING: "Running",
    STOPPING: "Stopping",
    UPGRADING: "Upgrading",
    RESTORING: "Restoring",
    REMOVING: "Removing",
    FAILED: "Failed",
    CRASHED: "Crashed",
    UNKNOWN: "Unknown",
  } as Readonly<Record<string, string>>,

  runtimes: {
    process: "a process",
    docker: "a container",
    compose: "containers (Compose)",
    service: "a service of systemd",
  } as Readonly<Record<string, string>>,

  /** What to do about an error, by its reason; the daemon's own sentence comes first. */
  advice: {
    unauthenticated: "Sign in again: run svc web and open what it prints.",
    root_required: "Open the page as root: sudo svc web",
    token_denied: "Use the command line for this.",
    unavailable: "Try again in a moment.",
    internal: "The daemon's log has the cause: look for the request id.",
  } as Readonly<Record<string, string>>,
  unreachable: "The daemon does not answer. Is it running? The page tries again by itself.",
  unexpected: "This went wrong in the page itself. Reload it; if it happens again, report what you did.",
  readAgain: "Read again",
};
