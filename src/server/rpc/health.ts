/**
 * The standard health service (grpc.health.v1), for gRPC health checks and load balancers. It needs no
 * identity, because it reveals only the names of services.
 */
import { SvcError, notFound } from "../../errors.ts";
import { Health, HealthCheckResponse_ServingStatus as Status } from "../../../gen/health/v1/health_pb.ts";
import { Tally } from "../../lib/tally.ts";
import { userOf } from "./user-context.ts";
import { implement, publicPolicy, type BoundService } from "./bound-service.ts";

/** Watchers need no identity, so their number is limited. */
const defaultMaxWatchers = 200;
/**
 * Per uid other than root, and for all TCP clients together. Only root can use the last {@link rootReserve}.
 */
const maxWatchersPerPeer = 50;
const rootReserve = 20;

export class HealthState {
  readonly #names: ReadonlySet<string>;
  readonly #maxWatchers: number;
  #isStopping = false;
  #watchers = 0;
  /** By uid; undefined for TCP. */
  readonly #watchersOf = new Tally<number | undefined>();
  readonly #changed = Promise.withResolvers<undefined>();

  /** @param names full names of the services; the empty name means the whole daemon */
  constructor(names: Iterable<string>, maxWatchers = defaultMaxWatchers) {
    this.#names = new Set(["", ...names]);
    this.#maxWatchers = maxWatchers;
  }

  /** Reports NOT_SERVING from now on. Resolves when watchers have been notified. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    this.#changed.resolve(undefined);
    // The watchers' streams write in later turns of the event loop.
    await new Promise((resolve) => setTimeout(resolve, this.#watchers === 0 ? 0 : 10));
  }

  /** SERVICE_UNKNOWN for an unknown name. */
  statusOf(name: string): Status {
    if (!this.#names.has(name)) return Status.SERVICE_UNKNOWN;
    return this.#isStopping ? Status.NOT_SERVING : Status.SERVING;
  }

  get statuses(): Record<string, { status: Status }> {
    return Object.fromEntries(Array.from(this.#names, (name) => [name, { status: this.statusOf(name) }]));
  }

  /**
   * Yields the current status and each later one.
   * @param peerUid of a client on the socket; undefined for TCP
   * @throws SvcError `too_many`
   */
  async *watch(name: string, signal: AbortSignal, peerUid?: number): AsyncGenerator<Status> {
    this.#checkLimits(peerUid);
    this.#watchers++;
    this.#watchersOf.change(peerUid, 1);
    try {
      const aborted = new Promise<undefined>((resolve) => {
        signal.addEventListener("abort", () => resolve(undefined), { once: true });
      });
      let last = this.statusOf(name);
      yield last;
      // The status changes only once, at shutdown.
      if (!this.#isStopping) await Promise.race([this.#changed.promise, aborted]);
      if (this.statusOf(name) !== last) yield (last = this.statusOf(name));
      // The stream stays open until the client ends it.
      await aborted;
    } finally {
      this.#watchers--;
      this.#watchersOf.change(peerUid, -1);
    }
  }

  #checkLimits(peerUid: number | undefined): void {
    const isRoot = peerUid === 0;
    const max = isRoot ? this.#maxWatchers : this.#maxWatchers - rootReserve;
    if (this.#watchers < max && (isRoot || this.#watchersOf.of(peerUid) < maxWatchersPerPeer)) return;
    throw new SvcError(
      "too_many",
      `cannot watch the daemon's health: at most ${maxWatchersPerPeer} clients per user and ${max} in total may watch it; use Check`,
    );
  }
}

export function bindHealth(health: HealthState): BoundService {
  return implement(
    "grpc.health.v1.Health",
    () => Health,
    {
      check: ({ service }) => {
        const status = health.statusOf(service);
        if (status === Status.SERVICE_UNKNOWN) throw notFound("service", service);
        return { status };
      },
      list: () => ({ statuses: health.statuses }),
      watch: async function* ({ service }, context) {
        const { peerUid } = userOf(context);
        for await (const status of health.watch(service, context.signal, peerUid)) yield { status };
      },
    },
    publicPolicy,
  );
}
