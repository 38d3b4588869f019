import type { ComponentChildren } from "preact";
import type { Form } from "../form.ts";
import { Failure } from "./failure.tsx";

interface FormEndProps {
  readonly form: Pick<Form<object>, "general" | "isBusy">;
  /** What the button says that sends it. */
  readonly action: string;
  /** Beside the button. */
  readonly children: ComponentChildren;
}

/** What is wrong and is said of no field, and the button that sends a form. It stands below the fields, which tell what they say. */
export function FormEnd({ form, action, children }: FormEndProps) {
  return (
    <>
      <Failure says={form.general} />
      <div class="row">
        <button type="submit" aria-busy={form.isBusy}>
          {action}
        </button>
        {children}
      </div>
    </>
  );
}
