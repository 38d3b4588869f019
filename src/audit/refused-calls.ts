/**
 * Keeps refused calls from filling the audit trail, or from pushing out of it what was done: anybody who reaches a door can
 * try as often as they like.
 *
 * The first try of a kind is a record at once. Those that repeat it (the same caller, method, target and result) are one
 * more record with their number, when ten minutes are over or the daemon stops. How many kinds there may be is bounded
 * too: whoever varies what they try uses up a budget, and beyond it tries are only counted together.
 */
import { RateBudget } from "../lib/rate-budget.ts";
import { trailRecord, type AuditContent } from "./audit-record.ts";

/** The method of the record that stands for refused calls that were too many to be told apart. */
export const refusedCallsMethod = "svc.audit/RefusedCalls";

const windowMs = 10 * 60_000;
const sweepIntervalMs = 60_000;
/** With the records of repeats, at most 128 at once and 60 an hour: a trail of 50,000 is a month of that. */
const burst = 64;
const refillPerSec = 30 / 3600;

export interface RefusedCallsOptions {
  /** Takes the records that stand for several calls. */
  readonly tell: (content: AuditContent) => void;
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

export class RefusedCalls {
  readonly #options: RefusedCallsOptions;
  readonly #budget: RateBudget;
  /** By what the calls have in common. */
  readonly #windows = new Map<string, Repeats>();
  #others: Repeats | undefined;
  #timer: Disposable | undefined;

  constructor(options: RefusedCallsOptions) {
    this.#options = options;
    this.#budget = new RateBudget(burst, refillPerSec, options.now);
  }

  /** Whether a call was refused for who its caller is, or is not. */
  static isRefused({ kind, result }: AuditContent): boolean {
    return kind === "anonymous" || result === "unauthenticated" || result === "permission_denied";
  }

  /** Counts a refused call. `true` when it is to be a record of its own. */
  admit(content: AuditContent): boolean {
    const nowMs = this.#options.now();
    const key = kindOf(content);
    const repeats = this.#windows.get(key);
    if (repeats !== undefined) {
      this.#windows.set(key, { ...repeats, last: content, count: repeats.count + 1 });
      return false;
    }
    this.#timer ??= this.#options.every(sweepIntervalMs, () => this.#sweep(windowMs));
    if (!this.#budget.take()) {
      const { sinceMs = nowMs, count = 0 } = this.#others ?? {};
      this.#others = { sinceMs, last: content, count: count + 1 };
      return false;
    }
    this.#windows.set(key, { sinceMs: nowMs, last: content, count: 0 });
    return true;
  }

  /** Tells at once what was counted. */
  close(): void {
    this.#sweep(-Infinity);
  }

  #sweep(minAgeMs: number): void {
    const { now, tell } = this.#options;
    const isOver = ({ sinceMs }: Repeats): boolean => Math.abs(now() - sinceMs) >= minAgeMs;
    for (const [key, repeats] of this.#windows) {
      if (!isOver(repeats)) continue;
      this.#windows.delete(key);
      if (repeats.count > 0) tell({ ...repeats.last, attempts: repeats.count });
    }
    if (this.#others !== undefined && isOver(this.#others)) {
      const { last, count } = this.#others;
      this.#others = undefined;
      tell(
        trailRecord(last.time, {
          method: refusedCallsMethod,
          result: "permission_denied",
          attempts: count,
        }),
      );
    }
    if (this.#windows.size > 0 || this.#others !== undefined) return;
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
  }
}

/** What repeated calls have in common, as text. */
function kindOf(content: AuditContent): string {
  const { method, protocol, uid, kind, token_digest, address, target, result, reason } = content;
  return JSON.stringify([method, protocol, uid, kind, token_digest, address, target, result, reason]);
}
