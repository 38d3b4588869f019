/** Which app, user or process uses a port of the host, as far as the caller may know. */
import { readdir, readFile, readlink, stat } from "node:fs/promises";
import { basename } from "node:path";
import { shellWord } from "../../lib/shell-word.ts";
import {
  addressText,
  boundPorts,
  listenerTables,
  parseListeners,
  type ListeningSocket,
} from "../../sys/listening-sockets.mjs";
import { resolvePorts, type ResolvedPort } from "../../packages/settings/settings.ts";
import { startFailed } from "../../runtimes/start-failed.ts";
import type { AppRuntime } from "../../runtimes/contract.ts";
import { isUpNow } from "../../runtimes/runtime-status.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import type { AppRecord } from "../records/app-record.ts";
import type { AppRegistry } from "../records/app-registry.ts";
import { runningSettings } from "../records/app-view.ts";
import { explainFixedPort, movablePorts, nextFree, takenPortNote } from "./movable-ports.ts";
import { keyOf, type PortKey, type PortReservations } from "./port-reservations.ts";

export interface PortHoldersOptions {
  registry: AppRegistry;
  runtimeOf: (app: AppRecord) => AppRuntime;
  runtimes: readonly Pick<AppRuntime, "publishing">[];
  runnable: (app: AppRecord) => RunnableApp;
  /** The name of a uid; empty if the host has none. */
  userName: (uid: number) => Promise<string>;
  reservations: Pick<PortReservations, "others">;
  /** TCP port of the daemon, also while another process has it; 0 reserves none. */
  daemonPort: number;
}

export interface ReportedPort extends ResolvedPort {
  /** Where the engine publishes it, or the app listens. */
  addresses: string[];
  /** The program that listens on it instead of the app. */
  takenBy?: string;
}

/** The app whose ports are checked; its owner sees the holder. */
type PortUser = Pick<RunnableApp, "id" | "ownerUid" | "uid" | "manifest" | "settings">;

/** The user who sees the holder of a port. */
type Viewer = Pick<RunnableApp, "ownerUid" | "uid"> & Partial<Pick<RunnableApp, "id">>;

/** Programs that listen on ports that an engine publishes. */
const engineProxy = "docker-proxy";

export class PortHolders {
  readonly #options: PortHoldersOptions;

  constructor(options: PortHoldersOptions) {
    this.#options = options;
  }

  /**
   * The ports that a new app cannot have: of the daemon, bound by a process, declared by an app, or reserved by another daemon.
   * @param exceptId an app whose declared ports do not count
   */
  async inUse(exceptId?: string): Promise<Set<PortKey>> {
    const bound = await Promise.all(boundTables.map(readBoundPorts));
    const { reservations, daemonPort } = this.#options;
    return new Set<PortKey>([
      `tcp/${daemonPort}`,
      ...bound.flat(),
      ...this.declared(exceptId),
      ...(await reservations.others()),
    ]);
  }

  /** The ports of all apps: of their next starts and of the running ones. */
  declared(exceptId?: string): Set<PortKey> {
    const ports = this.#options.registry
      .all()
      .filter(({ id }) => id !== exceptId)
      .flatMap((app) => [
        ...resolvePorts(app.manifest, app.settings),
        ...resolvePorts(app.manifest, runningSettings(app, true)),
      ]);
    return new Set(ports.map(keyOf));
  }

  /** The program that listens on a port, or else the app that declares it, as far as the viewer may know. */
  async holderOf({ protocol, port }: Omit<ResolvedPort, "name">, viewer: Viewer): Promise<string> {
    if (protocol === "tcp" && port === this.#options.daemonPort) return "svc";
    const [socket] = protocol === "tcp" ? ((await listeners()).get(port) ?? []) : [];
    if (socket !== undefined) return this.#describe(socket, viewer);
    const key = keyOf({ protocol, port });
    const app = this.#visible(viewer).find(
      (each) =>
        each.id !== viewer.id &&
        resolvePorts(each.manifest, each.settings).some((declared) => keyOf(declared) === key),
    );
    if (app !== undefined) return this.#nameOf(app, viewer);
    return this.declared(viewer.id).has(key) ? "another app" : "another process";
  }

