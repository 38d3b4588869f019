import { failedPrecondition, type SvcError } from "../errors.ts";

export function noTerminal(id: string): SvcError {
  return failedPrecondition(
    "denied",
    `app "${id}" has no terminal: its package says no \`console\`; open a shell instead`,
  );
}
