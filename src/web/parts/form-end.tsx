import type { ComponentChildren } from "preact";
import type { Form } from "../form.ts";
import { Failure } from "./failure.tsx";

interface FormEndProps {
  readonly form: Pick<Form<object>, "general" | "isBusy">;
  /** Label of the submit button. */
  readonly action: string;
  /** Content next to the button. */
  readonly children: ComponentChildren;
}

/** Problems that concern no field, and the submit button. Fields show their own problems. */
export function FormEnd({ form, action, children }: FormEndProps) {
  return (
    <>
      <Failure message={form.general} />
      <div class="row">
        <button type="submit" aria-busy={form.isBusy}>
          {action}
        </button>
        {children}
      </div>
    </>
  );
}