  /** One remark for each port of the app's next start that something else uses. */
  async conflicts(app: AppRecord): Promise<string[]> {
    const { manifest, settings, id } = app;
    const inUse = await this.inUse(id);
    const own = this.#isUp(app) ? resolvePorts(manifest, runningSettings(app, true)).map(keyOf) : [];
    const taken = resolvePorts(manifest, settings).filter(
      (port) => inUse.has(keyOf(port)) && !own.includes(keyOf(port)),
    );
    const viewer = this.#options.runnable(app);
    return Promise.all(
      taken.map(async (port) => takenPortNote(manifest, settings, port, await this.holderOf(port, viewer))),
    );
  }

  /**
   * Checks the ports of an app that does not run.
   * @throws SvcError `start_failed` if one of them is in use
   * @param endLeftovers ends what an earlier run of the app itself left behind
   */
  async requireFree(app: PortUser, endLeftovers: () => Promise<void>): Promise<void> {
    if ((await this.#firstTaken(app)) === undefined) return;
    await endLeftovers();
    const taken = await this.#firstTaken(app);
    if (taken === undefined) return;
    const by = await this.#describe(taken.socket, app);
    throw startFailed(
      app.id,
      `port ${taken.port} is in use by ${by}; ${await this.#freePortAdvice(app, taken.port)}`,
      { takenPort: taken.port },
    );
  }

  /**
   * The ports of each app: those of the manifest, and others that its running containers publish, such as random ones.
   * Each has its addresses, and the program that listens there instead of the app.
   */
  async report(apps: readonly AppRecord[]): Promise<ReportedPort[][]> {
    const tables = await readTables();
    const open = parseListeners(tables);
    const anywhere = parseListeners(tables, { elsewhere: true });
    const { runnable, runtimeOf } = this.#options;
    return Promise.all(
      apps.map(async (app) => {
        const listed = resolvePorts(app.manifest, runningSettings(app, this.#isUp(app)));
        const { publishing } = runtimeOf(app);
        const ports = [...listed, ...unlistedPorts(listed, publishing?.boundNames?.(app.id))];
        const published = ports.length === 0 ? undefined : await publishing?.publishedAt(runnable(app));
        return Promise.all(
          ports.map(async (port): Promise<ReportedPort> => {
            const own = port.protocol === "tcp" ? (anywhere.get(port.port) ?? []) : [];
            const addresses = publishing
              ? [...(published?.get(`${port.port}/${port.protocol}`) ?? [])]
              : this.#addressesOf(app, own);
            const sockets = port.protocol === "tcp" ? open.get(port.port) : undefined;
            const stranger = sockets?.find((socket) => !this.#mayBelongTo(app, socket));
            if (stranger === undefined) return { ...port, addresses };
            return { ...port, addresses, takenBy: await this.#describe(stranger, runnable(app)) };
          }),
        );
      }),
    );
  }

  /** The addresses at which an app without an engine listens. */
  #addressesOf(app: AppRecord, sockets: readonly ListeningSocket[]): string[] {
    const own = sockets.filter((socket) => this.#mayBelongTo(app, socket));
    return [...new Set(own.map(({ address }) => addressText(address)))];
  }

  async #firstTaken(app: PortUser): Promise<{ port: number; socket: ListeningSocket } | undefined> {
    const ports = resolvePorts(app.manifest, app.settings).filter(({ protocol }) => protocol === "tcp");
    if (ports.length === 0) return undefined;
    const open = await listeners();
    for (const { port } of ports) {
      const [socket] = open.get(port) ?? [];
      if (socket !== undefined) return { port, socket };
    }
    return undefined;
  }

  /** Advice to an app's owner about a port in use: a command with a free port if a setting holds the number. */
  async #freePortAdvice({ id, manifest, settings }: PortUser, port: number): Promise<string> {
    const movable = movablePorts(manifest, settings).find((each) => each.port === port);
    if (movable === undefined) return explainFixedPort(manifest, port);
    const inUse = await this.inUse();
    const free = nextFree(movable, (key) => inUse.has(key));
    const value = free === undefined ? "PORT" : String(free);
    return `use another one: svc settings set ${id} ${shellWord(movable.setting)}=${value}`;
  }

  /** `app "web"`, `app "web" of alice`, `process 12 (node)` or `alice`: no more than the viewer may see. */
  async #describe(socket: ListeningSocket, viewer: Viewer): Promise<string> {
    const { userName } = this.#options;
    const { id, ownerUid, uid } = viewer;
    const holder = this.#visible(viewer).find((app) => app.id !== id && this.#has(app, socket));
    if (holder !== undefined) return this.#nameOf(holder, viewer);
    const process = await findProcess(socket);
    if (process?.name === engineProxy && this.#isStale(socket))
      return "the container engine, although no running container publishes it (restart the engine if that lasts)";
    if (process !== undefined && (ownerUid === 0 || socket.uid === uid))
      return `process ${process.pid} (${process.name})`;
    const name = await userName(socket.uid);
    return name === "" ? `uid ${socket.uid}` : name;
  }

  #visible({ ownerUid }: Viewer): AppRecord[] {
    return this.#options.registry.visible({ uid: ownerUid, root: ownerUid === 0 });
  }

  async #nameOf(app: AppRecord, { ownerUid }: Viewer): Promise<string> {
    const name = `app "${app.id}"`;
    return app.ownerUid === ownerUid ? name : `${name} of ${await this.#options.userName(app.ownerUid)}`;
  }

  /** Whether the engine publishes a port for a container that it does not run: it was killed while it started that. */
  #isStale({ port }: ListeningSocket): boolean {
    const published = this.#options.runtimes.flatMap((runtime) => runtime.publishing?.publishedNow() ?? []);
    return published.length > 0 && published.every((ports) => !ports.has(port));
  }

  /** Whether the app runs with this port, and as the socket's user: containers' ports are held by the engine. */
  #has(app: AppRecord, socket: ListeningSocket): boolean {
    if (!this.#mayBelongTo(app, socket)) return false;
    return resolvePorts(app.manifest, runningSettings(app, true)).some(
      ({ protocol, port }) => protocol === "tcp" && port === socket.port,
    );
  }

  #mayBelongTo(app: AppRecord, socket: ListeningSocket): boolean {
    if (!this.#isUp(app)) return false;
    return socket.uid === (this.#options.runtimeOf(app).images === undefined ? app.runUid : 0);
  }

  #isUp(app: AppRecord): boolean {
    return isUpNow(this.#options.runtimeOf(app).status(app.id));
  }
}

function unlistedPorts(
  listed: readonly ResolvedPort[],
  names: ReadonlyMap<string, string> = new Map(),
): ResolvedPort[] {
  const known = new Set(listed.map(({ port, protocol }) => `${port}/${protocol}`));
  return [...names].flatMap(([key, name]): ResolvedPort[] => {
    const [port = "", protocol = ""] = key.split("/");
    // Engines also publish SCTP, which no list of ports has.
    if (known.has(key) || (protocol !== "tcp" && protocol !== "udp")) return [];
    return [{ name, protocol, port: Number(port) }];
  });
}

/** The TCP sockets that connections to this host get to, by port. */
async function listeners(): Promise<ReadonlyMap<number, readonly ListeningSocket[]>> {
  return parseListeners(await readTables());
}

function readTables(): Promise<string[]> {
  return Promise.all(listenerTables.map(readTable));
}

const boundTables = (["tcp", "udp"] as const).flatMap((protocol) => [
  { protocol, path: `/proc/net/${protocol}` },
  { protocol, path: `/proc/net/${protocol}6` },
]);

async function readBoundPorts({ protocol, path }: (typeof boundTables)[number]): Promise<PortKey[]> {
  return [...boundPorts(await readTable(path), protocol)].map((port): PortKey => `${protocol}/${port}`);
}

async function readTable(path: string): Promise<string> {
  // A kernel without IPv6 has only the table of IPv4.
  return readFile(path, "latin1").catch(() => "");
}

/** `undefined` if this daemon may not see it. */
async function findProcess({
  uid,
  inode,
}: ListeningSocket): Promise<{ pid: string; name: string } | undefined> {
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    try {
      const isRelated = (await stat(`/proc/${pid}`)).uid === uid;
      if (!isRelated || !(await holds(pid, inode))) continue;
      // `/proc/<pid>/comm` is the main thread's name, which the program chooses.
      return { pid, name: basename(await readlink(`/proc/${pid}/exe`)) };
    } catch {
      // The process has ended, or is not accessible.
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
