import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { describeError } from "../api.ts";
import { texts } from "../texts.ts";
import { Failure } from "./failure.tsx";
import { TextField, typedInto } from "./field.tsx";

interface ConfirmProps {
  readonly title: string;
  /** What the button says that does it. */
  readonly action: string;
  /** What has to be typed first: for what cannot be taken back. */
  readonly typed?: string;
  /** False: something has to be chosen first. */
  readonly isReady?: boolean;
  /**
   * What it throws is said in the dialog, which stays open then.
   * @param signal aborted when the dialog goes: what was not begun by then is left
   */
  readonly onConfirm: (signal: AbortSignal) => Promise<unknown>;
  readonly onClose: () => void;
  /** What will be lost, or what is asked for besides. */
  readonly children: ComponentChildren;
}

interface ConfirmButtonProps extends Omit<ConfirmProps, "onClose"> {
  /** False: what it does takes nothing away. */
  readonly isDanger?: boolean;
  readonly isBusy?: boolean;
}

/** A button that asks before it does what it says. */
export function ConfirmButton({ isDanger = true, isBusy, ...question }: ConfirmButtonProps) {
  const isAsked = useSignal(false);
  return (
    <>
      <button
        type="button"
        class={isDanger ? "danger" : undefined}
        aria-busy={isBusy}
        onClick={() => (isAsked.value = true)}
      >
        {question.action}
      </button>
      {isAsked.value && <Confirm {...question} onClose={() => (isAsked.value = false)} />}
    </>
  );
}

/**
 * A question before something that cannot be taken back. Escape and the first button leave everything as it is, and stop
 * what was begun.
 */
export function Confirm({
  title,
  action,
  typed,
  isReady = true,
  onConfirm,
  onClose,
  children,
}: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  const word = useSignal("");
  const failure = useSignal("");
  const isBusy = useSignal(false);
  const over = useMemo(() => new AbortController(), []);
  useEffect(() => {
    const { activeElement } = document;
    dialog.current?.showModal();
    return () => {
      // Whoever has gone on by now stays there.
      if (document.activeElement !== document.body) return;
      // What was asked about may be gone, and what asked with it.
      const back = activeElement?.isConnected === true ? activeElement : document.querySelector("h1");
      if (back instanceof HTMLElement) back.focus();
    };
  }, []);
  // As it goes: other effects end once the browser has painted, which a quick key or answer does not wait for.
  useLayoutEffect(() => () => over.abort(), []);
  const isAnswered = isReady && (typed === undefined || word.value === typed);
  // The browser says that it shuts it, and later that it has, when the next question may have been asked. Where Escape follows
  // another with nothing between, only the latter.
  const leave = (): void => {
    if (over.signal.aborted) return;
    // Which takes one back to where one was, before the next key.
    dialog.current?.close();
    onClose();
  };
  const confirm = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    if (!isAnswered || isBusy.value) return;
    isBusy.value = true;
    failure.value = "";
    try {
      await onConfirm(over.signal);
      // Another question may be asked by then.
      leave();
    } catch (error) {
      failure.value = describeError(error);
    } finally {
      isBusy.value = false;
    }
  };
  return (
    <dialog
      ref={dialog}
      aria-labelledby={`${id}-title`}
      aria-describedby={`${id}-says`}
      onCancel={leave}
      onClose={leave}
    >
      <form onSubmit={(event) => void confirm(event)}>
        <h2 id={`${id}-title`}>
          <bdi>{title}</bdi>
        </h2>
        <div id={`${id}-says`}>{children}</div>
        {typed !== undefined && (
          <TextField
            label={
              <>
                {texts.confirm.type} <code>{typed}</code>
              </>
            }
            {...typedInto(word)}
          />
        )}
        <Failure says={failure.value} />
        <div class="row">
          <button type="button" onClick={leave}>
            {texts.confirm.leave}
          </button>
          <button type="submit" class="danger" aria-disabled={!isAnswered} aria-busy={isBusy.value}>
            {action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
