/** What is noted of a call that has ended: it is counted, and when it was to change something logged and audited. */
import type { Message } from "@bufbuild/protobuf";
import type { ErrorCode, SvcError } from "../errors.ts";
import { auditLine, auditTarget, type AuditRecord } from "./audit.ts";
import type { MethodEntry } from "./bound-service.ts";
import type { UserContext } from "./user-context.ts";
import type { Log } from "../lib/log.ts";

/** A call that has ended, for those who count. */
export interface EndedCall {
  /** Full name; `unknown` for a request that named no method. */
  readonly method: string;
  readonly protocolName: string;
  readonly code: "ok" | ErrorCode;
  /** Absent when the request was answered before it became a call. */
  readonly durationMs?: number;
}

/** Who called, and how. */
export interface NotedCaller {
  readonly user: UserContext;
  readonly requestId: string;
  readonly protocolName: string;
}

export interface CallNotesOptions {
  readonly log: Pick<Log, "info" | "error">;
  /** Takes one record for every changing call (those without `NO_SIDE_EFFECTS`), refused ones included. */
  readonly audit?: ((record: AuditRecord) => void) | undefined;
  /** Hears of every call that has ended, refused ones included. */
  readonly observe?: ((call: EndedCall) => void) | undefined;
}

export class CallNotes {
  readonly #options: CallNotesOptions;

  constructor(options: CallNotesOptions) {
    this.#options = options;
  }

  /** A call, from `startMs` of `performance.now()` until now. */
  ended(
    entry: MethodEntry,
    caller: NotedCaller,
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
    if (error?.code === "internal") {
      const details = { requestId: caller.requestId, method: entry.name, err: error.cause ?? error };
      log.error(details, "a call failed unexpectedly");
    }
    if (!entry.isChanging) return;
    const record = recordOf(entry, caller, durationMs, request, error);
    log.info(auditLine(record), "changing call");
    this.#audit(record);
  }

  /**
   * A request that was answered without becoming a call. Not logged: strangers would fill the log, and the audit trail
   * has what they tried.
   */
  answered(entry: MethodEntry | undefined, caller: NotedCaller, error?: SvcError): void {
    const { protocolName } = caller;
    this.#options.observe?.({ method: entry?.name ?? "unknown", protocolName, code: error?.code ?? "ok" });
    if (entry?.isChanging === true) this.#audit(recordOf(entry, caller, 0, undefined, error));
  }

  #audit(record: AuditRecord): void {
    try {
      this.#options.audit?.(record);
    } catch (err) {
      const { requestId, method } = record;
      this.#options.log.error({ requestId, method, err }, "the audit record was not taken");
    }
  }
}

function recordOf(
  { name }: MethodEntry,
  { user, requestId, protocolName }: NotedCaller,
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
