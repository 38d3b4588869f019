/** Options that name a user: by number, or by a name of the daemon's host. */
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { parseUid } from "./option-values.ts";
import { calls } from "../client/calls.ts";

/** The number, or the unchanged name. */
export function parseUser(text: string): number | string {
  return /^\d+$/.test(text) ? parseUid(text) : text;
}

/** @throws UsageError for a name that the daemon's host does not know */
export async function uidOfUser(context: CommandContext, name: string): Promise<number> {
  const { users } = await context.call(calls.listSystemIdentities, {});
  const user = users.find((each) => each.name === name);
  if (user === undefined)
    throw new UsageError(
      `user "${name}" does not exist on the daemon's host; use a name or a number of that host`,
    );
  return user.uid;
}
