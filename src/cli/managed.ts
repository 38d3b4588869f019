/** Entries that a platform manages, but a person changes. */
import type { CommandContext } from "./context.ts";

interface ManagedEntry {
  readonly id: string;
  readonly managed_by?: string | undefined;
}

/** Warns that the platform's next sync will overwrite the change, if the entry is managed. */
export function warnIfManaged(context: CommandContext, { id, managed_by: manager = "" }: ManagedEntry): void {
  if (manager !== "")
    context.note(`warning: ${id} is managed by "${manager}": its next sync overwrites this change`);
}
