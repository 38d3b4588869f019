/** Live updates of the page: the data of a view is read again after events that change it. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { describeError, reasonOf } from "./api.ts";
import type { NodeView } from "./node-view.ts";

/** Milliseconds: events within this time cause one read. */
const batchMs = 100;

export interface Live<T> {
  /** The last result; undefined before the first. */
  readonly value: T | undefined;
  /** Why the last read failed; empty if it succeeded. */
  readonly failure: string;
  /** Whether a dependency of the daemon, such as the container engine, does not respond. */
  readonly isUnavailable: boolean;
  /** Reads again. */
  readonly reload: () => void;
}

/**
 * @param kinds events that change the data: full kinds such as `run.ended`, or their prefix before the dot
 * @param deps dependencies of `read`
 * @param everyMs minimum time between two reads caused by events
 */
export function useLive<T>(
  node: NodeView,
  kinds: readonly string[],
  read: (signal: AbortSignal) => Promise<T>,
  deps: readonly unknown[],
  everyMs = batchMs,
): Live<T> {
  const value = useSignal<T | undefined>(undefined);
  const failure = useSignal("");
  const isUnavailable = useSignal(false);
  const reloads = useSignal(0);
  useEffect(() => {
    const over = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let [isReading, isStale] = [false, false];
    let readAt = performance.now();
    const readAgain = async (): Promise<void> => {
      timer = undefined;
      if (isReading) {
        isStale = true;
        return;
      }
      isReading = true;
      readAt = performance.now();
      try {
        const found = await read(over.signal);
        if (over.signal.aborted) return;
        value.value = found;
        failure.value = "";
        isUnavailable.value = false;
      } catch (error) {
        if (over.signal.aborted) return;
        failure.value = describeError(error);
        isUnavailable.value = reasonOf(error) === "unavailable";
      }
      isReading = false;
      if (isStale) later();
      isStale = false;
    };
    const later = (): void => {
      const waitMs = Math.max(batchMs, readAt + everyMs - performance.now());
      timer ??= setTimeout(() => void readAgain(), waitMs);
    };
    const subscription = node.listen(({ kind }) => {
      // Failed reads are repeated as soon as the daemon responds again.
      if (kind === "begin" && failure.value !== "") later();
      if (kind === "reset" || kinds.includes(kind) || kinds.includes(kind.split(".", 1).join(""))) later();
    });
    void readAgain();
    return () => {
      subscription[Symbol.dispose]();
      clearTimeout(timer);
      over.abort();
    };
  }, [node, reloads.value, ...deps]);
  return {
    value: value.value,
    failure: failure.value,
    isUnavailable: isUnavailable.value,
    reload: () => (reloads.value += 1),
  };
}
