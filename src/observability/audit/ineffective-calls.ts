/**
 * Keeps calls that changed nothing from filling the audit log: a caller can repeat them as often as they like.
 *
 * The first call of a kind (same caller, method, target and result) is recorded at once. Its repeats become one more record with
 * their number after ten minutes, or when the daemon stops. The kinds of each user have a budget; calls beyond it are only counted,
 * as one record of that user.
 */
import { RateBudget } from "../../lib/rate-budget.ts";
import { trailRecord, type AuditContent } from "./audit-record.ts";

/** The method of the record that represents calls of too many different kinds. */
export const rejectedCallsMethod = "svc.audit/RefusedCalls";

const windowMs = 10 * 60_000;
const sweepIntervalMs = 60_000;
/** Kinds of one user. With the records of repeats, at most 128 at once and 60 an hour: a user's 5,000 records are three days of that. */
const burst = 64;
const refillPerSec = 30 / 3600;

/** Errors of calls that are rejected before they do anything. */
const rejections: ReadonlySet<string> = new Set([
  ...["unauthenticated", "permission_denied", "invalid_argument", "out_of_range", "unimplemented"],
  ...["not_found", "already_exists", "failed_precondition", "aborted", "resource_exhausted"],
]);
/** Reasons with one of those codes that can end work under way. */
const failures: ReadonlySet<string> = new Set(["start_failed", "build_failed", "git_failed", "disk_full"]);

/** Whether a call may have changed something, judged only by its result. */
export function mayHaveEffect({ kind, result, reason }: AuditContent): boolean {
  return kind !== "anonymous" && (!rejections.has(result) || failures.has(reason ?? ""));
}

export interface IneffectiveCallsOptions {
  /** Receives the records that represent several calls. */
  readonly report: (content: AuditContent) => void;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Calls `action` every so often until disposed. */
  readonly every: (intervalMs: number, action: () => void) => Disposable;
}

interface Repeats {
  readonly sinceMs: number;
  readonly last: AuditContent;
  readonly count: number;
}

interface Caller {
  readonly budget: RateBudget;
  /** By the key that repeated calls share. */
  readonly kinds: Map<string, Repeats>;
  /** Number of calls beyond the budget. */
  others: Repeats | undefined;
  /** Unix milliseconds. */
  lastAtMs: number;
}

export class IneffectiveCalls {
  readonly #options: IneffectiveCallsOptions;
  /** By uid. */
  readonly #callers = new Map<number, Caller>();
  #timer: Disposable | undefined;

  constructor(options: IneffectiveCallsOptions) {
    this.#options = options;
  }

  /** Counts a call that changed nothing. `true`: it is recorded by itself. */
  admit(content: AuditContent): boolean {
    const nowMs = this.#options.now();
    const caller = this.#callerOf(content.uid);
    caller.lastAtMs = nowMs;
    const kind = kindOf(content);
    const repeats = caller.kinds.get(kind);
    if (repeats !== undefined) {
      caller.kinds.set(kind, { ...repeats, last: content, count: repeats.count + 1 });
      return false;
    }
    this.#timer ??= this.#options.every(sweepIntervalMs, () => this.#sweep(windowMs));
    if (!caller.budget.take()) {
      const { sinceMs = nowMs, count = 0 } = caller.others ?? {};
      caller.others = { sinceMs, last: content, count: count + 1 };
      return false;
    }
    caller.kinds.set(kind, { sinceMs: nowMs, last: content, count: 0 });
    return true;
  }

  /** Writes the counted calls now. */
  close(): void {
    this.#sweep(-Infinity);
  }

  #callerOf(uid: number): Caller {
    const { now } = this.#options;
    const caller = this.#callers.get(uid) ?? {
      budget: new RateBudget(burst, refillPerSec, now),
      kinds: new Map<string, Repeats>(),
      others: undefined,
      lastAtMs: now(),
    };
    this.#callers.set(uid, caller);
    return caller;
  }

  #sweep(minAgeMs: number): void {
    const nowMs = this.#options.now();
    let isCounting = false;
    for (const [uid, caller] of this.#callers) {
      this.#sweepCaller(caller, ({ sinceMs }) => Math.abs(nowMs - sinceMs) >= minAgeMs);
      if (caller.kinds.size > 0 || caller.others !== undefined) isCounting = true;
      else if (Math.abs(nowMs - caller.lastAtMs) >= (burst / refillPerSec) * 1000) this.#callers.delete(uid);
    }
    if (isCounting) return;
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
  }

  #sweepCaller(caller: Caller, isOver: (repeats: Repeats) => boolean): void {
    const { report } = this.#options;
    for (const [kind, repeats] of caller.kinds) {
      if (!isOver(repeats)) continue;
      caller.kinds.delete(kind);
      if (repeats.count > 0) report({ ...repeats.last, attempts: repeats.count });
    }
    if (caller.others === undefined || !isOver(caller.others)) return;
    const { last, count } = caller.others;
    caller.others = undefined;
    const { time, uid, kind, result } = last;
    report({ ...trailRecord(time, { method: rejectedCallsMethod, result, attempts: count }), uid, kind });
  }
}

/** The key that repeated calls share. */
function kindOf(content: AuditContent): string {
  const { method, protocol, kind, token_digest, address, target, result, reason } = content;
  return JSON.stringify([method, protocol, kind, token_digest, address, target, result, reason]);
}
