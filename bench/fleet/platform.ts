/** A platform as `docs/platform.md` wants it, or as it should not be: what it asks of each of its nodes, and how it comes back. */
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { EventService } from "../../gen/svc/v1/event_pb.ts";
import { MonitorService } from "../../gen/svc/v1/monitor_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";

/** Where a node is: through its socket, or its TCP listener with a token. */
export type NodeAddress = { readonly socket: string } | { readonly port: number; readonly token: string };

/** Jobs of one push. */
export const pushedJobs = 20;
/** Calls of one {@link NodeLink.round}. */
export const callsPerRound = 3;
const deadlineMs = 30_000;

/** The one connection that a platform has to a node. */
export class NodeLink implements Disposable {
  readonly #session: Http2SessionManager;
  readonly #transport: Transport;
  #told = 0;

  constructor(address: NodeAddress) {
    const baseUrl = "port" in address ? `http://127.0.0.1:${address.port}` : "http://localhost";
    const options = "socket" in address ? { createConnection: () => connect(address.socket) } : {};
    this.#session = new Http2SessionManager(baseUrl, {}, options);
    const token = "token" in address ? address.token : undefined;
    this.#transport = createGrpcTransport({
      baseUrl,
      sessionManager: this.#session,
      interceptors: [
        (next) => (request) => {
          if (token !== undefined) request.header.set("authorization", `Bearer ${token}`);
          return next(request);
        },
      ],
    });
  }

  /** How many events it was told of, those that its streams began with among them. */
  get told(): number {
    return this.#told;
  }

  /** What a platform asks now and then: whether the node can take jobs, the push of all of them, and how the host is. */
  async round(revision = 0): Promise<void> {
    await this.status();
    await this.push(revision);
    await this.metrics();
  }

  /** Resolves once the node answers a round: one that has just started has no metrics yet. */
  async untilReady(): Promise<void> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        await this.round();
        return;
      } catch (error) {
        if (attempt > 8) throw error;
        await sleep(backOffMs(attempt, 1_000));
      }
    }
  }

  /** @param revision another one is another push of the same jobs */
  async push(revision: number): Promise<void> {
    const schedules = Array.from({ length: pushedJobs }, (_, at) => ({
      id: `platform-${at}`,
      trigger: `${at} 4 1 1 *`,
      comment: `push ${revision}`,
      action: { type: "shell", command: "true" },
    }));
    const request = { managedBy: "platform", schedules };
    await createClient(ScheduleService, this.#transport).replaceManagedSchedules(request, {
      timeoutMs: deadlineMs,
    });
  }

  async status(): Promise<void> {
    const options = { timeoutMs: deadlineMs };
    const { capabilities } = await createClient(DaemonService, this.#transport).getStatus({}, options);
    if (!capabilities.includes("schedules")) throw new Error("the node takes no schedules");
  }

  async metrics(): Promise<void> {
    await createClient(MonitorService, this.#transport).getSystemMetrics({}, { timeoutMs: deadlineMs });
  }

  /** Resolves once the stream has begun; its events are read until `signal` aborts. */
  async follow(signal: AbortSignal): Promise<void> {
    const events = createClient(EventService, this.#transport).streamEvents({}, { signal });
    const reader = events[Symbol.asyncIterator]();
    await reader.next();
    this.#told += 1;
    void (async () => {
      try {
        while ((await reader.next()).done !== true) this.#told += 1;
      } catch {
        // It has been ended, as it shall be.
      }
    })();
  }

  [Symbol.dispose](): void {
    this.#session.abort();
  }
}

/** So long a platform waits before it tries again: by chance, so that all nodes are not met at once. @param attempt from 0 */
export function backOffMs(attempt: number, capMs: number): number {
  const fullMs = Math.min(capMs, 1_000 * 2 ** attempt);
  return fullMs * (0.5 + Math.random() / 2);
}

/**
 * Many platforms' worth of links come to one node: each connects, follows and asks once, as after an outage.
 * @param withinMs they are spread over so long; 0: all at once
 */
export async function comeBack(address: NodeAddress, links: number, withinMs: number): Promise<void> {
  const ended = new AbortController();
  const come = async (): Promise<void> => {
    using link = new NodeLink(address);
    if (withinMs > 0) await sleep(Math.random() * withinMs);
    for (let attempt = 0; ; attempt += 1) {
      try {
        await link.follow(ended.signal);
        await link.round();
        return;
      } catch (error) {
        if (attempt > 8) throw error;
        await sleep(backOffMs(attempt, 4_000) * (withinMs > 0 ? 1 : 0.01));
      }
    }
  };
  await Promise.all(Array.from({ length: links }, come));
  ended.abort();
}
