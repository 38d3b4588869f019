/** What a view reads once, and again when it is told that it has changed. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { describeError, reasonOf } from "./api.ts";
import type { NodeView } from "./node-view.ts";

/** What happens in this time is read together. */
const gatherMs = 100;

export interface Live<T> {
  /** As it was read last; undefined until it was. */
  readonly value: T | undefined;
  /** Why it could not be read; empty when it could. */
  readonly failure: string;
  /** What it needs, such as the container engine, does not answer: that is not the daemon's fault. */
  readonly isUnavailable: boolean;
  /** Reads it again. */
  readonly again: () => void;
}

/**
 * @param kinds events after which it is another: whole words such as `run.ended`, or what is before their dot
 * @param deps what `read` depends on
 * @param everyMs it is not read more often than this by what happens
 */
export function useLive<T>(
  node: NodeView,
  kinds: readonly string[],
  read: (signal: AbortSignal) => Promise<T>,
  deps: readonly unknown[],
  everyMs = gatherMs,
): Live<T> {
  const value = useSignal<T | undefined>(undefined);
  const failure = useSignal("");
  const isUnavailable = useSignal(false);
  const asked = useSignal(0);
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
      const waitMs = Math.max(gatherMs, readAt + everyMs - performance.now());
      timer ??= setTimeout(() => void readAgain(), waitMs);
    };
    const told = node.listen(({ kind }) => {
      // What could not be read while the daemon was away is read as soon as it is back.
      if (kind === "begin" && failure.value !== "") later();
      if (kind === "reset" || kinds.includes(kind) || kinds.includes(kind.split(".", 1).join(""))) later();
    });
    void readAgain();
    return () => {
      told[Symbol.dispose]();
      clearTimeout(timer);
      over.abort();
    };
  }, [node, asked.value, ...deps]);
  return {
    value: value.value,
    failure: failure.value,
    isUnavailable: isUnavailable.value,
    again: () => (asked.value += 1),
  };
}
