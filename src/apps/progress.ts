/** Progress of long work, for whoever watches it. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ProgressSchema } from "../../gen/svc/v1/app_pb.ts";
import { SvcError } from "../errors.ts";

export type Progress = MessageInitShape<typeof ProgressSchema>;
export type OnProgress = (progress: Progress) => void;

/** What long work takes beside its arguments. */
export interface WorkOptions {
  /** Cancels the work while it can be cancelled. */
  signal?: AbortSignal | undefined;
  onProgress?: OnProgress | undefined;
  /** Aborts the signal for somebody else than whoever began it, see {@link cancelably}. */
  cancel?: () => void;
}

/** Runs work that {@link Operations.cancel} may end, too. @throws SvcError `canceled` then, or why it could not be undone */
export async function cancelably<T>(work: WorkOptions, run: (work: WorkOptions) => Promise<T>): Promise<T> {
  const over = new AbortController();
  const canceled = new SvcError("canceled", "it was canceled");
  const signals = work.signal === undefined ? [over.signal] : [work.signal, over.signal];
  try {
    return await run({ ...work, signal: AbortSignal.any(signals), cancel: () => over.abort(canceled) });
  } catch (error) {
    if (!over.signal.aborted || error instanceof SvcError) throw error;
    throw new SvcError("canceled", canceled.message, { cause: error });
  }
}
