import type { Signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";
import { sentence } from "../plain-text.ts";
import { Text } from "./text.tsx";

/** What ties a control to its label, hint and problem. */
export interface Described {
  readonly id: string;
  readonly "aria-describedby": string;
  readonly "aria-invalid": boolean;
}

interface FieldProps {
  readonly label: ComponentChildren;
  readonly hint?: ComponentChildren;
  /** What is wrong with what was typed, as the daemon says it. */
  readonly problem?: string | undefined;
  /** The control, which takes what ties it to its label. */
  readonly children: (described: Described) => JSX.Element;
}

/** A control of a form with what belongs to it. */
export function Field({ label, hint = "", problem = "", children }: FieldProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({
        id,
        "aria-describedby": `${id}-hint ${id}-problem`,
        "aria-invalid": problem !== "",
      })}
      {hint !== "" && (
        <p class="quiet" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {problem !== "" && (
        <p class="notice bad" role="alert" id={`${id}-problem`}>
          <Text of={sentence(problem)} />
        </p>
      )}
    </div>
  );
}

interface TypedProps extends Omit<FieldProps, "children"> {
  readonly value: string;
  readonly onType: (value: string) => void;
  readonly input?: JSX.IntrinsicElements["input"];
}

/** A line of text or a number. */
export function TextField({ value, onType, input, ...field }: TypedProps) {
  return (
    <Field {...field}>
      {(described) => (
        <input
          type="text"
          autocomplete="off"
          spellcheck={false}
          {...input}
          {...described}
          value={value}
          onInput={({ currentTarget }) => onType(currentTarget.value)}
        />
      )}
    </Field>
  );
}

/** For a field of text: what is typed goes into `signal`. */
export function typedInto(signal: Signal<string>): Pick<TypedProps, "value" | "onType"> {
  return { value: signal.value, onType: (value) => void (signal.value = value) };
}

interface CheckProps {
  readonly label: ComponentChildren;
  readonly value: boolean;
  readonly onCheck: (value: boolean) => void;
}

/** A box with its label behind it. */
export function CheckField({ label, value, onCheck }: CheckProps) {
  return (
    <label>
      <input
        type="checkbox"
        checked={value}
        onChange={({ currentTarget }) => onCheck(currentTarget.checked)}
      />{" "}
      {label}
    </label>
  );
}

/** For a box: whether it is ticked goes into `signal`. */
export function tickedInto(signal: Signal<boolean>): Pick<CheckProps, "value" | "onCheck"> {
  return { value: signal.value, onCheck: (value) => void (signal.value = value) };
}

interface ChoiceProps extends Omit<TypedProps, "input"> {
  /** What may be chosen, and how it is called. */
  readonly choices: readonly (readonly [value: string, name: string])[];
}

export function ChoiceField({ value, onType, choices, ...field }: ChoiceProps) {
  return (
    <Field {...field}>
      {(described) => (
        <select {...described} value={value} onChange={({ currentTarget }) => onType(currentTarget.value)}>
          {!choices.some(([choice]) => choice === value) && <option value={value}>{value}</option>}
          {choices.map(([choice, name]) => (
            <option key={choice} value={choice}>
              {name}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
