import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { describeError } from "../api.ts";
import { texts } from "../texts.ts";
import { Failure } from "./failure.tsx";
import { TextField, bindText } from "./field.tsx";

interface ConfirmProps {
  readonly title: string;
  /** Label of the button that confirms. */
  readonly action: string;
  /** Text that must be typed to confirm, for actions that cannot be undone. */
  readonly typed?: string;
  /** False: the user must make a choice first. */
  readonly isReady?: boolean;
  /**
   * On an error, the dialog stays open and shows it.
   * @param signal aborted when the dialog closes, so that steps that have not started are skipped
   */
  readonly onConfirm: (signal: AbortSignal) => Promise<unknown>;
  readonly onClose: () => void;
  /** A description of the loss, or further inputs. */
  readonly children: ComponentChildren;
}

interface ConfirmButtonProps extends Omit<ConfirmProps, "onClose"> {
  /** False: the action deletes nothing. */
  readonly isDanger?: boolean;
  readonly isBusy?: boolean;
}

/** A button that asks for confirmation. */
export function ConfirmButton({ isDanger = true, isBusy, ...question }: ConfirmButtonProps) {
  const isOpen = useSignal(false);
  return (
    <>
      <button
        type="button"
        class={isDanger ? "danger" : undefined}
        aria-busy={isBusy}
        onClick={() => (isOpen.value = true)}
      >
        {question.action}
      </button>
      {isOpen.value && <Confirm {...question} onClose={() => (isOpen.value = false)} />}
    </>
  );
}

/**
 * A confirmation dialog for actions that cannot be undone. Escape and the first button close it, and cancel a
 * started action.
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
      // The user has already moved the focus.
      if (document.activeElement !== document.body) return;
      // The button that opened the dialog may have been removed with its object.
      const back = activeElement?.isConnected === true ? activeElement : document.querySelector("h1");
      if (back instanceof HTMLElement) back.focus();
    };
  }, []);
  // A layout effect: other effects are cleaned up only after painting, and a key press or a response may come
  // earlier.
  useLayoutEffect(() => () => over.abort(), []);
  const isAnswered = isReady && (typed === undefined || word.value === typed);
  // The browser sends `cancel`, and later `close`, when the next dialog may already be open. After two quick
  // Escapes it sends only `close`.
  const leave = (): void => {
    if (over.signal.aborted) return;
    // Restores the focus before the next key press.
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
      // Another dialog may be open by then.
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
      aria-describedby={`${id}-description`}
      onCancel={leave}
      onClose={leave}
    >
      <form onSubmit={(event) => void confirm(event)}>
        <h2 id={`${id}-title`}>
          <bdi>{title}</bdi>
        </h2>
        <div id={`${id}-description`}>{children}</div>
        {typed !== undefined && (
          <TextField
            label={
              <>
                {texts.confirm.type} <code>{typed}</code>
              </>
            }
            {...bindText(word)}
          />
        )}
        <Failure message={failure.value} />
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
