/** The host's processes and listening ports, as far as the caller may see them, with the container and the app of each. */
import { readFile } from "node:fs/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ListeningPortSchema } from "../../../gen/svc/v1/monitor_pb.ts";
import type { ListProcessesResponseSchema, ProcessSchema } from "../../../gen/svc/v1/process_pb.ts";
import type { ListProcessesRequestSort } from "../../../gen/svc/v1/values.ts";
import type { ContainerRecord } from "../../engine/container-record.ts";
import { readBootTimeMs } from "../../sys/process-identity.ts";
import { mapBounded } from "../../lib/map-bounded.ts";
import type { HostThread } from "./host-thread.ts";
import type { HostProcess, HostSocket, ProcessOwner } from "./process-questions.ts";

/** The caller. */
interface Caller {
  readonly uid: number;
  /** True: may see all processes. */
  readonly root: boolean;
}

/** A running container, and the app that it belongs to. */
export interface OwnedContainer {
  readonly container: Pick<ContainerRecord, "id" | "name" | "ports">;
  readonly appId?: string;
}

export interface HostProcessesOptions {
  thread: HostThread;
  /** Running containers; empty while the engine cannot be reached. */
  containers: (signal: AbortSignal) => Promise<readonly OwnedContainer[]>;
  /** IDs of the apps that the caller may see. */
  visibleApps: (caller: Caller) => ReadonlySet<string>;
  /** The name of a uid; empty if the host has none. */
  userName: (uid: number) => Promise<string>;
}

export interface ListQuestion {
  readonly kernelThreads: boolean;
  readonly sort: ListProcessesRequestSort;
  readonly limit: number;
  readonly offset: number;
}

const ticksPerSecond = 100;
const namesAtOnce = 8;

const orders: Readonly<Record<ListProcessesRequestSort, (a: HostProcess, b: HostProcess) => number>> = {
  pid: (a, b) => a.pid - b.pid,
  cpu: (a, b) => b.cpuPercent - a.cpuPercent || a.pid - b.pid,
  memory: (a, b) => b.rssBytes - a.rssBytes || a.pid - b.pid,
  start: (a, b) => b.startTicks - a.startTicks || b.pid - a.pid,
};

/** Thousands of processes are received, joined and written in separate turns of the event loop, so that other calls run in between. */
export class HostProcesses {
  readonly #options: HostProcessesOptions;

  constructor(options: HostProcessesOptions) {
    this.#options = options;
  }

  /** @throws SvcError see {@link HostThread.ask} */
  async list(
    { kernelThreads, sort, limit, offset }: ListQuestion,
    caller: Caller,
    signal: AbortSignal,
  ): Promise<MessageInitShape<typeof ListProcessesResponseSchema>> {
    const { thread } = this.#options;
    const [all, owners, bootedAtMs, hidesOthers] = await Promise.all([
      thread.ask("processes", signal),
      this.#owners(caller, signal),
      readBootTimeMs(),
      caller.root ? false : procHidesOthers(),
    ]);
    await nextTurn();
    const seen = all.filter(
      ({ isKernelThread, uid }) => (kernelThreads || !isKernelThread) && (!hidesOthers || uid === caller.uid),
    );
    const page = seen.toSorted(orders[sort]).slice(offset, offset + limit);
    const names = await this.#names(page);
    const processes = page.map((process): MessageInitShape<typeof ProcessSchema> => {
      const { pid, parentPid, name, command, cpuPercent, rssBytes, uid, state, startTicks } = process;
      return {
        ...{ pid, parentPid, name, command, cpuPercent, state },
        rssBytes: BigInt(rssBytes),
        user: names.get(uid) ?? String(uid),
        startedAt: timestampFromMs(bootedAtMs + (startTicks * 1000) / ticksPerSecond),
        startTicks: BigInt(startTicks),
        kernelThread: process.isKernelThread,
        ...owners.of(process),
      };
    });
    await nextTurn();
    return { processes, total: seen.length };
  }

