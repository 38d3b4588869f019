/** Responses of GetStatus, which monitors request every few seconds. */
import { hostname } from "node:os";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { GetStatusResponseSchema, Listener } from "../../../gen/svc/v1/daemon_pb.ts";
import type { Alert } from "../../observability/alerts/alert-store.ts";
import type { EngineCondition } from "../../engine/engine-probe.ts";
import type { AppCounts } from "../../apps/records/app-counters.ts";
import type { UserContext } from "../rpc/user-context.ts";

export interface DaemonFacts {
  version: string;
  mode: "system" | "user";
  /** The name of a uid; empty for none. Never rejects. */
  userName: (uid: number) => Promise<string>;
  startedAtMs: number;
  configFile: string;
  storeDirectory: string;
  /** Where the daemon writes its log: `journal`, the path of a file, or empty if unknown. */
  log: string;
  engine: { readonly socket: string; condition: () => Promise<EngineCondition> };
  /** Sorted. */
  enforcedLimits: readonly string[];
  /** Only root sees the reasons. */
  listeners: () => readonly Omit<Listener, "$typeName">[];
}

export class StatusResponses {
  readonly #facts: DaemonFacts;
  /** Set once all services are bound. */
  #capabilities: readonly string[] = [];

  constructor(facts: DaemonFacts) {
    this.#facts = facts;
  }

  /** Sets the capabilities of later responses. */
  announce(capabilities: readonly string[]): void {
    this.#capabilities = capabilities;
  }

  /**
   * @param user the name of the caller
   * @param alerts those visible to the caller
   */
  async of(
    { uid, root }: UserContext,
    user: string,
    apps: AppCounts,
    alerts: readonly Alert[],
  ): Promise<MessageInitShape<typeof GetStatusResponseSchema>> {
    const { version, mode, startedAtMs, listeners, configFile, storeDirectory, log, engine, enforcedLimits } =
      this.#facts;
    return {
      version,
      capabilities: [...this.#capabilities],
      apps,
      mode,
      hostname: hostname(),
      startedAt: timestampFromMs(startedAtMs),
      caller: { uid, user, root },
      alerts: alerts.map(({ rule, subject, message, firedAtMs }) => ({
        ...{ name: rule, subject, message },
        since: timestampFromMs(firedAtMs),
      })),
      listeners: listeners().map((listener) => (root ? listener : { ...listener, reason: "" })),
      ...{ configFile, storeDirectory, log, enforcedLimits: [...enforcedLimits] },
      engine: { socket: engine.socket, state: await engine.condition() },
    };
  }
}
