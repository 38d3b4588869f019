import { invalidRequest, type FieldViolation } from "../../errors.ts";

/** An answer names at most this many broken fields: a request must not be able to make it huge. */
const maxViolations = 64;

/** What is wrong with the fields of a request: the first thing of each. */
export class Violations {
  readonly #byField = new Map<string, FieldViolation>();

  /** @param description the rest of a sentence that begins with the field's name */
  add(field: string, description: string): void {
    if (this.isFull || this.#byField.has(field)) return;
    this.#byField.set(field, { field, description });
  }

  get isFull(): boolean {
    return this.#byField.size >= maxViolations;
  }

  /** @throws SvcError `invalid_request` when there are any */
  check(): void {
    if (this.#byField.size > 0) throw invalidRequest([...this.#byField.values()]);
  }
}
