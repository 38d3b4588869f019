/** Records ended calls: all are counted, changing calls are also logged and audited. */
import type { Message } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import type { ErrorCode, SvcError } from "../../errors.ts";
import { auditLine, auditTarget, type AuditRecord } from "./audit.ts";
import type { MethodEntry } from "./bound-service.ts";
import { isUnnamedCompression } from "./connect/connect-errors.ts";
import { hasChangedNothing, type UserContext } from "./user-context.ts";
import type { Log } from "../../lib/log.ts";
import { RateBudget } from "../../lib/rate-budget.ts";

/** An ended call, for metrics. */
export interface EndedCall {
  /** Full name; `unknown` for a request that named no method. */
  readonly method: string;
  readonly protocolName: string;
  readonly code: "ok" | ErrorCode;
  /** Absent if the request was rejected before it became a call. */
  readonly durationMs?: number;
}

/** The caller and the protocol. */
export interface RecordedCaller {
  readonly user: UserContext;
  readonly requestId: string;
  readonly protocolName: string;
}

export interface CallRecorderOptions {
  readonly log: Pick<Log, "info" | "error">;
  /** Called for every changing call (without `NO_SIDE_EFFECTS`), including rejected ones. */
  readonly audit?: ((record: AuditRecord) => void) | undefined;
  /** Called for every ended call, including rejected ones. */
  readonly observe?: ((call: EndedCall) => void) | undefined;
}

/**
 * Logged calls of a regular user: at most so many at once, and so many per second. The journal drops lines of a service that logs too
 * much, root's lines included. The audit log has the other calls.
 */
const logged = { atOnce: 256, perSec: 1, noteSecs: 600 };

export class CallRecorder {
  readonly #options: CallRecorderOptions;
  /** By uid. */
  readonly #budgets = new Map<number, { readonly calls: RateBudget; readonly notes: RateBudget }>();

  constructor(options: CallRecorderOptions) {
    this.#options = options;
  }

  /** Records a call that started at `startMs` of `performance.now()`. */
  recordCall(
    entry: MethodEntry,
    caller: RecordedCaller & Pick<HandlerContext, "values">,
    startMs: number,
    request: Message | undefined,
    error?: SvcError,
  ): void {
    const durationMs = performance.now() - startMs;
    const { observe, log } = this.#options;
    observe?.({
      method: entry.name,
      protocolName: caller.protocolName,
      code: error?.code ?? "ok",
      durationMs,
    });
    if (error?.code === "internal" && !isUnnamedCompression(error.cause)) {
      const details = { requestId: caller.requestId, method: entry.name, err: error.cause ?? error };
      log.error(details, "unexpected error in a call");
    }
    if (!entry.isChanging) return;
    const record = {
      ...recordOf(entry, caller, durationMs, request, error),
      ...(error === undefined && hasChangedNothing(caller) && { changedNothing: true }),
    };
    this.#logCall(record);
    this.#audit(record);
  }

  /**
   * Records a request that did not become a call. Not logged, since unauthenticated clients could flood the
   * log; the audit log has attempted changes.
   */
  recordRequest(entry: MethodEntry | undefined, caller: RecordedCaller, error?: SvcError): void {
    const { protocolName } = caller;
    this.#options.observe?.({ method: entry?.name ?? "unknown", protocolName, code: error?.code ?? "ok" });
    if (entry?.isChanging === true) this.#audit(recordOf(entry, caller, 0, undefined, error));
  }

  #logCall(record: AuditRecord): void {
    const { log } = this.#options;
    const { uid, root } = record.user;
    if (root) {
      log.info(auditLine(record), "changing call");
      return;
    }
    const now = (): number => performance.now();
    const budget = this.#budgets.get(uid) ?? {
      calls: new RateBudget(logged.atOnce, logged.perSec, now),
      notes: new RateBudget(1, 1 / logged.noteSecs, now),
    };
    this.#budgets.set(uid, budget);
    if (budget.calls.take()) log.info(auditLine(record), "changing call");
    else if (budget.notes.take()) log.info({ uid }, "too many changing calls to log; see the audit log");
  }

  #audit(record: AuditRecord): void {
    try {
      this.#options.audit?.(record);
    } catch (err) {
      const { requestId, method } = record;
      this.#options.log.error({ requestId, method, err }, "failed to record a call in the audit log");
    }
  }
}

function recordOf(
  { name }: MethodEntry,
  { user, requestId, protocolName }: RecordedCaller,
  durationMs: number,
  request: Message | undefined,
  error: SvcError | undefined,
): AuditRecord {
  return {
    requestId,
    method: name,
    protocolName,
    user,
    target: auditTarget(request),
    result: error?.code ?? "ok",
    ...(error === undefined ? {} : { reason: error.reason }),
    durationMs: Math.round(durationMs),
  };
}
