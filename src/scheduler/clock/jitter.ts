/** How late a firing starts. */
import { createHash } from "node:crypto";
import { keyText } from "../jobs/job-key.ts";
import type { Job } from "../jobs/job.ts";

/** From 0 up to and without the job's own bound, in milliseconds. */
export type Jitter = (job: Job, scheduledAtMs: number) => number;

/**
 * By chance, but the same whenever it is asked: so the next daemon knows what the one before still waited for, and nothing
 * of it has to be on record.
 * @param seed tells this host from others that have the same job
 */
export function createJitter(seed: string): Jitter {
  return (job, scheduledAtMs) => {
    if (job.jitterSecs === 0) return 0;
    const digest = createHash("sha256")
      .update(`${seed} ${keyText(job)} ${scheduledAtMs}`)
      .digest();
    return (digest.readUIntBE(0, 6) / 2 ** 48) * job.jitterSecs * 1_000;
  };
}
