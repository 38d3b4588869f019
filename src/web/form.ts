/** A form that sends its values. The daemon reports problems, and the typed values stay. */
import { useSignal } from "@preact/signals";
import { useAction } from "./action.ts";
import { describeError, payloadOf } from "./api.ts";

export interface Form<Draft> {
  readonly draft: Draft;
  readonly set: (change: Partial<Draft>) => void;
  readonly isBusy: boolean;
  /** The result; empty after further input. */
  readonly notice: string;
  /** Problems that concern no shown field. */
  readonly general: string;
  readonly submit: (event: SubmitEvent) => void;
  /** Properties of a text field. @param name the field's name in requests, if different */
  readonly of: (
    field: keyof Draft & string,
    name?: string,
  ) => { value: string; problem: string | undefined; onType: (value: string) => void };
}

/**
 * @param send sends the form; resolves with the message to show
 * @param close called after sending, unless the form is unmounted by then: another form may be open
 */
export function useForm<Draft extends object>(
  initial: Draft,
  send: (draft: Draft, set: (change: Partial<Draft>) => void, signal: AbortSignal) => Promise<string>,
  close?: () => void,
): Form<Draft> {
  const draft = useSignal(initial);
  const problems = useSignal<Problems>({});
  const notice = useSignal("");
  const { busy, failure, perform } = useAction();
  const shown = new Set<string>();
  const set = (change: Partial<Draft>): void => {
    draft.value = { ...draft.value, ...change };
    notice.value = "";
  };
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    if (!form.reportValidity()) return;
    void perform("send", async (signal) => {
      problems.value = {};
      notice.value = "";
      try {
        const words = await send(draft.value, set, signal);
        notice.value = words;
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
    notice: notice.value,
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

/** The daemon's messages about fields of a request. */
export type Problems = Readonly<Record<string, string>>;

/** By field, in JSON names such as `action.url`; general problems have the empty name. */
export function problemsOf(error: unknown): Problems {
  const payload = payloadOf(error);
  if (payload?.case !== "invalidRequest") return { "": describeError(error) };
  return Object.fromEntries(payload.value.violations.map(({ field, description }) => [field, description]));
}

/** Focuses the first field with a problem, which may be outside of the visible area. */
export function goToFirstProblem(form: HTMLFormElement): void {
  // The fields are marked only after rendering.
  setTimeout(() => form.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
}
