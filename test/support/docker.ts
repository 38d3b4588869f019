/**
 * A real container engine for a test: `await using engine = await startEngine()`. It shares nothing with the host's
 * engine: separate data, socket and bridge, and only one firewall rule. Ready in about half a second.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, readFileSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { reserveBridge, type TestBridge } from "./docker-bridge.ts";
import { TestImages } from "./docker-images.ts";
import { removeLeftovers } from "./docker-leftovers.ts";
import { startRegistry, type RegistryUser, type TestRegistry } from "./docker-registry.ts";
import { engineRequest, type EngineAnswer } from "./docker-request.ts";
import { eventually, nextEvent } from "./eventually.ts";
import { hasMemory } from "./in-memory.ts";
import { hideLog, showLog } from "./live-logs.ts";

const needed = ["dockerd", "docker-registry", "busybox", "ip", "tar", "setpriv", "unshare", "nsenter"];
const systemPrograms = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * The engine executes itself two or three times for each container, and garbage collection at its start takes half of
 * the user time. Its processes are short-lived and small.
 */
const littleCollecting = { GOGC: "off", GOMEMLIMIT: "256MiB" };

/** Why this host cannot run a container engine for the tests; `undefined` if it can. */
export const whyNoDocker = findObstacle();

export interface EngineOptions {
  /**
   * A separate machine: its host name, the setup of its network, and a callback with the PID that holds the namespace.
   */
  machine?: { readonly name: string; readonly connect: (pid: number) => Promise<void> };
  /** Added to the arguments of `dockerd`, such as `--live-restore`. */
  arguments?: readonly string[];
  /** Size of its file system in memory. Default: unlimited. */
  availableBytes?: number;
}

/** Images created for all tests, because no registry has them. */
export const testImages: readonly string[] = ["svc/*", "example.org/*", "traefik/whoami:*", "caddy:*"];

/** Registries of tests listen on free loopback ports. */
const usersRegistries: readonly string[] = ["*"];

export interface TestEngine extends AsyncDisposable {
  /** Path of its socket. */
  readonly socket: string;
  /** The address range of its networks, which no other engine of this host uses. */
  readonly pool: string;
  /** Configuration of a daemon that uses it. */
  readonly config: string;
  /** The PID of `dockerd`. @throws Error while it is stopped. */
  readonly pid: number;
  /** The directory of all its files; removed with it. */
  readonly dir: string;
  /** The path of its data for the test, in memory if there is enough. */
  readonly data: string;
  /** Creates and pushes images, because none can be pulled from elsewhere. */
  readonly images: TestImages;
  /** The engine's log so far. */
  log(): string;
  /** A plain request to its API, independent of the code under test; `path` without the version. */
  request(method: string, path: string, body?: unknown): Promise<EngineAnswer>;
  /** Creates and starts a container; returns its ID. `body` as in `POST /containers/create`. */
  run(name: string, body: Record<string, unknown>): Promise<string>;
  /** A registry on a free loopback port, the same one for the same user; removed with the engine. */
  registry(user?: RegistryUser): Promise<TestRegistry>;
  /** Starts it again after `stop` or `kill`. */
  start(): Promise<void>;
  /** Stops it like an operator; containers stop with it. */
  stop(): Promise<void>;
  /** Kills it, like a crash; containers keep running until it is started again. */
  kill(): Promise<void>;
  restart(): Promise<void>;
  /** Makes it hang: connections are accepted without a response. */
  pause(): Promise<void>;
  resume(): void;
}

/** Memory that must stay free beside the engines of all concurrent test files. */
const memoryBytes = 4 * 2 ** 30;

/** An engine that was killed with many containers needs half a minute on a busy host. */
const startMs = 120_000;

/** Starts an engine. @throws Error with its log if it is not ready within {@link startMs}. */
export async function startEngine(options: EngineOptions = {}): Promise<TestEngine> {
  const dir = await mkdtemp(join(tmpdir(), "svc-engine-"));
  const bridge = await reserveBridge();
  const engine = new PrivateEngine(dir, bridge, options);
  try {
    await engine.start();
    return engine;
  } catch (error) {
    await engine[Symbol.asyncDispose]();
    throw error;
  }
}

