/** How a command names a job: its ID, and for root also its owner. */
import { Option } from "commander";
import type { Action } from "../../run-command.ts";
import { parseUser, uidOfUser } from "../../input/user-option.ts";

export interface OwnerOption {
  /** The uid of another user; root only. */
  readonly owner?: number;
}

export function ownerOption(): Option {
  return new Option("--owner <user>", "root only: the job of this user, by name or number").argParser(
    parseUser,
  );
}

/** Wraps an action: resolves the user of `--owner` to a uid. */
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
