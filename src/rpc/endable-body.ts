/** The body of a request whose reader hears that its call is over: Connect would wait past the deadline for what never comes. */
import { createContextKey } from "@connectrpc/connect";
import { clientGone } from "../errors.ts";
import { smallBodyBytes, type BodyTurn } from "../lib/body-turns.ts";
import { isGivenUp, type IncomingRequest } from "../lib/http-messages.ts";
import { connectErrorOf } from "./connect-errors.ts";

export interface EndableBody {
  /** Fails the reading with an error, from here on and of what is waited for. */
  end(error: Error): void;
  /** For who has read something, and waited since. @throws the error that the body was ended with */
  throwIfEnded(): void;
}

/** Under which the transport files the body of a call. */
export const endableBodyKey = createContextKey<EndableBody | undefined>(undefined, {
  description: "svc endable body",
});

/**
 * Lets who iterates over the request from here on be stopped, be it in the midst of a wait.
 * @param turn in which it is read; absent for uploads, of which nobody holds the whole
 */
export function endableBody(request: IncomingRequest, turn?: BodyTurn): EndableBody {
  const open = request[Symbol.asyncIterator].bind(request);
  let ended: Error | undefined;
  let stopWaiting: ((error: Error) => void) | undefined;
  request[Symbol.asyncIterator] = () => {
    const whole = turn === undefined ? open() : inTurn(open(), turn);
    const bytes: AsyncIterator<Uint8Array> = unlessGivenUp(whole, request);
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

async function* unlessGivenUp(
  bytes: AsyncIterable<Uint8Array>,
  request: IncomingRequest,
): AsyncGenerator<Uint8Array> {
  yield* bytes;
  if (await isGivenUp(request)) throw clientGone();
}

/** Connect parses a message as soon as it has read the end. */
async function* inTurn(bytes: AsyncIterable<Uint8Array>, turn: BodyTurn): AsyncGenerator<Uint8Array> {
  let sizeBytes = 0;
  try {
    for await (const chunk of bytes) {
      sizeBytes += chunk.length;
      if (sizeBytes > smallBodyBytes) await turn.large();
      yield chunk;
    }
    await turn.whole();
  } finally {
    setImmediate(() => turn[Symbol.dispose]());
  }
}
