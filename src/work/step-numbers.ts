/** Step numbers of long-running work, such as step 2 of 4. */
import type { Progress, WorkOptions } from "./progress.ts";

/** The steps of an operation in order. Each has the names that its progress reports, such as `build` and `pull`. */
export type StepPlan = readonly (readonly string[])[];

export interface PlanOptions {
  /** Whether the plan has all steps. Without them, progress reports no step count. Default: true. */
  isComplete?: boolean;
}

/** Adds the step number to progress. Progress whose name is not in the plan, such as a warning, gets no number. */
export function withStepNumbers<Work extends WorkOptions>(
  work: Work,
  plan: StepPlan,
  { isComplete = true }: PlanOptions = {},
): Work {
  const { onProgress } = work;
  if (onProgress === undefined) return work;
  const numbered = (progress: Progress): void => {
    const at = plan.findIndex((names) => names.includes(progress.step ?? ""));
    // A part of the work may have numbered its own steps.
    const { stepCount: _, stepNumber: __, ...rest } = progress;
    const count = isComplete ? { stepCount: plan.length } : {};
    onProgress(at === -1 ? rest : { ...rest, stepNumber: at + 1, ...count });
  };
  return { ...work, onProgress: numbered };
}
