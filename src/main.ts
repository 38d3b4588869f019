/**
 * `svc`: passes the process's arguments and environment to the command line, which runs everything else. Only this
 * file and the helper programs read `process.argv` and `process.env`.
 */
import { fstatSync, openSync, statSync } from "node:fs";
import { enableCompileCache } from "node:module";
import { join } from "node:path";
import { getSystemErrorMessage } from "node:util";
import type { ErrorDetailReason } from "../gen/svc/v1/values.ts";
import packageJson from "../package.json" with { type: "json" };
import { exitCodes } from "./cli/output/exit-codes.ts";
import type { CliHost } from "./cli/host.ts";
import type { DaemonRun } from "./cli/run-command.ts";
import { defaultPaths, type PathEnvironment } from "./daemon/paths.ts";
import { xdgDir } from "./lib/paths.ts";
import type { Client } from "./cli/client/client.ts";
import type { Config } from "./daemon/config.ts";
import type { Programs } from "./daemon/programs.ts";

const uid = process.getuid?.() ?? 0;
const home = process.env["HOME"] || process.getBuiltinModule("node:os").homedir();
const environment: PathEnvironment = { uid, home, env: process.env };
/** Opened standard streams. Their buffered output is lost when the process exits. */
const opened = new Set<NodeJS.WriteStream>();
/** A bundle has no `src/` directory. */
const fromSources = import.meta.dirname.endsWith("/src");
/** Directory of the daemon that `npm start` runs in a checkout; undefined for an installed program. */
const checkoutDir = fromSources ? join(import.meta.dirname, "../.svc") : process.env["SVC_CHECKOUT"];
/** Whether systemd passed the daemon's socket (sd_listen_fds(3)). */
const isSocketActivated = process.env["LISTEN_PID"] === String(process.pid);
const misconfiguredMs = 5_000;
/** `O_PATH` of open(2): a descriptor of a directory without the right to read it. */
const placeOnly = 0o10000000;
void main();

async function main(): Promise<void> {
  const cacheDir = compileCacheDir();
  if (cacheDir !== undefined) enableCompileCache(cacheDir);
  const host = createHost();
  // Modules load on demand. This open descriptor tells an upgrade of the package that the files are still in use.
  if (!fromSources) openSync(import.meta.dirname, placeOnly);
  process.exitCode = await runLine(host);
  if (isSocketActivated && process.exitCode === exitCodes.misconfigured)
    await outlastCaller(host.interrupted);
  if (host.args[0] === "daemon") return;
  // Write errors of a stream arrive in a later turn of the event loop.
  if (opened.size > 0) await new Promise(setImmediate);
  // Exiting is faster than closing everything in order.
  if ([...opened].every((stream) => stream.writableLength === 0)) process.exit();
}

/**
 * Delays the exit after a configuration error: a client that waits at systemd's socket would restart the daemon at
 * once, and systemd marks the socket as failed after several restarts.
 */
async function outlastCaller(interrupted: AbortSignal): Promise<void> {
  const { setTimeout: pause } = await import("node:timers/promises");
  await pause(misconfiguredMs, undefined, { signal: interrupted }).catch(() => undefined);
}

async function runLine(host: CliHost): Promise<number> {
  // From here on, the command or its pager handles Ctrl-C.
  if (host.interrupted.aborted) return exitCodes.interrupted;
  const { runCli } = await import("./cli/cli.ts");
  return runCli(host, { openInProcess, runDaemon });
}

async function openInProcess(host: CliHost): Promise<Client> {
  const inProcess = await import("./cli/client/in-process.ts");
  return inProcess.openInProcess(host, { environment, programs: await programs() });
}

async function runDaemon({ configFile, checkOnly, stop }: DaemonRun): Promise<void> {
  if (checkOnly) {
    const { checkConfig } = await import("./daemon/config-accounts.ts");
    await checkConfig({ file: configFile, environment });
    return;
  }
  const [{ loadConfig }, { inspectStoreAhead }, { isatty }] = await Promise.all([
    import("./daemon/config.ts"),
    import("./daemon/store-ahead.ts"),
    import("node:tty"),
  ]);
  const hangUps = isatty(0) || stop.aborted ? () => undefined : hangUpsInstead();
  const readConfig = (): Promise<Config> => loadConfig({ file: configFile, environment });
  const config = await configured(readConfig(), ["invalid_request", "not_found"]);
  const files = await programs();
  const storeAhead = await inspectStoreAhead(config, files);
  const [{ startDaemon }, { takeListenFds }, { bundledPages, sourcePages }] = await Promise.all([
    import("./daemon/daemon.ts"),
    import("./daemon/listen-fds.ts"),
    import("./daemon/page-files.ts"),
  ]);
  const starting = startDaemon({
    config,
    reloadConfig: readConfig,
    version: packageJson.version,
    programs: files,
    selfUid: uid,
    pages: fromSources ? sourcePages() : bundledPages(),
    storeAhead,
    isJournal: isJournal(),
    listenFds: takeListenFds(process.env, process.pid),
  });
  // No request has been handled yet, so `invalid_request` can only come from the configuration.
  await using daemon = await configured(starting, ["invalid_request"]);
  hangUps(() => void daemon.reload());
  if (!stop.aborted) await new Promise((resolve) => stop.addEventListener("abort", resolve));
}

