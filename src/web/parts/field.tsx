import type { Signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";
import { sentence } from "../plain-text.ts";
import { Text } from "./text.tsx";

/** Attributes that link a control to its label, hint and problem. */
export interface Described {
  readonly id: string;
  readonly "aria-describedby": string;
  readonly "aria-invalid": boolean;
}

interface FieldProps {
  readonly label: ComponentChildren;
  readonly hint?: ComponentChildren;
  /** The daemon's message about the typed value. */
  readonly problem?: string | undefined;
  /** Renders the control with the attributes that link it to its label. */
  readonly children: (described: Described) => JSX.Element;
}

/** A form control with its label, hint and problem. */
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

/** A single-line input for text or a number. */
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

/** Binds a text field to `signal`. */
export function bindText(signal: Signal<string>): Pick<TypedProps, "value" | "onType"> {
  return { value: signal.value, onType: (value) => void (signal.value = value) };
}

interface CheckProps {
  readonly label: ComponentChildren;
  readonly value: boolean;
  readonly onCheck: (value: boolean) => void;
}

/** A checkbox with its label. */
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

/** Binds a checkbox to `signal`. */
export function bindCheckbox(signal: Signal<boolean>): Pick<CheckProps, "value" | "onCheck"> {
  return { value: signal.value, onCheck: (value) => void (signal.value = value) };
}

interface ChoiceProps extends Omit<TypedProps, "input"> {
  /** The options, with their labels. */
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
