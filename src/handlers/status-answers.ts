/**
 * The answers to GetStatus, each kept until something in it is another: monitors ask every few seconds, for all of a
 * daemon's life. They are cacheable.
 */
import { hostname } from "node:os";
import { isDeepStrictEqual } from "node:util";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { GetStatusResponseSchema, type GetStatusResponse } from "../../gen/svc/v1/daemon_pb.ts";
import type { Alert } from "../alerts/alert-store.ts";
import type { AppCounts } from "../apps/app-counters.ts";
import { cacheable } from "../lib/cacheable.ts";
import type { UserContext } from "../rpc/user-context.ts";

export interface DaemonFacts {
  version: string;
  mode: "system" | "user";
  /** The name of a uid; empty for none. Never rejects. */
  userName: (uid: number) => Promise<string>;
  startedAtMs: number;
  /** Known once every service is bound. */
  capabilities: () => readonly string[];
}

/** An answer and what may change in it. */
interface MadeAnswer {
  readonly apps: AppCounts;
  readonly alerts: readonly Alert[];
  readonly hostname: string;
  readonly answer: GetStatusResponse;
}

/** Callers whose answers are kept. */
const maxCallers = 64;
/** How long the host's name is taken for the same; asking the kernel each time is a twentieth of a call. */
const nameFreshMs = 1_000;

export interface StatusHost {
  readonly hostname: () => string;
  /** Milliseconds that never go back. */
  readonly now: () => number;
}

const thisHost: StatusHost = { hostname, now: () => performance.now() };

export class StatusAnswers {
  readonly #facts: DaemonFacts;
  readonly #host: StatusHost;
  readonly #made = new Map<string, MadeAnswer>();
  #name = "";
  #nameUntilMs = Number.NEGATIVE_INFINITY;

  constructor(facts: DaemonFacts, host = thisHost) {
    this.#facts = facts;
    this.#host = host;
  }

  /**
   * @param user the name of the caller
   * @param apps the same object for as long as the counts are the same, as are `alerts`, what the caller may see of them
   */
  of({ uid, root }: UserContext, user: string, apps: AppCounts, alerts: readonly Alert[]): GetStatusResponse {
    const key = `${uid} ${String(root)} ${user}`;
    const made = this.#made.get(key);
    const name = this.#hostname();
    if (made?.apps === apps && made.hostname === name && isDeepStrictEqual(made.alerts, alerts))
      return made.answer;
    const { version, mode, startedAtMs, capabilities } = this.#facts;
    const answer = cacheable(
      create(GetStatusResponseSchema, {
        version,
        capabilities: [...capabilities()],
        apps,
        mode,
        hostname: name,
        startedAt: timestampFromMs(startedAtMs),
        caller: { uid, user, root },
        alerts: alerts.map(({ rule, subject, message, firedAtMs }) => ({
          ...{ name: rule, subject, message },
          since: timestampFromMs(firedAtMs),
        })),
      }),
    );
    if (this.#made.size >= maxCallers) this.#made.clear();
    this.#made.set(key, { apps, alerts, hostname: name, answer });
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
