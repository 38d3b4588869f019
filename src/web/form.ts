/** A form that sends what was typed: the daemon says what is wrong with it, and what was typed stays. */
import { useSignal } from "@preact/signals";
import { useAction } from "./action.ts";
import { goToFirstProblem, problemsOf, type Problems } from "./problems.ts";

export interface Form<Draft> {
  readonly draft: Draft;
  readonly set: (change: Partial<Draft>) => void;
  readonly isBusy: boolean;
  /** What it came to; empty when something was typed since. */
  readonly said: string;
  /** What is wrong and is said of no field that is shown. */
  readonly general: string;
  readonly submit: (event: SubmitEvent) => void;
  /** For a field of text. @param name in requests, where that is another one */
  readonly of: (
    field: keyof Draft & string,
    name?: string,
  ) => { value: string; problem: string | undefined; onType: (value: string) => void };
}

/**
 * @param send sends it; resolves with what is said then
 * @param close is told that it was sent, unless the form is gone by then: there may be another one
 */
export function useForm<Draft extends object>(
  initial: Draft,
  send: (draft: Draft, set: (change: Partial<Draft>) => void, signal: AbortSignal) => Promise<string>,
  close?: () => void,
): Form<Draft> {
  const draft = useSignal(initial);
  const problems = useSignal<Problems>({});
  const said = useSignal("");
  const { busy, failure, perform } = useAction();
  const shown = new Set<string>();
  const set = (change: Partial<Draft>): void => {
    draft.value = { ...draft.value, ...change };
    said.value = "";
  };
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    if (!form.reportValidity()) return;
    void perform("send", async (signal) => {
      problems.value = {};
      said.value = "";
      try {
        const words = await send(draft.value, set, signal);
        said.value = words;
        if (!signal.aborted) close?.();
      } catch (error) {
        problems.value = problemsOf(error);
        goToFirstProblem(form);
      }
    });
  };
  return {
    draft: draft.value,
    set,
    isBusy: busy !== "",
    said: said.value,
    get general() {
      const elsewhere = Object.entries(problems.value).filter(([field]) => !shown.has(field));
      return [...elsewhere.map(([, problem]) => problem), failure].filter((text) => text !== "").join(" ");
    },
    submit,
    of: (field, name = field) => {
      shown.add(name);
      return {
        value: String(draft.value[field]),
        problem: problems.value[name],
        onType: (value) => set({ [field]: value } as unknown as Partial<Draft>),
      };
    },
  };
}
