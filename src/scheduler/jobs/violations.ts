import { invalidRequest, type FieldViolation } from "../../errors.ts";

/** Maximum violations per response, so that a request cannot make it huge. */
const maxViolations = 64;

/** Problems of a request's fields: the first one per field. */
export class Violations {
  readonly #byField = new Map<string, FieldViolation>();

  /** @param description the end of a sentence that starts with the field's name */
  add(field: string, description: string): void {
    if (this.isFull || this.#byField.has(field)) return;
    this.#byField.set(field, { field, description });
  }

  get isFull(): boolean {
    return this.#byField.size >= maxViolations;
  }

  /** @throws SvcError `invalid_request` if there are any */
  check(): void {
    if (this.#byField.size > 0) throw invalidRequest([...this.#byField.values()]);
  }
}
