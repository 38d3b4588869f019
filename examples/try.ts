/**
 * `npm start`: runs a daemon for trying svc, in the foreground, for any user. It writes only to `.svc/` in the checkout.
 * To clean up, stop and remove the apps, then remove that directory.
 */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, open, readFile, stat, writeFile } from "node:fs/promises";
import { userInfo } from "node:os";
import { join, relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { missing } from "../.ci/optional.ts";
import { isListening, pickPort, placeSocket } from "./try/addresses.ts";
import { createHelloRepository } from "./try/hello-repository.ts";

const root = join(import.meta.dirname, "..");
const examples = import.meta.dirname;
const stateDir = join(root, ".svc");
const configFile = join(stateDir, "svc.toml");
const logFile = join(stateDir, "daemon.log");
const helloRepository = join(stateDir, "hello.git");
const preferredPort = 8420;
const startTimeoutMs = 30_000;
const pollMs = 50;
const uid = process.getuid?.() ?? -1;

try {
  await run();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode ??= 1;
}

async function run(): Promise<void> {
  requireAccount();
  await claimStateDir();
  const socket = await placeSocket(stateDir, uid);
  if (await isListening(socket)) {
    throw new Error(`A daemon already listens on ${socket}; use it, or stop it with Ctrl-C in its terminal.`);
  }
  const port = await pickPort(preferredPort, join(stateDir, "port"));
  await writeFile(configFile, configuration(port, socket));

  const lacks = await missing({
    root: "the daemon serves only you, and apps run as you.",
    docker: "the examples whoami and whoami-team, which are containers, cannot run.",
    git: "packages cannot be installed from git URLs.",
    python: "the example radicale cannot be installed.",
    go: "only `npm run gen` would use it.",
  });
  for (const line of lacks) console.log(line);
  if (port !== preferredPort)
    console.log(`Using port ${port}: port ${preferredPort} is in use, or was at an earlier start.`);
  if (uid === 0)
    console.log(
      "You are root, so apps that you install run as root unless [apps] root_runs_as sets another user.",
    );
  if (!lacks.some((line) => line.startsWith("No git")))
    await createHelloRepository(examples, helloRepository);

  await makeBundle();
  console.error("Starting the daemon …");
  const log = await open(logFile, "w", 0o600);
  const daemon = startDaemon(log.fd);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => daemon.kill("SIGTERM"));
  }
  const ended = once(daemon, "exit") as Promise<[number | null, NodeJS.Signals | null]>;
  await log.close();
  const isUp = await Promise.race([ended.then(() => false), untilListening(socket, daemon)]);
  if (isUp) console.log(welcome(port, socket, await pageAddress(socket)));
  const [exitCode, signal] = await ended;
  if (exitCode === 0) return;
  process.exitCode = exitCode ?? 1;
  const lastLines = (await readFile(logFile, "utf8")).trimEnd().split("\n").slice(-10).join("\n");
  throw new Error(
    `${lastLines}\nThe daemon ended with ${signal ?? `exit code ${String(exitCode)}`}; its log is ${logFile}.`,
  );
}

/** The daemon runs apps only as users with an account. */
function requireAccount(): void {
  try {
    userInfo();
  } catch {
    throw new Error(
      `Your user ID ${uid} has no account on this machine; start svc as a user with an entry in /etc/passwd, or create the account with: sudo useradd --uid ${uid} NAME`,
    );
  }
}

/** Private for a regular user; root's directory is accessible to other users. */
async function claimStateDir(): Promise<void> {
  await mkdir(stateDir, { recursive: true, mode: uid === 0 ? 0o755 : 0o700 });
  const { uid: owner } = await stat(stateDir);
  if (owner !== uid) {
    throw new Error(
      `${stateDir} belongs to uid ${owner}, but you are uid ${uid}; start as that user, or remove the directory.`,
    );
  }
}

function configuration(port: number, socket: string): string {
  // A JSON string is also a valid TOML basic string.
  return `# Written by \`npm start\` each time; for your own daemon, copy it and run \`svc daemon --config FILE\`.
[api]
listen = "127.0.0.1:${port}"
socket = ${JSON.stringify(socket)}

[store]
dir = ${JSON.stringify(join(stateDir, "store"))}

[[sources]]
name = "svc"
url = ${JSON.stringify(examples)}
`;
}

/** Runs before the daemon, because the daemon's output goes to its log: progress and errors of the build appear in the terminal. */
async function makeBundle(): Promise<void> {
  const asked = [join(root, ".ci/svc.mjs"), "--version"];
  const bundling = spawn(process.execPath, asked, { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
  await once(bundling, "close");
}

/** In its own session, so that Ctrl-C reaches it only once, from this process. */
function startDaemon(log: number): ChildProcess {
  return spawn(process.execPath, [join(root, ".ci/svc.mjs"), "daemon", "--config", configFile], {
    cwd: root,
    detached: true,
    stdio: ["ignore", log, log],
  });
}

/** Waits without a limit: after a while it prints where to look, and the user can press Ctrl-C. */
async function untilListening(socket: string, daemon: ChildProcess): Promise<boolean> {
  const slow = setTimeout(() => {
    console.log(`The daemon does not respond yet; its log is ${logFile}.`);
  }, startTimeoutMs);
  try {
    while (daemon.exitCode === null && daemon.signalCode === null) {
      if (await isListening(socket)) return true;
      await sleep(pollMs);
    }
    return false;
  } finally {
    clearTimeout(slow);
  }
}

/** Sign-in URL of the web page; empty if it is not available. */
async function pageAddress(socket: string): Promise<string> {
  const asked = [join(root, ".ci/svc.mjs"), "web", "--no-open", "--socket", socket];
  const answer = promisify(execFile)(process.execPath, asked, { timeout: startTimeoutMs });
  const { stdout } = await answer.catch(() => ({ stdout: "" }));
  return stdout.trim();
}

/** @param page sign-in URL of the web page; empty if it is not available */
function welcome(port: number, socket: string, page: string): string {
  return `
svc is running. Ctrl-C stops it; apps keep running, and the next start finds them.
${page === "" ? "" : `  web page             ${page}\n                       (within 30 seconds, once)\n`}  REST, Connect, gRPC  http://127.0.0.1:${port}  (token in ${relative(root, join(stateDir, "api.token"))})
  unix socket          ${socket}
  log                  ${relative(root, logFile)}
  open it again        npm run -s svc -- web

Try in another terminal, in this directory:
  npm run -s svc -- install hello
  npm run -s svc -- start hello
  curl $(npm run -s svc -- open hello --print)

hello is also a git repository, with the tags v1.0.0 and v1.1.0 to upgrade between:
  ${pathToFileURL(helloRepository).href}
`;
}
