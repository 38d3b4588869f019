/** Records ended calls: all are counted, changing calls are also logged and audited. */
import type { Message } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import type { ErrorCode, SvcError } from "../../errors.ts";
import { auditLine, auditTarget, type AuditRecord } from "./audit.ts";
import type { MethodEntry } from "./bound-service.ts";
import { isUnnamedCompression } from "./connect/connect-errors.ts";
import { hasChangedNothing, type UserContext } from "./user-context.ts";
import type { Log } from "../../lib/log.ts";

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

export class CallRecorder {
  readonly #options: CallRecorderOptions;

  constructor(options: CallRecorderOptions) {
    this.#options = options;
  }

  /** Records a call that started at `startMs` of `performance.now()`. */
  ended(
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
    log.info(auditLine(record), "changing call");
    this.#audit(record);
  }

  /**
   * Records a request that did not become a call. Not logged, since unauthenticated clients could flood the
   * log; the audit trail has attempted changes.
   */
  answered(entry: MethodEntry | undefined, caller: RecordedCaller, error?: SvcError): void {
    const { protocolName } = caller;
    this.#options.observe?.({ method: entry?.name ?? "unknown", protocolName, code: error?.code ?? "ok" });
    if (entry?.isChanging === true) this.#audit(recordOf(entry, caller, 0, undefined, error));
  }

  #audit(record: AuditRecord): void {
    try {
      this.#options.audit?.(record);
    } catch (err) {
      const { requestId, method } = record;
      this.#options.log.error({ requestId, method, err }, "failed to record a call in the audit trail");
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
