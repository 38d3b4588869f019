/** Something that a button does: whether it goes on, and why it failed. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { describeError } from "./api.ts";
import { texts } from "./texts.ts";

export interface Action {
  /** Name of what goes on; empty when nothing does. */
  readonly busy: string;
  /** Why the last one failed; empty when it did not. */
  readonly failure: string;
  /** One at a time, and says so; what goes on ends when its view is left, and nothing begins after that. */
  readonly perform: (name: string, work: (signal: AbortSignal) => Promise<unknown>) => Promise<void>;
  readonly cancel: () => void;
}

export function useAction(): Action {
  const busy = useSignal("");
  const failure = useSignal("");
  const over = useSignal<AbortController | undefined>(undefined);
  const isGone = useSignal(false);
  // As the view goes: other effects end once the browser has painted, which an answer does not wait for.
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