class PrivateEngine implements TestEngine {
  readonly dir: string;
  readonly socket: string;
  readonly images: TestImages;
  readonly #bridge: TestBridge;
  readonly #arguments: readonly string[];
  readonly #machine: EngineOptions["machine"];
  readonly #execRoot: string;
  readonly #registries = new Map<string, Promise<TestRegistry>>();
  #child: ChildProcess | undefined;
  /** Holds the mounts. */
  #holder: ChildProcess | undefined;
  /** In memory, where no write waits for a disk and recently removed files do not slow new ones down. */
  readonly #isInMemory: boolean;
  #isPaused = false;
  #isDisposed = false;
  #log = "";

  constructor(dir: string, bridge: TestBridge, options: EngineOptions) {
    const { arguments: extraArguments = [], machine, availableBytes } = options;
    this.dir = dir;
    this.socket = join(dir, "docker.sock");
    this.#bridge = bridge;
    this.#arguments = extraArguments;
    this.#machine = machine;
    this.#execRoot = join(dir, "exec");
    this.images = new TestImages(dir, this.socket);
    showLog(`the engine in ${dir}`, () => this.#log);
    this.#isInMemory = hasMemory(memoryBytes, availableBytes);
    if (!this.#isInMemory) {
      const less = `less than ${memoryBytes / 2 ** 30} GiB of memory are left`;
      this.#log += `The data of the engine lie on the disk, as ${less}.\n`;
      console.warn(`The data of a test's engine are on the disk, which is slower: ${less}.`);
    }
  }

  get pool(): string {
    return this.#bridge.pool;
  }

  get config(): string {
    const [shared, registries] = [testImages, usersRegistries].map((list) => JSON.stringify(list));
    return `[docker]\nsocket = "${this.socket}"\nsubnet_pool = "${this.pool}"\nshared_images = ${shared}\nusers_registries = ${registries}`;
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error("the engine is not running");
    return pid;
  }

  /** Only processes in its mount namespace see it in its place. */
  get data(): string {
    const pid = this.#holder?.pid;
    if (pid === undefined) throw new Error("the engine has no mounts yet");
    return `/proc/${pid}/root${join(this.dir, "data")}`;
  }

  log(): string {
    return this.#log;
  }

  request(method: string, path: string, body?: unknown): Promise<EngineAnswer> {
    return engineRequest(this.socket, method, path, body);
  }

  async run(name: string, body: Record<string, unknown>): Promise<string> {
    const made = await this.request("POST", `/containers/create?name=${name}`, body);
    const { Id: id } = made.expect(201) as { Id: string };
    (await this.request("POST", `/containers/${id}/start`)).expect(204);
    return id;
  }

  registry(user?: RegistryUser): Promise<TestRegistry> {
    const key = user === undefined ? "" : `${user.name}:${user.password}`;
    let registry = this.#registries.get(key);
    registry ??= startRegistry(user);
    this.#registries.set(key, registry);
    return registry;
  }

  async start(): Promise<void> {
    if (this.#child !== undefined) throw new Error("the engine is already running");
    const configFile = join(this.dir, "daemon.json");
    // An empty file, so that the host's configuration is not read.
    await writeFile(configFile, "{}");
    const child = spawn(
      "setpriv",
      [
        // If this test run is killed, the engine stops its containers and exits.
        "--pdeathsig=TERM",
        ...["nsenter", ...(await this.#namespaces()), "dockerd"],
        ...["--config-file", configFile],
        ...["--data-root", join(this.dir, "data")],
        ...["--exec-root", this.#execRoot],
        ...["--pidfile", join(this.dir, "docker.pid")],
        ...["--host", `unix://${this.socket}`],
        ...["--bridge", this.#machine === undefined ? this.#bridge.name : "none"],
        ...["--default-address-pool", `base=${this.#bridge.pool},size=28`],
        ...["--cgroup-parent", this.#bridge.name],
        // Firewall rules are the host's, so two engines would delete each other's. Ports are published by the proxy.
        ...["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"],
        ...["--shutdown-timeout", "2"],
        ...this.#arguments,
      ],
      {
        stdio: ["ignore", "ignore", "pipe"],
        detached: true,
        env: { PATH: `${process.env["PATH"] ?? ""}:${systemPrograms}`, ...littleCollecting },
      },
    );
    this.#child = child;
    child.stderr.setEncoding("utf8").on("data", (text: string) => (this.#log += text));
    const ready = eventually(async () => (await this.request("GET", "/_ping")).expect(200), startMs);
    const ended = once(child, "exit").then(() =>
      Promise.reject(new Error(`it ended:\n${this.#log.slice(-3_000)}`)),
    );
    await Promise.race([ready, ended]);
  }

  async #namespaces(): Promise<string[]> {
    const pid = await this.#holdMounts();
    const kinds = this.#machine === undefined ? ["mnt"] : ["mnt", "net", "uts"];
    return kinds.map((kind) => `--${kind === "mnt" ? "mount" : kind}=/proc/${pid}/ns/${kind}`);
  }

  /**
   * The engine's mounts survive its kill, as on a host: otherwise the next engine would leave the old containers'
   * networks, which respond for the addresses of the new ones. The host's containerd is hidden, because the engine
   * would use it.
   */
  async #holdMounts(): Promise<number> {
    if (this.#holder?.pid !== undefined) return this.#holder.pid;
    const name = this.#machine === undefined ? ":" : `hostname ${this.#machine.name}; ip link set lo up`;
    const hide = "[ ! -d /run/containerd ] || mount -t tmpfs none /run/containerd";
    const data = join(this.dir, "data");
    await mkdir(data);
    const mount = this.#isInMemory ? `mount -t tmpfs none ${data}` : ":";
    const holder = spawn(
      "setpriv",
      [
        ...["--pdeathsig=KILL", "unshare", "--mount", "--propagation=slave"],
        ...(this.#machine === undefined ? [] : ["--net", "--uts"]),
        ...["sh", "-c", `${hide}; ${mount}; ${name}; echo ready; exec sleep infinity`],
      ],
      { stdio: ["ignore", "pipe", "ignore"], detached: true },
    );
    this.#holder = holder;
    await nextEvent(holder.stdout, "data");
    holder.stdout.destroy();
    holder.unref();
    if (holder.pid === undefined) throw new Error("the engine has no mounts of its own");
    await this.#machine?.connect(holder.pid);
    return holder.pid;
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    this.resume();
    this.#child = undefined;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = nextEvent(child, "exit");
    child.kill(signal);
    const timer = setTimeout(() => child.kill("SIGKILL"), 15_000);
    await exited;
    clearTimeout(timer);
  }

  stop(): Promise<void> {
    return this.#end("SIGTERM");
  }

  async kill(): Promise<void> {
    await this.#end("SIGKILL");
    // The kernel killed containerd with it; until that is reaped, the next engine would consider it alive.
    await rm(join(this.#execRoot, "containerd/containerd.pid"), { force: true });
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  async pause(): Promise<void> {
    process.kill(this.pid, "SIGSTOP");
    this.#isPaused = true;
    // A thread on another CPU runs until the signal arrives, and may respond in between.
    await eventually(() => this.#expectStopped());
  }

  async #expectStopped(): Promise<void> {
    const tasks = `/proc/${this.pid}/task`;
    for (const thread of await readdir(tasks)) {
      const status = await readFile(join(tasks, thread, "status"), "utf8");
      if (!/^State:\tT/m.test(status))
        throw new Error(`thread ${thread} of the engine still runs:\n${status}`);
    }
  }

  resume(): void {
    if (this.#isPaused) process.kill(this.pid, "SIGCONT");
    this.#isPaused = false;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    hideLog(`the engine in ${this.dir}`);
    for (const registry of this.#registries.values()) await (await registry)[Symbol.asyncDispose]();
    this.resume();
    if (this.#child !== undefined) await this.#removeContainers().catch(() => undefined);
    await this.#end("SIGTERM");
    await removeLeftovers({ execRoot: this.#execRoot, cgroup: this.#bridge.name });
    this.#holder?.kill("SIGKILL");
    await this.#bridge[Symbol.asyncDispose]();
    await rm(this.dir, { recursive: true, force: true, maxRetries: 5 });
  }

  /** Leftovers that the engine removes itself need no search. */
  async #removeContainers(): Promise<void> {
    const all = (await this.request("GET", "/containers/json?all=1")).expect(200) as { Id: string }[];
    await Promise.all(all.map(({ Id }) => this.request("DELETE", `/containers/${Id}?force=1&v=1`)));
    await this.request("POST", "/networks/prune");
  }
}

function findObstacle(): string | undefined {
  if (process.getuid?.() !== 0) return "needs root";
  const path = `${process.env["PATH"] ?? ""}:${systemPrograms}`.split(delimiter);
  const missing = needed.filter((program) => !path.some((dir) => isExecutable(join(dir, program))));
  if (missing.length > 0) return `needs ${missing.join(", ")}`;
  const capabilities = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  const capSysAdmin = 1n << 21n;
  return (BigInt(`0x${capabilities}`) & capSysAdmin) === 0n ? "needs CAP_SYS_ADMIN" : undefined;
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
