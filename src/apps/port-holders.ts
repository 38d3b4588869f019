/** Who has a TCP port of the host (decisions 36), as far as whoever is told may know it (decisions 9). */
import { readdir, readFile, readlink, stat } from "node:fs/promises";
import { basename } from "node:path";
import { listenerTables, parseListeners, type ListeningSocket } from "../lib/listening-sockets.mjs";
import { resolvePorts, type ResolvedPort } from "../packages/settings.ts";
import { startFailed } from "../runtimes/start-failed.ts";
import { isUpNow, type AppRuntime, type RunnableApp } from "../runtimes/runtime.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppRegistry } from "./app-registry.ts";
import { runningSettings } from "./app-view.ts";

export interface PortHoldersOptions {
  registry: AppRegistry;
  runtimeOf: (app: AppRecord) => AppRuntime;
  runtimes: readonly Pick<AppRuntime, "publishedNow">[];
  runnable: (app: AppRecord) => RunnableApp;
  /** The name of a uid; empty when the host has none. */
  userName: (uid: number) => Promise<string>;
}

export interface ReportedPort extends ResolvedPort {
  /** Where the engine publishes it; none where the app itself listens. */
  addresses: string[];
  /** Who listens on it instead of the app. */
  takenBy?: string;
}

/** For whom a port is looked at. */
type PortUser = Pick<RunnableApp, "id" | "ownerUid" | "uid" | "manifest" | "settings">;

/** What listens for an engine on what it publishes. */
const engineProxy = "docker-proxy";

export class PortHolders {
  readonly #options: PortHoldersOptions;

  constructor(options: PortHoldersOptions) {
    this.#options = options;
  }

  /** The ports on which somebody listens. */
  async listeners(): Promise<ReadonlyMap<number, readonly ListeningSocket[]>> {
    return parseListeners(await Promise.all(listenerTables.map(readTable)));
  }

  /**
   * Of an app that does not run. @throws SvcError `start_failed` when somebody has one of its ports
   * @param endLeftovers ends what an earlier run of the app itself left behind
   */
  async requireFree(app: PortUser, endLeftovers: () => Promise<void>): Promise<void> {
    if ((await this.#firstTaken(app)) === undefined) return;
    await endLeftovers();
    const taken = await this.#firstTaken(app);
    if (taken !== undefined) throw startFailed(app.id, `port ${taken.port} is taken by ${taken.by}`);
  }

  /** The ports of each app, with their addresses and who listens there instead of it. */
  async report(apps: readonly AppRecord[]): Promise<ReportedPort[][]> {
    const listeners = await this.listeners();
    const { runnable, runtimeOf } = this.#options;
    return Promise.all(
      apps.map(async (app) => {
        const ports = resolvePorts(app.manifest, runningSettings(app, this.#isUp(app)));
        const published = ports.length === 0 ? undefined : await runtimeOf(app).publishedAt?.(runnable(app));
        return Promise.all(
          ports.map(async (port): Promise<ReportedPort> => {
            const addresses = [...(published?.get(`${port.port}/${port.protocol}`) ?? [])];
            const sockets = port.protocol === "tcp" ? listeners.get(port.port) : undefined;
            const stranger = sockets?.find((socket) => !this.#mayBeOf(app, socket));
            if (stranger === undefined) return { ...port, addresses };
            return { ...port, addresses, takenBy: await this.#describe(stranger, runnable(app)) };
          }),
        );
      }),
    );
  }

  async #firstTaken(app: PortUser): Promise<{ port: number; by: string } | undefined> {
    const ports = resolvePorts(app.manifest, app.settings).filter(({ protocol }) => protocol === "tcp");
    if (ports.length === 0) return undefined;
    const listeners = await this.listeners();
    for (const { port } of ports) {
      const [socket] = listeners.get(port) ?? [];
      if (socket !== undefined) return { port, by: await this.#describe(socket, app) };
    }
    return undefined;
  }

  /** `hello-2`, `hello-2 (of alice)`, `process 12 (node)` or `a process of root`: no more than the app's owner may see. */
  async #describe(socket: ListeningSocket, { id, ownerUid, uid }: PortUser): Promise<string> {
    const { registry, userName } = this.#options;
    const visible = registry.visible({ uid: ownerUid, root: ownerUid === 0 });
    const holder = visible.find((app) => app.id !== id && this.#has(app, socket));
    if (holder !== undefined) {
      if (holder.ownerUid === ownerUid) return holder.id;
      return `${holder.id} (of ${await userName(holder.ownerUid)})`;
    }
    const process = await findProcess(socket);
    if (process?.name === engineProxy && this.#isForgotten(socket))
      return "the container engine, for no container that runs: should it stay so, restart the engine";
    if (process !== undefined && (ownerUid === 0 || socket.uid === uid))
      return `process ${process.pid} (${process.name})`;
    const name = await userName(socket.uid);
    return `a process of ${name === "" ? `uid ${socket.uid}` : name}`;
  }

  /** Whether the engine publishes a port for a container that it does not run: it was killed while it started that. */
  #isForgotten({ port }: ListeningSocket): boolean {
    const published = this.#options.runtimes.flatMap((runtime) => runtime.publishedNow?.() ?? []);
    return published.length > 0 && published.every((ports) => !ports.has(port));
  }

  /** Whether the app runs with this port, and as the socket's user: containers' ports are held by the engine. */
  #has(app: AppRecord, socket: ListeningSocket): boolean {
    if (!this.#mayBeOf(app, socket)) return false;
    return resolvePorts(app.manifest, runningSettings(app, true)).some(
      ({ protocol, port }) => protocol === "tcp" && port === socket.port,
    );
  }

  #mayBeOf(app: AppRecord, socket: ListeningSocket): boolean {
    if (!this.#isUp(app)) return false;
    return socket.uid === (this.#options.runtimeOf(app).images === undefined ? app.runUid : 0);
  }

  #isUp(app: AppRecord): boolean {
    return isUpNow(this.#options.runtimeOf(app).status(app.id));
  }
}

async function readTable(path: string): Promise<string> {
  // A kernel without IPv6 has one of them only.
  return readFile(path, "latin1").catch(() => "");
}

/** `undefined` where this daemon may not see it. */
async function findProcess({
  uid,
  inode,
}: ListeningSocket): Promise<{ pid: string; name: string } | undefined> {
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    try {
      const isRelated = (await stat(`/proc/${pid}`)).uid === uid;
      if (!isRelated || !(await holds(pid, inode))) continue;
      // Its name is that of its first thread, which may be any.
      return { pid, name: basename(await readlink(`/proc/${pid}/exe`)) };
    } catch {
      // It has ended meanwhile, or is not ours to look into.
    }
  }
  return undefined;
}

async function holds(pid: string, inode: number): Promise<boolean> {
  for (const descriptor of await readdir(`/proc/${pid}/fd`)) {
    const target = await readlink(`/proc/${pid}/fd/${descriptor}`).catch(() => "");
    if (target === `socket:[${inode}]`) return true;
  }
  return false;
}
