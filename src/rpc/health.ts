/**
 * The standard health service (grpc.health.v1), for gRPC's own health checks and for load balancers. It answers without an
 * identity (D8): which services there are is no secret, and nothing else is told.
 */
import { SvcError, notFound } from "../errors.ts";
import { Health, HealthCheckResponse_ServingStatus as Status } from "../../gen/health/v1/health_pb.ts";
import { implement, openToEverybody, type BoundService } from "./bound-service.ts";

/** Watchers need no identity, so their number has a bound. */
const defaultMaxWatchers = 200;

export class HealthState {
  readonly #names: ReadonlySet<string>;
  readonly #maxWatchers: number;
  #isStopping = false;
  #watchers = 0;
  readonly #changed = Promise.withResolvers<undefined>();

  /** @param names full names of the services; the empty name stands for the daemon as a whole */
  constructor(names: Iterable<string>, maxWatchers = defaultMaxWatchers) {
    this.#names = new Set(["", ...names]);
    this.#maxWatchers = maxWatchers;
  }

  /** From now on nothing is serving. Resolves when those who watch have been told. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    this.#changed.resolve(undefined);
    // Their streams write in the turns after this one.
    await new Promise((resolve) => setTimeout(resolve, this.#watchers === 0 ? 0 : 10));
  }

  /** SERVICE_UNKNOWN for a name that nobody has. */
  statusOf(name: string): Status {
    if (!this.#names.has(name)) return Status.SERVICE_UNKNOWN;
    return this.#isStopping ? Status.NOT_SERVING : Status.SERVING;
  }

  get statuses(): Record<string, { status: Status }> {
    return Object.fromEntries(Array.from(this.#names, (name) => [name, { status: this.statusOf(name) }]));
  }

  /** The status now, and each later one. @throws SvcError `too_many` */
  async *watch(name: string, signal: AbortSignal): AsyncGenerator<Status> {
    if (this.#watchers >= this.#maxWatchers) {
      const message = `${this.#watchers} clients watch the daemon's health already; use Check`;
      throw new SvcError("too_many", message);
    }
    this.#watchers++;
    try {
      const aborted = new Promise<undefined>((resolve) => {
        signal.addEventListener("abort", () => resolve(undefined), { once: true });
      });
      let last = this.statusOf(name);
      yield last;
      // The one change of a daemon's life is its end.
      if (!this.#isStopping) await Promise.race([this.#changed.promise, aborted]);
      if (this.statusOf(name) !== last) yield (last = this.statusOf(name));
      // Whoever watches goes on until the stream ends.
      await aborted;
    } finally {
      this.#watchers--;
    }
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
      watch: async function* ({ service }, { signal }) {
        for await (const status of health.watch(service, signal)) yield { status };
      },
    },
    openToEverybody,
  );
}
