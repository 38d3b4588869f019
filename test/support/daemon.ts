/** A real daemon in one line: `await using daemon = await startDaemon()`. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess, type ChildProcessByStdio } from "node:child_process";
import { chmod, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { connect as connectSocket } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import type { DescService } from "@bufbuild/protobuf";
import { createClient, type Client, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { readProcessIdentity, type ProcessIdentity } from "../../src/sys/process-identity.ts";
import { systemDirs } from "../../src/run-as/launch.ts";
import { eventually, nextEvent } from "./eventually.ts";
import { hideLog, showLog } from "./live-logs.ts";
import { createRestTransport } from "./rest-transport.ts";
import { searchPath } from "./search-path.ts";
import { main } from "./svc-main.ts";

export const isRoot = process.getuid?.() === 0;
/** The deadline of a start and a stop on a busy host. */
const daemonMs = 120_000;
/** For titles of tests that act as other users. */
export const needsRoot = isRoot ? "" : " (skipped: needs root)";

const examples = fileURLToPath(new URL("../../examples", import.meta.url));
const userSocket = fileURLToPath(new URL("./user-socket.mjs", import.meta.url));

export const protocols = ["rest", "connect", "grpc", "grpc-web"] as const;
export type Protocol = (typeof protocols)[number];

/**
 * The protocol for a file's tests of domain behavior, which varies from file to file. Tests about the transport use all
 * four. @param url its `import.meta.url`
 */
export function protocolOf(url: string): Protocol {
  const sum = Buffer.from(basename(url)).reduce((total, byte) => total + byte, 0);
  return protocols[sum % protocols.length] ?? "rest";
}

export interface DaemonOptions {
  /** Appended to the configuration, as TOML. */
  config?: string;
  /** Further lines of the table `[api]` in the configuration. */
  api?: readonly string[];
  /** The directory of all its files; default: a new temporary directory that is removed with the daemon. */
  dir?: string;
  env?: Readonly<Record<string, string>>;
  /** Default `127.0.0.1:0`. */
  listen?: string;
  /** The program. Default: the one under test. */
  main?: string;
  /** A command that executes the daemon, such as `unshare`, with its arguments before the daemon's own. */
  launcher?: readonly string[];
}

export interface TestDaemon extends AsyncDisposable {
  readonly dir: string;
  readonly configFile: string;
  readonly storeDir: string;
  readonly socketPath: string;
  readonly port: number;
  readonly pid: number;
  /** The primary token. */
  readonly token: string;
  /** The daemon's log so far. */
  readonly log: () => string;
  /** A client as the test's own user, over the socket. */
  client<S extends DescService>(service: S, protocol?: Protocol): Client<S>;
  /** A client with a bearer token, over TCP. */
  tokenClient<S extends DescService>(service: S, protocol?: Protocol, token?: string): Client<S>;
  /** Runs the test's calls as another user. Needs root. */
  as(uid: number): Promise<UserConnection>;
  /** Kills it, like a crash. */
  kill(): Promise<void>;
  /** Stops it like an operator. */
  stop(): Promise<void>;
  /** Starts it again with the same store. */
  restart(): Promise<void>;
}

export interface UserConnection extends AsyncDisposable {
  readonly socketPath: string;
  client<S extends DescService>(service: S, protocol?: Protocol): Client<S>;
}

/** A transport over a unix socket. */
export function socketTransport(socketPath: string, protocol: Protocol): Transport {
  const nodeOptions = { socketPath };
  const baseUrl = "http://localhost";
  switch (protocol) {
    case "rest":
      return createRestTransport({ socketPath });
    case "connect":
      return createConnectTransport({ baseUrl, httpVersion: "1.1", nodeOptions });
    case "grpc-web":
      return createGrpcWebTransport({ baseUrl, httpVersion: "1.1", nodeOptions });
    case "grpc":
      return createGrpcTransport({
        baseUrl,
        nodeOptions: { createConnection: () => connectSocket(socketPath) },
      });
  }
}

