import type { JobKey } from "./job.ts";

/** A job's key as one word, for maps; ids have no slash. */
export function keyText({ ownerUid, id }: JobKey): string {
  return `${ownerUid}/${id}`;
}