/** @throws MisconfiguredError for an error in the configuration, which has one of `reasons` */
async function configured<T>(part: Promise<T>, reasons: readonly ErrorDetailReason[]): Promise<T> {
  try {
    return await part;
  } catch (error) {
    const { asSvcError, MisconfiguredError } = await import("./cli/output/failure.ts");
    const known = asSvcError(error);
    throw known !== undefined && reasons.includes(known.reason) ? new MisconfiguredError(known) : error;
  }
}

/**
 * Whether the journal reads standard error (systemd.exec(5), JOURNAL_STREAM). Standard error may be redirected
 * although a parent's is the journal.
 */
function isJournal(): boolean {
  const named = process.env["JOURNAL_STREAM"];
  if (named === undefined) return false;
  try {
    const { dev, ino } = fstatSync(2);
    return named === `${dev}:${ino}`;
  } catch {
    return false;
  }
}

/**
 * A daemon that was not started from a terminal reloads its configuration at SIGHUP instead of exiting. A SIGHUP during its
 * start is handled at the end of the start.
 * @returns sets the handler of later signals
 */
function hangUpsInstead(): (reload: () => void) => void {
  process.removeAllListeners("SIGHUP");
  let wasRequested = false;
  let onHangUp = (): void => {
    wasRequested = true;
  };
  process.on("SIGHUP", () => onHangUp());
  return (reload) => {
    onHangUp = reload;
    if (wasRequested) reload();
  };
}

function createHost(): CliHost {
  let interrupted: AbortSignal | undefined;
  return {
    args: process.argv.slice(2),
    env: process.env,
    uid,
    home: environment.home,
    root: "/",
    // Node opens a stream at its first use, and most commands do not use all three.
    get stdin() {
      return process.stdin;
    },
    get stdout() {
      return withErrorHandler(process.stdout);
    },
    get stderr() {
      return withErrorHandler(process.stderr);
    },
    get isJournal() {
      return isJournal();
    },
    watchReader: async () => {
      const { watchReader } = await import("./cli/output/watch-reader.ts");
      return watchReader(process.stdout.fd, () => process.exit(exitCodes.ok));
    },
    // A command without cleanup exits at a signal as Node does.
    get interrupted() {
      return (interrupted ??= abortOnSignal());
    },
    now: Date.now,
    version: packageJson.version,
    program: {
      command: programCommand(),
      unitsDir: join(import.meta.dirname, fromSources ? "../packaging" : "packaging"),
      docsDir: join(import.meta.dirname, fromSources ? "../docs" : "guide"),
      settingsThread: async () => (await programs()).settingsThread,
    },
    sockets: {
      checkoutDir,
      system: defaultPaths({ uid: 0, home: "/root", env: {} }).socket,
      user: defaultPaths(environment).socket,
    },
    stores: {
      system: defaultPaths({ uid: 0, home: "/root", env: {} }).storeDir,
      user: defaultPaths(environment).storeDir,
    },
  };
}

/** In a single executable, Node passes the executable's own path as the file, too. */
function programCommand(): readonly string[] {
  const [, file = ""] = process.argv;
  return file === process.execPath ? [file] : [process.execPath, file];
}

/** The files of svc that run as separate programs and threads. */
async function programs(): Promise<Programs> {
  const { bundledPrograms, sourcePrograms } = await import("./daemon/programs.ts");
  return (fromSources ? sourcePrograms : bundledPrograms)(programCommand());
}

/**
 * Repeated signals within this time count as one: npm and timeout(1) forward a Ctrl-C that the terminal already sent
 * to all processes.
 */
const sameSignalMs = 500;

/** The first signal asks the command to stop, so that it can clean up; the second ends it at once. */
function abortOnSignal(): AbortSignal {
  const controller = new AbortController();
  let askedAtMs = 0;
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      const nowMs = performance.now();
      if (!controller.signal.aborted) {
        askedAtMs = nowMs;
        controller.abort();
      } else if (nowMs - askedAtMs > sameSignalMs) process.exit(exitCodes.interrupted);
    });
  }
  return controller.signal;
}

/** A reader that closes early (`svc ls | head -1`) is not an error; other write failures are reported. */
function withErrorHandler<Stream extends NodeJS.WriteStream>(stream: Stream): Stream {
  opened.add(stream);
  if (stream.listenerCount("error") === 0) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EPIPE") process.exit(exitCodes.ok);
      // A failure of standard error cannot be reported there.
      if (stream !== (process.stderr as NodeJS.WriteStream)) {
        const reason = error.errno === undefined ? error.message : getSystemErrorMessage(error.errno);
        process.stderr.write(`svc: cannot write the output: ${reason}\n`);
      }
      process.exit(exitCodes.failed);
    });
  }
  return stream;
}

/**
 * Private to the user: V8 runs what it finds in there, so it must not be the shared temporary directory. Trying svc from
 * a checkout leaves nothing outside of the checkout, and nothing in one whose daemon is another user's.
 */
function compileCacheDir(): string | undefined {
  if (checkoutDir !== undefined) {
    const isOwn = statSync(checkoutDir, { throwIfNoEntry: false })?.uid === uid;
    return isOwn ? join(checkoutDir, "cache", "compile") : undefined;
  }
  if (uid === 0) return "/var/cache/svc/compile";
  return join(xdgDir(environment, "XDG_CACHE_HOME", ".cache"), "svc", "compile");
}
