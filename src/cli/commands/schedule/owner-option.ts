/** Which job a command is about: its id, and for root whose it is. */
import { Option } from "commander";
import { parseUid } from "../../option-values.ts";

export interface OwnerOption {
  /** The uid of another user, for root. */
  readonly owner?: number;
}

export function ownerOption(): Option {
  return new Option("--owner <uid>", "root only: the job of this user id").argParser(parseUid);
}

/** How a request names a job. */
export function jobRef(id: string, { owner }: OwnerOption): { id: string; owner?: number } {
  return { id, ...(owner !== undefined && { owner }) };
}
