/** Every text of the page, so that it can be shown in other languages. */
import type { TaskCount } from "../lib/task-count.ts";

/** `1 app`, `2 apps`. */
function count(number: number, one: string, many: string): string {
  return `${String(number)} ${number === 1 ? one : many}`;
}

/** Labels of progress steps, shown before the step's message. */
const stepNames: Partial<Record<string, string>> = {
  wait: "Queue",
  resolve: "Version",
  fetch: "Download",
  ports: "Ports",
  secrets: "Passwords",
  warning: "Note",
  export: "Files",
  pull: "Image",
  build: "Build",
  migrate: "Data",
  copy: "Copy",
  trial: "Trial",
  health: "Health",
  read: "Read",
  encrypt: "Encryption",
  push: "Upload",
  verify: "Verification",
  restore: "Restore",
};

export const texts = {
  skip: "Skip to content",
  mainNavigation: "Main",
  guide: "Guide",
  signOut: "Sign out",
  you: (name: string, host: string) => `${name} on ${host}`,
  loading: "Loading …",
  more: (left: number) => `Show more (${String(left)} left)`,
  backups: { title: "Backups" },
  schedules: { title: "Jobs" },
  files: { title: "Files" },
  inventory: { title: "Docker & system" },
  host: { title: "Host" },
  access: { title: "Access" },
  sources: { title: "Sources" },
  notFound: {
    title: "Not found",
    explain: "No page at this address.",
    toOverview: "Go to overview",
  },
  notLoaded:
    "Part of the page failed to load. Try again, or reload the page: the daemon's version may have changed.",
  withRetries: "Try again",

  confirm: {
    type: "To confirm, type",
    leave: "Go back",
  },

  connection: {
    connecting: "Connecting …",
    live: "Live",
    lost: "Disconnected: data may be outdated. Reconnecting …",
  },

  signIn: {
    how: "On this host, run this command and open the printed address:",
    command: "svc web",
    inClone: "In a clone of svc where npm start is running:",
    cloneCommand: "npm run -s svc -- web",
    orToken: "Or paste a token:",
    token: "Token",
    submit: "Sign in",
    kept: "This tab stores the token until you close or reload the page, or the connection to the daemon breaks.",
    working: "Signing in …",
    ended: "You have signed out.",
    lost: "The connection to the daemon broke, so this page removed your token: another program may listen on this port now. Check with svc status that the daemon is running, then paste the token again.",
    over: "Your session has ended: it expired, was ended elsewhere, or the daemon restarted.",
  },

  switchUser: {
    title: (other: string) => `Sign in as ${other}?`,
    explain: (other: string, current: string | undefined) =>
      `${current === undefined ? "" : `You are signed in as ${current}. `}This link signs in as ${other}: all further actions run as ${other}. Continue only if you created the link yourself.`,
    stay: (current: string) => `Stay ${current}`,
    change: (other: string) => `Switch to ${other}`,
    decline: "Do not sign in",
    proceed: (other: string) => `Continue as ${other}`,
  },

  overview: {
    title: "Overview",
    apps: "Apps",
    attention: "Needs attention",
    nothing: "Nothing needs your attention.",
    underWay: "Running operations",
    host: "Host usage",
    processor: (cores: number) => `CPU, ${count(cores, "core", "cores")}`,
    memory: "Memory",
    load: "Load",
    uptime: "Uptime",
    disk: (path: string) => `Disk ${path}`,
    used: (used: string, total: string) => `${used} of ${total}`,
    outdated: (version: string) => `Version ${version} is available.`,
    failedJob: "The last run of this job failed.",
    troublesLeft: (number: number) => `and ${count(number, "more", "more")}`,
    noBackup: "Backup overdue by more than an hour.",
    restart: "Settings changed: restart to apply them.",
  },

  apps: {
    title: "Apps",
    filter: "Filter by name, ID or owner",
    none: "No apps installed.",
    noneFound: "No matching apps.",
    counted: (number: number) => count(number, "app", "apps"),
    someTasks: ({ running, desired }: TaskCount) =>
      `${String(running)} of ${count(desired, "task", "tasks")}`,
    columns: { name: "Name", state: "State", version: "Version", owner: "Owner" },
  },

  app: {
    back: "All apps",
    missing: "App not found, or not visible to you.",
    start: "Start",
    stop: "Stop",
    restart: "Restart",
    facts: "Details",
    version: "Version",
    runtime: "Runtime",
    owner: "Owner",
    since: "Running since",
    restarts: "Restarts",
    ports: "Ports",
    directory: "Directory",
    adopted: "Adopted data",
    health: "Health",
    startsAgain: (why: string, restarts: number) =>
      `Crash loop: ${why}. Restart pending; restarts so far: ${String(restarts)}.`,
    exit: "Exit status",
    exitCode: (code: number) => `code ${String(code)}`,
    homepage: "Home page",
    backups: "Backups",
    itsBackups: "Backups and policy",
    operation: "Operation",
    underWay: (kind: string, phase: string) => `In progress: ${[kind, phase].filter(Boolean).join(", ")}`,
    cancel: "Cancel operation",
    cancelTitle: (kind: string, name: string) => `Cancel ${kind} of ${name}?`,
    cancelLoses:
      "Changes so far are undone, whoever started the operation. Steps that cannot be undone continue.",
    newer: (version: string) => `${version} available`,
    lastLines: "Last output",
    portName: (port: number, name: string) => `${String(port)} (${name})`,
  },

  install: {
    title: "Install app",
    spec: "Package",
    specHint: "Package ID, such as hello or svc/hello; URL of a git repository; or a directory on this host.",
    version: "Version",
    versionHint: "Tag of a git repository. If empty: the newest.",
    name: "Name",
    nameHint: "Used as app ID. If empty: the package's ID.",
    submit: "Install",
    choose: "Several packages have this ID. Choose one:",
  },

  /** Names of new apps. */
  appName: {
    invalid: "use lower-case letters, digits and hyphens, beginning with a letter or digit",
    taken: "another app has this name",
  },

  /** Long-running operations. */
  work: {
    busy: "An operation that you started is still running: wait for it to finish.",
    cancel: "Cancel",
    cancelTitle: "Cancel this operation?",
    running: "Operations",
    /** The kind of an operation and its app. */
    runningOf: (kind: string, app: string) => [kind.replaceAll("_", " "), app].filter(Boolean).join(" "),
    cancelled: "Canceled and undone.",
    steps: "Progress",
    /** Labels for the steps of the contract; other steps are shown unchanged. */
    step: (word: string) => stepNames[word] ?? word,
    /** As in a terminal. */
    numbered: (name: string, number: number | undefined, count: number | undefined) =>
      number === undefined || count === 1
        ? name
        : `[${String(number)}${count === undefined ? "" : `/${String(count)}`}] ${name}`,
    asks: "Consent required",
    accept: "Accept and continue",
  },

  manage: {
    title: "Upgrade, copy, remove",
    upgrade: "Upgrade",
    upgradeTitle: "Upgrade or downgrade",
    version: "Version",
    versionHint: (now: string, newer: string) =>
      `Tag. If empty: the newest. Current: ${now}${newer === "" ? "" : `; available: ${newer}`}.`,
    backup: "Back up first",
    upgradeHint: "If the new version fails, the old version stays in place.",
    goBack: (version: string) => `Roll back to ${version}`,
    goForth: (version: string) => `Upgrade to ${version} again`,
    upToDate: (version: string) => `Up to date at ${version}.`,
    reinstalled: (version: string) => `Reinstalled from its source, still at ${version}.`,
    upgraded: (from: string, to: string) => `Upgraded from ${from} to ${to}.`,
    rolledBack: (from: string, to: string) => `Rolled back from ${from} to ${to}.`,
    upgradeStops:
      "The running app is stopped once the new version is downloaded and accepted, then started again.",
    changedSettings: "Changed settings",
    stays: (version: string) => `Version unchanged: ${version}.`,
    copy: "Copy",
    copyTitle: "Copy with data",
    copyName: "Name of the copy",
    copyHint:
      "Used as ID of the copy, which is stopped and gets free ports. The copy of a running app may be inconsistent.",
    share: "Share volumes that cannot be copied",
    copied: (name: string, bytes: string) => `Created ${name}: ${bytes} copied.`,
    openCopy: "Open copy",
    removing: (name: string) => `Remove ${name}?`,
    remove: "Remove",
    lost: (bytes: string) => `Deletes its files, settings and volumes: ${bytes}. This cannot be undone.`,
    lostUnknown: "Deletes its files, settings and volumes. This cannot be undone.",
    keeps: (items: string) => `Adopted data stays: ${items}.`,
    stopsFirst: "The running app is stopped first.",
    jobs: "Its jobs are disabled. Its backups stay.",
    keep: "Back up first; keep the app if the backup fails",
  },

  disk: {
    title: "Disk usage",
    measure: "Show disk usage",
    together: (bytes: string) => `${bytes} in total`,
    data: "Data and logs",
    program: "Program",
    images: "Images",
    volume: (name: string) => `Volume ${name}`,
    directory: "Directory",
  },

  tasks: {
    title: "Swarm tasks",
    none: "No running tasks.",
    columns: { slot: "Task", node: "Node", state: "State", message: "Message", since: "Since" },
    number: "Number of tasks",
    scale: "Scale",
    scaled: (number: number) => `Scaled to ${count(number, "task", "tasks")}.`,
  },

  settings: {
    title: "Settings",
    save: "Save",
    undo: "Discard changes",
    saved: "Saved.",
    savedForRestart: "Saved. Restart to apply.",
    restart: "Restart now",
    standard: (text: string) => `Default: ${text}`,
    kept: "Already set. Leave empty to keep.",
    hidden: "set, not shown",
    newSetting: (key: string, standard: string, isRequired: boolean) =>
      `New setting ${key}${standard === "" ? "" : `, default ${standard}`}${isRequired ? ", required" : ""}`,
    goneSetting: (key: string) => `Removed setting ${key}`,
    otherDefault: (key: string, before: string, now: string) =>
      `Default of ${key}: ${now || "empty"}, before ${before || "empty"}`,
    notJson: "Not valid JSON: write text in double quotes, lists in [ ].",
  },

  charts: {
    host: "Usage history",
    app: "Resource usage",
    span: "Last",
    hour: "hour",
    day: "day",
    month: "month",
    processor: "CPU",
    memory: "Memory",
    disks: "Disks",
    network: "Network",
    used: "used",
    read: "read",
    written: "written (dashed)",
    received: "received",
    sent: "sent (dashed)",
    nothing: "no data for this period",
    summary: (label: string, now: string, most: string) => `${label} ${now}, peak ${most}`,
  },

  terminal: {
    open: (session: string) => (session === "shell" ? "Open shell" : "Open console"),
    title: (session: string) => (session === "shell" ? "Shell" : "Console"),
    service: "Service",
    leave: "Ctrl+Shift+X moves keyboard focus out of the terminal.",
    close: "Close terminal",
    again: "Open again",
    ended: (code: number) => `Exited with code ${String(code)}.`,
    lost: "Terminal disconnected.",
  },

  log: {
    title: "Log",
    empty: "No output yet.",
    filter: "Filter lines",
    follow: "Follow",
    noneFound: "No matching lines.",
    ended: "Log disconnected.",
    again: "Reconnect",
    left: (bytes: string) => `${bytes} skipped`,
    label: (app: string) => `Log of ${app}`,
  },

  states: {
    INSTALLING: "Installing",
    STOPPED: "Stopped",
    STARTING: "Starting",
    RUNNING: "Running",
    UNHEALTHY: "Unhealthy",
    STOPPING: "Stopping",
    UPGRADING: "Upgrading",
    RESTORING: "Restoring",
    REMOVING: "Removing",
    FAILED: "Failed",
    CRASHED: "Crashed",
    UNKNOWN: "Unknown",
  } as Readonly<Record<string, string>>,

  runtimes: {
    process: "process",
    docker: "container",
    compose: "containers (Compose)",
    service: "systemd service",
  } as Readonly<Record<string, string>>,

  /** The next step after an error, by its reason; shown after the daemon's message. */
  advice: {
    unauthenticated: "Sign in again: run svc web and open the printed address.",
    root_required: "Open the page as root: sudo svc web",
    token_denied: "Use the command line for this.",
    not_found: "It may have been removed: check the list.",
    app_busy: "Wait for the operation to finish, or cancel it on the overview page.",
    app_running: "Stop the app first.",
    app_not_running: "Start the app first.",
    start_failed: "See the app's log.",
    build_failed: "See the progress above.",
    package_invalid: "Report this to the package author, or try another version.",
    git_failed: "Check the address and the version. Private hosts need a credential: see Sources.",
    source_failed: "Check that the address is correct and reachable.",
    disk_full: "Free disk space: see Docker & system, Disk.",
    too_many: "Try again when some operations have finished, or remove unused items.",
    conflict: "Reload and repeat your change.",
    changed: "Reload and repeat your change.",
    already_exists: "Choose another name.",
    archive_damaged: "Use another backup, or a copy on another storage.",
    not_ready: "Try again in a moment.",
    unavailable: "Try again in a moment.",
    internal: "The cause is in the daemon's log: search for the request ID.",
  } as Readonly<Record<string, string>>,
  unreachable: "The daemon does not respond. Check that it is running. The page retries automatically.",
  unanswered:
    "The daemon did not respond, so the result is unknown. Before you try again, check the result once the page is live again.",
  unexpected: "Error in the page. Reload it; if the error persists, report what you did.",
  readAgain: "Reload",
};
