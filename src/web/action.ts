/** The state of a button's action: whether it runs, and why it failed. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { describeError } from "./api.ts";
import { texts } from "./texts.ts";

export interface Action {
  /** Name of the running action; empty if none runs. */
  readonly busy: string;
  /** Why the last action failed; empty if it succeeded. */
  readonly failure: string;
  /**
   * Runs one action at a time, and reports an attempt to run another. Leaving the view cancels the action and
   * prevents new ones.
   */
  readonly perform: (name: string, work: (signal: AbortSignal) => Promise<unknown>) => Promise<void>;
  readonly cancel: () => void;
}

export function useAction(): Action {
  const busy = useSignal("");
  const failure = useSignal("");
  const over = useSignal<AbortController | undefined>(undefined);
  const isGone = useSignal(false);
  // A layout effect, because it is cleaned up when the view unmounts. Other effects are cleaned up after
  // painting, when a response may already have arrived.
  useLayoutEffect(
    () => () => {
      isGone.value = true;
      over.value?.abort();
    },
    [],
  );
  const perform: Action["perform"] = async (name, work) => {
    if (isGone.value) return;
    if (busy.value !== "") {
      failure.value = texts.work.busy;
      return;
    }
    busy.value = name;
    failure.value = "";
    over.value = new AbortController();
    const { signal } = over.value;
    try {
      await work(signal);
    } catch (error) {
      if (!signal.aborted) failure.value = describeError(error);
    } finally {
      busy.value = "";
      if (failure.value === texts.work.busy) failure.value = "";
    }
  };
  return { busy: busy.value, failure: failure.value, perform, cancel: () => over.value?.abort() };
}
