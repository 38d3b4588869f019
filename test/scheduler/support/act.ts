/** A single action, without runner and record. */
import type { Action, ActionResult } from "../../../src/scheduler/actions/action.ts";
import type { Job, JobAction, JobSpec } from "../../../src/scheduler/jobs/job.ts";
import { spec } from "./world.ts";

export interface ActOptions {
  ownerUid?: number;
  isRoot?: boolean;
  signal?: AbortSignal;
  /** Called with all output so far, each time that some arrives. */
  onOutput?: (output: string) => void;
}

export interface Acted extends ActionResult {
  readonly output: string;
}

/** As root by default. */
export async function act(action: Action, fields: JobAction, options: ActOptions = {}): Promise<Acted> {
  const { ownerUid = 0, isRoot = true, signal = new AbortController().signal, onOutput } = options;
  const chunks: Buffer[] = [];
  const write = (piece: Uint8Array | string): void => {
    chunks.push(Buffer.from(piece as string));
    onOutput?.(Buffer.concat(chunks).toString());
  };
  const result = await action(jobWith({ action: fields }, ownerUid), { isRoot, signal, write });
  return { ...result, output: Buffer.concat(chunks).toString() };
}

export function jobWith(changes: Partial<JobSpec>, ownerUid = 0, id = "job"): Job {
  return { ownerUid, ownerName: "", id, updatedAtMs: 1, revision: 1, ...spec(changes) };
}
