/** The body of a request whose reader hears that its call is over: Connect would wait past the deadline for what never comes. */
import type { Readable } from "node:stream";
import { createContextKey } from "@connectrpc/connect";
import { clientGone } from "../errors.ts";
import { connectErrorOf } from "./connect-errors.ts";

/** Fails the reading of a body with an error. */
export type EndBody = (error: Error) => void;

/** Under which the transport files what ends the body of a call. */
export const endBodyKey = createContextKey<EndBody | undefined>(undefined, {
  description: "svc end of body",
});

/** Lets who iterates over the request from here on be stopped, be it in the midst of a wait. */
export function endableBody(request: Readable): EndBody {
  const open = request[Symbol.asyncIterator].bind(request);
  let ended: Error | undefined;
  let stopWaiting: EndBody | undefined;
  request[Symbol.asyncIterator] = () => {
    const bytes = open();
    const body: ReturnType<typeof open> = {
      ...bytes,
      [Symbol.asyncIterator]: () => body,
      next: () =>
        new Promise((resolve, reject) => {
          stopWaiting = reject;
          if (ended === undefined) bytes.next().then(resolve, () => reject(connectErrorOf(clientGone())));
          else reject(ended);
        }),
      return: () => bytes.return?.() ?? Promise.resolve({ done: true, value: undefined }),
    };
    return body;
  };
  return (error) => {
    ended = error;
    stopWaiting?.(error);
  };
}
