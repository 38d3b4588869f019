/** The random delay of firings. */
import { createHash } from "node:crypto";
import { keyText } from "../jobs/job-key.ts";
import type { Job } from "../jobs/job.ts";

/** Milliseconds from 0 to the job's limit, excluding the limit. */
export type Jitter = (job: Job, scheduledAtMs: number) => number;

/**
 * Pseudo-random but reproducible, so that the next daemon can compute it without a record.
 * @param seed distinguishes hosts with the same job
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