export async function startDaemon(options: DaemonOptions = {}): Promise<TestDaemon> {
  const dir = options.dir ?? (await mkdtemp(join(tmpdir(), "svc-test-")));
  // Other users reach the socket through this directory.
  await chmod(dir, 0o755);
  const configFile = join(dir, "svc.toml");
  const socketPath = join(dir, "svc.sock");
  const storeDir = join(dir, "store");
  await writeFile(
    configFile,
    [
      `[api]\nlisten = "${options.listen ?? "127.0.0.1:0"}"\nsocket = "${socketPath}"`,
      ...(options.api ?? []),
      `[store]\ndir = "${storeDir}"`,
      `[[sources]]\nname = "examples"\nurl = "${examples}"`,
      // Prevents tests from shutting down the host.
      ...(options.config?.includes("[system]") === true ? [] : ['[system]\nreboot_command = ["true"]']),
      withSearchPath(options.config ?? ""),
    ].join("\n"),
  );
  const state = { log: "", port: 0, child: undefined as ChildProcess | undefined };
  const start = async (): Promise<void> => {
    const program = options.main ?? main;
    const argv = [...(options.launcher ?? []), process.execPath, program, "daemon", "--config", configFile];
    const child = spawn(argv[0] ?? "", argv.slice(1), {
      stdio: ["ignore", "inherit", "pipe"],
      env: { PATH: process.env["PATH"] ?? "", HOME: dir, ...options.env },
    });
    state.child = child;
    state.port = await readyPort(child, (line) => (state.log += `${line}\n`));
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    const { child } = state;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = nextEvent(child, "exit", daemonMs);
    child.kill(signal);
    await exited.finally(() => child.kill("SIGKILL"));
  };
  showLog(`the daemon in ${dir}`, () => state.log);
  await start();
  const token = (await readFile(join(dir, "api.token"), "utf8")).trim();
  return {
    dir,
    configFile,
    storeDir,
    socketPath,
    token,
    get port() {
      return state.port;
    },
    get pid() {
      return state.child?.pid ?? 0;
    },
    log: () => state.log,
    client: (service, protocol = "connect") => createClient(service, socketTransport(socketPath, protocol)),
    tokenClient: (service, protocol = "connect", presented = token) =>
      createClient(service, tokenTransport(state.port, protocol, presented)),
    as: (uid) => openUserConnection(uid, socketPath),
    kill: () => end("SIGKILL"),
    stop: () => end("SIGTERM"),
    restart: async () => {
      await end("SIGTERM");
      await start();
    },
    [Symbol.asyncDispose]: async () => {
      await end("SIGTERM");
      hideLog(`the daemon in ${dir}`);
      if (options.dir !== undefined) return;
      await endSupervisors(join(storeDir, "run"));
      await rm(dir, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

function withSearchPath(config: string): string {
  if (searchPath.length === systemDirs.length || /^path = /m.test(config)) return config;
  const table = `[apps]\npath = ${JSON.stringify(searchPath)}`;
  return config.includes("[apps]") ? config.replace("[apps]", table) : `${table}\n${config}`;
}

/** Apps survive the daemon, but must not survive its test: the ones left running would stay forever. */
async function endSupervisors(runDir: string): Promise<void> {
  for (const id of await readdir(runDir).catch(() => [])) {
    const text = await readFile(join(runDir, id, "state.json"), "utf8").catch(() => "{}");
    const { supervisor } = JSON.parse(text) as { supervisor?: ProcessIdentity };
    const isSame = async (): Promise<boolean> =>
      supervisor !== undefined &&
      (await readProcessIdentity(supervisor.pid))?.startTicks === supervisor.startTicks;
    if (!(await isSame())) continue;
    // It stops its app, and then exits.
    process.kill(supervisor?.pid ?? 0, "SIGTERM");
    await eventually(async () => assert.ok(!(await isSame())), 15_000);
  }
}

function tokenTransport(port: number, protocol: Protocol, token: string): Transport {
  const baseUrl = `http://127.0.0.1:${port}`;
  if (protocol === "rest")
    return createRestTransport({ port, headers: { authorization: `Bearer ${token}` } });
  const interceptors = [
    (
        next: Parameters<
          NonNullable<Parameters<typeof createConnectTransport>[0]["interceptors"]>[number]
        >[0],
      ) =>
      (request: Parameters<typeof next>[0]) => {
        request.header.set("authorization", `Bearer ${token}`);
        return next(request);
      },
  ];
  switch (protocol) {
    case "connect":
      return createConnectTransport({ baseUrl, httpVersion: "1.1", interceptors });
    case "grpc-web":
      return createGrpcWebTransport({ baseUrl, httpVersion: "1.1", interceptors });
    case "grpc":
      return createGrpcTransport({ baseUrl, interceptors });
  }
}

/**
 * The TCP port, once the daemon is ready; 0 if it has none. @throws Error with its log if it exits early or is not
 * ready in time
 */
async function readyPort(child: ChildProcess, onLine: (line: string) => void): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const { stderr } = child;
  if (stderr === null) throw new Error("the daemon has no standard error");
  let seen = "";
  createInterface({ input: stderr }).on("line", (line) => {
    onLine(line);
    seen += `${line}\n`;
    if (/"msg":"svc is ready"/.test(line)) resolve(Number(/"port":(\d+)/.exec(line)?.[1] ?? 0));
  });
  child.once("exit", (code, signal) =>
    reject(new Error(`the daemon exited (${String(code ?? signal)}):\n${seen}`)),
  );
  const timer = setTimeout(() => {
    reject(new Error(`the daemon is not ready within ${daemonMs / 1_000} s:\n${seen}`));
    child.kill("SIGKILL");
  }, daemonMs);
  return promise.finally(() => clearTimeout(timer));
}

async function openUserConnection(uid: number, targetPath: string): Promise<UserConnection> {
  const dir = await mkdtemp(join(tmpdir(), "svc-connection-"));
  await chmod(dir, 0o777);
  const socketPath = join(dir, "connection.sock");
  const child = spawn(
    "setpriv",
    [
      `--reuid=${uid}`,
      `--regid=${uid}`,
      "--clear-groups",
      "--",
      process.execPath,
      userSocket,
      socketPath,
      targetPath,
    ],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  return userConnection(child, socketPath, dir);
}

/** The socket listener that a child of this kind opens at the path, below a directory that is removed with it. */
export async function userConnection(
  child: ChildProcessByStdio<Writable, Readable, null>,
  socketPath: string,
  dir: string,
): Promise<UserConnection> {
  await nextEvent(child.stdout, "data");
  return {
    socketPath,
    client: (service, protocol = "connect") => createClient(service, socketTransport(socketPath, protocol)),
    [Symbol.asyncDispose]: async () => {
      const exited = nextEvent(child, "exit");
      child.stdin.end();
      await exited;
      await rm(dir, { recursive: true, force: true });
    },
  };
}
