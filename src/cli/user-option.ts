/** A user that an option names: by number, or by the name that the daemon's host has for one. */
import type { CommandContext } from "./context.ts";
import { UsageError } from "./failure.ts";
import { parseUid } from "./option-values.ts";
import { calls } from "./transport/calls.ts";

/** The number, else the name as it is. */
export function parseUser(text: string): number | string {
  return /^\d+$/.test(text) ? parseUid(text) : text;
}

/** @throws UsageError for a name that nobody has there */
export async function uidOfUser(context: CommandContext, name: string): Promise<number> {
  const { users } = await context.call(calls.listSystemIdentities, {});
  const user = users.find((each) => each.name === name);
  if (user === undefined)
    throw new UsageError(`there is no user "${name}" on the daemon's host; give a name or a number`);
  return user.uid;
}
