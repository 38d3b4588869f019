/** Options and progress of long-running work. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ProgressSchema } from "../../gen/svc/v1/app_pb.ts";
import { SvcError } from "../errors.ts";

export type Progress = MessageInitShape<typeof ProgressSchema>;
export type OnProgress = (progress: Progress) => void;

/** Options of long-running work. */
export interface WorkOptions {
  /** Cancels the work while it can be canceled. */
  signal?: AbortSignal | undefined;
  onProgress?: OnProgress | undefined;
  /** Aborts the signal on behalf of another caller; see {@link cancelably}. */
  cancel?: () => void;
  /** Called with the ID of a new app as soon as it is reserved. */
  onCreate?: ((appId: string) => void) | undefined;
}

/**
 * Runs work that {@link Operations.cancel} can cancel, too. @throws SvcError `canceled` in this case, or the error of
 * the rollback
 */
export async function cancelably<T>(work: WorkOptions, run: (work: WorkOptions) => Promise<T>): Promise<T> {
  const over = new AbortController();
  const canceled = new SvcError("canceled", "the operation was canceled");
  const signals = work.signal === undefined ? [over.signal] : [work.signal, over.signal];
  try {
    return await run({ ...work, signal: AbortSignal.any(signals), cancel: () => over.abort(canceled) });
  } catch (error) {
    if (!over.signal.aborted || error instanceof SvcError) throw error;
    throw new SvcError("canceled", canceled.message, { cause: error });
  }
}
