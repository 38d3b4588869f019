/** Progress of long work, for whoever watches it. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ProgressSchema } from "../../gen/svc/v1/app_pb.ts";

export type Progress = MessageInitShape<typeof ProgressSchema>;
export type OnProgress = (progress: Progress) => void;

/** What long work takes beside its arguments. */
export interface WorkOptions {
  /** Cancels the work while it can be cancelled. */
  signal?: AbortSignal;
  onProgress?: OnProgress;
}
