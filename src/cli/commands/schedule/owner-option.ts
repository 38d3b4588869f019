/** Which job a command is about: its id, and for root whose it is. */
import { Option } from "commander";
import type { Action } from "../../run-command.ts";
import { parseUser, uidOfUser } from "../../user-option.ts";

export interface OwnerOption {
  /** The uid of another user, for root. */
  readonly owner?: number;
}

export function ownerOption(): Option {
  return new Option("--owner <user>", "root only: the job of this user, by name or number").argParser(
    parseUser,
  );
}

/** Has an action get the uid of the user whom `--owner` names. */
export function ofOwner<Args extends readonly unknown[]>(action: Action<Args>): Action<Args> {
  return async (context, ...args) => {
    const read = args.map(async (arg) => {
      const isOfUser = typeof arg === "object" && arg !== null && "owner" in arg;
      if (!isOfUser || typeof arg.owner !== "string") return arg;
      return { ...arg, owner: await uidOfUser(context, arg.owner) };
    });
    return action(context, ...((await Promise.all(read)) as unknown as Args));
  };
}

/** How a request names a job. */
export function jobRef(id: string, { owner }: OwnerOption): { id: string; owner?: number } {
  return { id, ...(owner !== undefined && { owner }) };
}