  /** By port, protocol and address. @throws SvcError see {@link HostThread.ask} */
  async listening(
    caller: Caller,
    signal: AbortSignal,
  ): Promise<MessageInitShape<typeof ListeningPortSchema>[]> {
    const [sockets, owners] = await Promise.all([
      this.#options.thread.ask("sockets", signal),
      this.#owners(caller, signal),
    ]);
    await nextTurn();
    const names = await this.#names(sockets);
    const ports = sockets.map((socket): MessageInitShape<typeof ListeningPortSchema> => {
      const { protocol, address, port, uid, owner } = socket;
      // Only its user may see the open files of a process (ptrace(2)).
      const isShown = owner !== undefined && (caller.root || owner.uid === caller.uid);
      return {
        ...{ protocol, address, port },
        user: names.get(uid) ?? String(uid),
        ...(isShown && { pid: owner.pid, process: owner.name }),
        ...owners.ofSocket(socket),
      };
    });
    await nextTurn();
    return ports;
  }

  async #owners(caller: Caller, signal: AbortSignal): Promise<Owners> {
    const { containers, visibleApps } = this.#options;
    return new Owners(await containers(signal), caller.root ? undefined : visibleApps(caller));
  }

  async #names(all: readonly { uid: number }[]): Promise<ReadonlyMap<number, string>> {
    const uids = [...new Set(all.map(({ uid }) => uid))];
    const names = await mapBounded(uids, namesAtOnce, (uid) => this.#options.userName(uid));
    return new Map(uids.map((uid, at) => [uid, names[at] === "" ? String(uid) : (names[at] ?? String(uid))]));
  }
}

interface Names {
  container?: string;
  appId?: string;
}

/** The container and the app of a process or socket, as far as the caller may see them. */
class Owners {
  /** IDs of the apps that the caller may see; undefined: all. */
  readonly #visible: ReadonlySet<string> | undefined;
  readonly #byId: ReadonlyMap<string, OwnedContainer>;
  readonly #byPort: ReadonlyMap<string, OwnedContainer>;

  constructor(containers: readonly OwnedContainer[], visible: ReadonlySet<string> | undefined) {
    this.#visible = visible;
    this.#byId = new Map(containers.map((owned) => [owned.container.id, owned]));
    this.#byPort = new Map(
      containers.flatMap((owned) =>
        owned.container.ports.flatMap(({ protocol, hostPort, hostAddress }) =>
          hostPort === undefined ? [] : [[portKey(protocol, hostPort, hostAddress), owned] as const],
        ),
      ),
    );
  }

  of({ appId, containerId }: Pick<ProcessOwner, "appId" | "containerId">): Names {
    if (appId !== undefined) return this.#visible?.has(appId) === false ? {} : { appId };
    return this.#named(this.#byId.get(containerId ?? ""));
  }

  /** The engine itself listens on the ports that it publishes. */
  ofSocket({ protocol, port, address, owner }: HostSocket): Names {
    const own = owner === undefined ? {} : this.of(owner);
    if (own.appId !== undefined || own.container !== undefined || this.#byPort.size === 0) return own;
    return this.#named(this.#byPort.get(portKey(protocol, port, address)));
  }

  #named(owned: OwnedContainer | undefined): Names {
    if (owned === undefined) return {};
    const { container, appId } = owned;
    if (this.#visible !== undefined && (appId === undefined || !this.#visible.has(appId))) return {};
    return { container: container.name, ...(appId !== undefined && { appId }) };
  }
}

/** Engines write the address of all interfaces in different ways. */
function portKey(protocol: string, port: number, address = ""): string {
  const isAny = ["", "0.0.0.0", "::"].includes(address);
  return `${protocol} ${isAny ? "*" : address} ${port}`;
}

/** Whether `/proc` is mounted so that users see only their own processes (proc(5), `hidepid`). */
async function procHidesOthers(): Promise<boolean> {
  const mounts = await readFile("/proc/self/mountinfo", "utf8");
  const options = mounts.split("\n").findLast((line) => / \/proc .* - proc /.test(line)) ?? "";
  const hidepid = /\bhidepid=(\w+)/.exec(options)?.[1] ?? "0";
  return hidepid !== "0" && hidepid !== "off";
}
