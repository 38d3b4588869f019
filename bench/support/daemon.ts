/** A daemon of the bundle with a temporary store. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { Agent, request, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { runProgram } from "./processes.ts";

export const program = join(import.meta.dirname, "../../dist/svc.cjs");
const startTimeoutMs = 60_000;
const stopTimeoutMs = 60_000;

export class BenchDaemon implements AsyncDisposable {
  readonly dir: string;
  readonly storeDir: string;
  readonly socket: string;
  readonly #configFile: string;
  /** One connection that stays open, like that of a console client. */
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  #process: ChildProcess | undefined;

  constructor(dir: string) {
    this.dir = dir;
    this.storeDir = join(dir, "store");
    this.socket = join(dir, "svc.sock");
    this.#configFile = join(dir, "svc.toml");
  }

  /** The port and token of its TCP listener. */
  async gateway(): Promise<{ port: number; token: string }> {
    const log = await readFile(join(this.dir, "daemon.log"), "utf8");
    const port = Number([...log.matchAll(/"port":(\d+)/g)].at(-1)?.[1]);
    return { port, token: (await readFile(join(this.dir, "api.token"), "utf8")).trim() };
  }

  get pid(): number {
    return this.#process?.pid ?? 0;
  }

  /** @param more appended to its configuration, as TOML */
  async writeConfig(more = ""): Promise<void> {
    const config = `[api]
listen = "127.0.0.1:0"
socket = ${JSON.stringify(this.socket)}
[store]
dir = ${JSON.stringify(this.storeDir)}
${more}
`;
    await writeFile(this.#configFile, config);
  }

  /** Resolves with its first response. @throws Error with the end of its log if there is none. */
  async start(): Promise<void> {
    const logFile = join(this.dir, "daemon.log");
    const log = await open(logFile, "a");
    const daemon = spawn(process.execPath, [program, "daemon", "--config", this.#configFile], {
      stdio: ["ignore", log.fd, log.fd],
    });
    this.#process = daemon;
    await log.close();
    const giveUpAt = performance.now() + startTimeoutMs;
    while (daemon.exitCode === null && daemon.signalCode === null && performance.now() < giveUpAt) {
      try {
        await this.get("/v1/status");
        return;
      } catch {
        await sleep(1);
      }
    }
    throw new Error(`the daemon does not respond:\n${(await readFile(logFile, "utf8")).slice(-2_000)}`);
  }

  /** Stops the daemon; apps keep running. */
  async stop(): Promise<void> {
    const daemon = this.#process;
    if (daemon?.exitCode !== null || daemon.signalCode !== null) return;
    const ended = once(daemon, "exit", { signal: AbortSignal.timeout(stopTimeoutMs) });
    daemon.kill("SIGTERM");
    await ended;
  }

  /** Runs the CLI with this daemon and returns its output. */
  svc(...args: string[]): Promise<string> {
    return runProgram(process.execPath, program, "--socket", this.socket, ...args);
  }

  /** The body of a GET. @throws Error unless the status is 200. */
  async get(path: string): Promise<string> {
    const sent = request({ socketPath: this.socket, path, agent: this.#agent }).end();
    const [response] = (await once(sent, "response")) as [IncomingMessage];
    let body = "";
    for await (const chunk of response.setEncoding("utf8")) body += String(chunk);
    if (response.statusCode !== 200) throw new Error(`GET ${path}: ${String(response.statusCode)} ${body}`);
    return body;
  }

  /** Creates a package below this daemon's directory and returns its path. @param more further lines of its manifest */
  async writePackage(id: string, script: string, more = ""): Promise<string> {
    const dir = join(this.dir, "packages", id);
    await mkdir(dir, { recursive: true });
    await writeFile(join(dir, "app.mjs"), script);
    await writeFile(
      join(dir, "svc.yaml"),
      `id: ${id}\nname: ${id}\nversion: "1.0.0"\nprocess:\n  exec: [node, app.mjs]\n${more}`,
    );
    return dir;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#agent.destroy();
    await this.stop();
    await rm(this.dir, { recursive: true, force: true });
  }
}

/** A configured daemon that is not started. */
async function createDaemon(config: string): Promise<BenchDaemon> {
  const daemon = new BenchDaemon(await mkdtemp(join(tmpdir(), "svc-bench-")));
  await daemon.writeConfig(config);
  return daemon;
}

/** A running daemon. @param config appended to its configuration, as TOML */
export async function startDaemon(config = ""): Promise<BenchDaemon> {
  const daemon = await createDaemon(config);
  try {
    await daemon.start();
    return daemon;
  } catch (error) {
    await daemon[Symbol.asyncDispose]();
    throw error;
  }
}
