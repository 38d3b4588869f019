/** A scheduled job as the rest of the scheduler sees it: defaults filled in, the trigger parsed. */
import type { ScheduleActionType } from "../../gen/svc/v1/words.ts";
import type { Trigger } from "./trigger/trigger.ts";

/** What names a job: an id is unique with its owner (decisions 24). */
export interface JobKey {
  readonly ownerUid: number;
  readonly id: string;
}

/** What a job does; the fields that its type does not use are absent. */
export interface JobAction {
  readonly type: ScheduleActionType;
  readonly app?: string;
  readonly storages?: readonly string[];
  readonly keep?: number;
  readonly command?: string;
  readonly url?: string;
  readonly method?: string;
  /** With the stored values: only views write `***` over them. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** What its owner says about a job. */
export interface JobSpec {
  readonly trigger: Trigger;
  /** `"UTC"`, an IANA name, or empty for the node's local time. */
  readonly timeZone: string;
  readonly enabled: boolean;
  readonly comment: string;
  /** Empty for the operator. */
  readonly managedBy: string;
  readonly action: JobAction;
  readonly timeoutSecs: number;
  /** Archives to keep, for backups. */
  readonly keep?: number;
  readonly jitterSecs: number;
  readonly retries: number;
  readonly catchUp: "none" | "latest";
}

/** A job that is kept. */
export interface Job extends JobKey, JobSpec {
  /** Unix milliseconds; never the same for two writes of one job. */
  readonly updatedAtMs: number;
}
