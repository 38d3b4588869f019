import { once, type EventEmitter } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import { liveLogs } from "./live-logs.ts";

const leastPauseMs = 10;
/**
 * The pause as a share of the elapsed time: a late result may be noticed a little later, and others get the CPU until
 * then.
 */
const pausePart = 0.1;

/**
 * Retries until `attempt` does not throw. If it still does at the deadline, or does not return, fails with its last
 * error, which then also names the caller and has the last log lines of the running daemons and engines. @param
 * timeoutMs the default is for a busy host; pass one if a deadline is promised @param mostPauseMs between two attempts:
 * less for short states @param graceMs for an attempt that is in progress at the deadline
 */
export async function eventually<T>(
  attempt: () => Promise<T> | T,
  timeoutMs = 30_000,
  mostPauseMs = 250,
  graceMs = 30_000,
): Promise<T> {
  const call = new Error();
  const begunMs = performance.now();
  let lastError: unknown;
  for (;;) {
    const tooLong = new AbortController();
    try {
      const limitMs = begunMs + timeoutMs + graceMs - performance.now();
      return await Promise.race([attempt(), failAfter(limitMs, lastError, tooLong.signal)]);
    } catch (error) {
      lastError = error;
      const passedMs = performance.now() - begunMs;
      if (passedMs > timeoutMs) throw explained(error, `not within ${timeoutMs / 1_000} s`, call);
      await wait(Math.min(Math.max(passedMs * pausePart, leastPauseMs), mostPauseMs));
    } finally {
      tooLong.abort();
    }
  }
}

/** The arguments of an emitter's next event. @throws Error without it at the deadline, with the last log lines. */
export async function nextEvent(
  emitter: EventEmitter,
  event: string,
  timeoutMs = 120_000,
): Promise<unknown[]> {
  const call = new Error();
  const tooLong = new AbortController();
  const timer = setTimeout(() => tooLong.abort(), timeoutMs);
  try {
    // An emitter that fails still closes, so an error does not end the wait for that.
    if (event === "close") return await nextClose(emitter, tooLong.signal);
    return (await once(emitter, event, { signal: tooLong.signal })) as unknown[];
  } catch (error) {
    if (!tooLong.signal.aborted) throw error;
    const what = `no "${event}" of ${emitter.constructor.name}`;
    throw explained(new Error(what), `not within ${timeoutMs / 1_000} s`, call);
  } finally {
    clearTimeout(timer);
  }
}

async function nextClose(emitter: EventEmitter, signal: AbortSignal): Promise<unknown[]> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown[]>();
  const listener = (...values: unknown[]): void => resolve(values);
  emitter.once("close", listener);
  signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
  return promise.finally(() => emitter.off("close", listener));
}

async function failAfter(ms: number, lastError: unknown, signal: AbortSignal): Promise<never> {
  await wait(Math.max(ms, 0), undefined, { signal });
  const before = lastError === undefined ? "" : `; the attempt before it failed: ${messageOf(lastError)}`;
  throw new Error(`the last attempt did not return${before}`);
}

/** The same error object, because tests check its type and code. */
function explained(error: unknown, how: string, call: Error): Error {
  const known = error instanceof Error ? error : new Error(messageOf(error));
  known.message = `${how}${callerOf(call)}: ${known.message}${liveLogs()}`;
  return known;
}

function callerOf({ stack = "" }: Error): string {
  const place = /\/(test\/[^\s)]+)/.exec(stack.split("\n").slice(2).join("\n"))?.[1];
  return place === undefined ? "" : ` (${place})`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
