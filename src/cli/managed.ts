/** Entries that a platform manages, and a person changes. */
import type { CommandContext } from "./context.ts";

interface ManagedEntry {
  readonly id: string;
  readonly managed_by?: string | undefined;
}

/** Says that the platform will write over what a person changes, where it will. */
export function warnIfManaged(context: CommandContext, { id, managed_by: manager = "" }: ManagedEntry): void {
  if (manager !== "")
    context.note(`warning: ${id} is managed by "${manager}": its next sync overwrites what is changed here`);
}
