/**
 * A request body that can be ended from outside: otherwise Connect would wait beyond the deadline for missing
 * data.
 */
import { createContextKey } from "@connectrpc/connect";
import { clientGone } from "../../../errors.ts";
import { smallBodyBytes, type ScheduledBody } from "../../../lib/body-scheduler.ts";
import { isCanceledByClient, type IncomingRequest } from "../../../lib/http-messages.ts";
import { connectErrorOf } from "./connect-errors.ts";

export interface EndableBody {
  /** Makes current and later reads fail with `error`. */
  end(error: Error): void;
  /** For callers that have waited since their last read. @throws the error that ended the body */
  throwIfEnded(): void;
}

/** Key of the request body of a call. */
export const endableBodyKey = createContextKey<EndableBody | undefined>(undefined, {
  description: "svc endable body",
});

/**
 * Makes the request's iteration endable, even while it waits.
 * @param turn scheduling of the body; absent for uploads, which are never held as a whole
 */
export function endableBody(request: IncomingRequest, turn?: ScheduledBody): EndableBody {
  const open = request[Symbol.asyncIterator].bind(request);
  let ended: Error | undefined;
  let stopWaiting: ((error: Error) => void) | undefined;
  request[Symbol.asyncIterator] = () => {
    const whole = turn === undefined ? open() : scheduledBy(open(), turn);
    const bytes: AsyncIterator<Uint8Array> = unlessCanceled(whole, request);
    const body = {
      [Symbol.asyncIterator]: (): unknown => body,
      next: () =>
        new Promise<IteratorResult<Uint8Array>>((resolve, reject) => {
          stopWaiting = reject;
          if (ended === undefined) bytes.next().then(resolve, () => reject(connectErrorOf(clientGone())));
          else reject(ended);
        }),
      return: () => bytes.return?.() ?? Promise.resolve({ done: true, value: undefined }),
    } as ReturnType<typeof open>;
    return body;
  };
  return {
    end(error) {
      ended = error;
      stopWaiting?.(error);
    },
    throwIfEnded() {
      if (ended !== undefined) throw ended;
    },
  };
}

async function* unlessCanceled(
  bytes: AsyncIterable<Uint8Array>,
  request: IncomingRequest,
): AsyncGenerator<Uint8Array> {
  yield* bytes;
  if (await isCanceledByClient(request)) throw clientGone();
}

/** Connect parses a message as soon as it has read the end of the body. */
async function* scheduledBy(
  bytes: AsyncIterable<Uint8Array>,
  turn: ScheduledBody,
): AsyncGenerator<Uint8Array> {
  let sizeBytes = 0;
  try {
    for await (const chunk of bytes) {
      sizeBytes += chunk.length;
      if (sizeBytes > smallBodyBytes) await turn.beginLarge();
      yield chunk;
    }
    await turn.complete();
  } finally {
    setImmediate(() => turn[Symbol.dispose]());
  }
}
