/** Caches responses of GetStatus until their content changes, because monitors poll every few seconds. */
import { hostname } from "node:os";
import { isDeepStrictEqual } from "node:util";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  GetStatusResponseSchema,
  type GetStatusResponse,
  type Listener,
} from "../../../gen/svc/v1/daemon_pb.ts";
import type { Alert } from "../../observability/alerts/alert-store.ts";
import type { AppCounts } from "../../apps/records/app-counters.ts";
import { cacheable } from "../../lib/freeze.ts";
import type { UserContext } from "../rpc/user-context.ts";

export interface DaemonFacts {
  version: string;
  mode: "system" | "user";
  /** The name of a uid; empty for none. Never rejects. */
  userName: (uid: number) => Promise<string>;
  startedAtMs: number;
  /** Only root sees the reasons. */
  listeners: () => readonly Omit<Listener, "$typeName">[];
}

/** A response with its variable inputs. */
interface CachedResponse {
  readonly apps: AppCounts;
  readonly alerts: readonly Alert[];
  readonly hostname: string;
  readonly listeners: readonly Omit<Listener, "$typeName">[];
  readonly answer: GetStatusResponse;
}

/** Number of callers with cached responses. */
const maxCallers = 64;
/** Milliseconds to cache the host name; asking the kernel takes a twentieth of the time of a call. */
const nameFreshMs = 1_000;

export interface StatusHost {
  readonly hostname: () => string;
  /** Monotonic milliseconds. */
  readonly now: () => number;
}

const thisHost: StatusHost = { hostname, now: () => performance.now() };

export class StatusResponses {
  readonly #facts: DaemonFacts;
  readonly #host: StatusHost;
  readonly #made = new Map<string, CachedResponse>();
  /** Set once all services are bound. */
  #capabilities: readonly string[] = [];
  #name = "";
  #nameUntilMs = Number.NEGATIVE_INFINITY;

  constructor(facts: DaemonFacts, host = thisHost) {
    this.#facts = facts;
    this.#host = host;
  }

  /** Sets the capabilities of later responses. */
  announce(capabilities: readonly string[]): void {
    this.#capabilities = capabilities;
  }

  /**
   * @param user the name of the caller
   * @param apps the same object while the counts are unchanged; likewise `alerts`, the alerts visible to the
   * caller
   */
  of({ uid, root }: UserContext, user: string, apps: AppCounts, alerts: readonly Alert[]): GetStatusResponse {
    const key = `${uid} ${String(root)} ${user}`;
    const made = this.#made.get(key);
    const name = this.#hostname();
    const served = this.#facts.listeners();
    const listeners = root ? served : served.map((listener) => ({ ...listener, reason: "" }));
    if (
      made?.apps === apps &&
      made.hostname === name &&
      isDeepStrictEqual(made.alerts, alerts) &&
      isDeepStrictEqual(made.listeners, listeners)
    )
      return made.answer;
    const { version, mode, startedAtMs } = this.#facts;
    const answer = cacheable(
      create(GetStatusResponseSchema, {
        version,
        capabilities: [...this.#capabilities],
        apps,
        mode,
        hostname: name,
        startedAt: timestampFromMs(startedAtMs),
        caller: { uid, user, root },
        alerts: alerts.map(({ rule, subject, message, firedAtMs }) => ({
          ...{ name: rule, subject, message },
          since: timestampFromMs(firedAtMs),
        })),
        listeners: [...listeners],
      }),
    );
    if (this.#made.size >= maxCallers) this.#made.clear();
    this.#made.set(key, { apps, alerts, hostname: name, listeners, answer });
    return answer;
  }

  #hostname(): string {
    const nowMs = this.#host.now();
    if (nowMs >= this.#nameUntilMs) {
      this.#name = this.#host.hostname();
      this.#nameUntilMs = nowMs + nameFreshMs;
    }
    return this.#name;
  }
}
