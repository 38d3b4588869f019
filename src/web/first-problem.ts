/** Where a form that was refused goes on. */

/** Goes to the first field that something is said of: it may be out of sight of whoever pressed the button. */
export function goToFirstProblem(form: HTMLFormElement): void {
  // By then it is drawn.
  setTimeout(() => form.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
}
