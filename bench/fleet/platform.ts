/**
 * A platform as `docs/platform.md` describes it, or a faulty one: its requests to each of its nodes, and its
 * reconnects.
 */
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { EventService } from "../../gen/svc/v1/event_pb.ts";
import { MonitorService } from "../../gen/svc/v1/monitor_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";

/** The address of a node: its socket, or its TCP listener with a token. */
export type NodeAddress = { readonly socket: string } | { readonly port: number; readonly token: string };

/** Jobs of one push. */
export const pushedJobs = 20;
/** Calls of one {@link NodeLink.round}. */
export const callsPerRound = 3;
const deadlineMs = 30_000;

/** The one connection of a platform to a node. */
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

  /** The number of received events, including those that its streams started with. */
  get told(): number {
    return this.#told;
  }

  /** A platform's regular requests: whether the node accepts jobs, the push of all of them, and the host's metrics. */
  async round(revision = 0): Promise<void> {
    await this.status();
    await this.push(revision);
    await this.metrics();
  }

  /** Resolves once the node completes a round: one that has just started has no metrics yet. */
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

  /** @param revision a different one is a different push of the same jobs */
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

  /** Resolves once the stream has started; its events are read until `signal` aborts. */
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

/**
 * The delay before a platform's next attempt: random, so that not all nodes are contacted at once. @param attempt from
 * 0
 */
export function backOffMs(attempt: number, capMs: number): number {
  const fullMs = Math.min(capMs, 1_000 * 2 ** attempt);
  return fullMs * (0.5 + Math.random() / 2);
}

/**
 * The links of many platforms reconnect to one node: each connects, follows and sends one request, as after an outage.
 * @param withinMs they are spread over this time; 0: all at once
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
