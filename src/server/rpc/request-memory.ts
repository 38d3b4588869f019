/** Bounds the memory of the requests that one user's running calls and detached operations hold. */
import type { Message } from "@bufbuild/protobuf";
import { createContextKey, type HandlerContext } from "@connectrpc/connect";
import { SvcError } from "../../errors.ts";
import { Tally } from "../../lib/tally.ts";
import { shareName, type UserContext } from "./user-context.ts";

const maxBytesPerUser = 64 << 20;
/** Smaller requests are not counted, so that a user at the bound can still list and cancel work. */
const smallBytes = 4 << 10;
/** Estimate for an object or array, and for each of its fields. */
const fieldBytes = 32;

/** One request's part of its user's bytes, released when the call and every {@link retain} has ended. */
class RequestHold implements Disposable {
  readonly #release: () => void;
  #holders = 1;

  constructor(release: () => void) {
    this.#release = release;
  }

  retain(): Disposable {
    this.#holders += 1;
    return this;
  }

  [Symbol.dispose](): void {
    this.#holders -= 1;
    if (this.#holders === 0) this.#release();
  }
}

const holdKey = createContextKey<RequestHold | undefined>(undefined, { description: "svc request memory" });

export class RequestMemory {
  readonly #bytes = new Tally<string>();

  /**
   * Counts a request until the result is disposed of.
   * @throws SvcError `too_many`
   */
  hold(
    { user, values }: Pick<HandlerContext, "values"> & { user: UserContext },
    request: Message,
  ): Disposable | undefined {
    const bytes = estimateBytes(request);
    if (bytes <= smallBytes) return undefined;
    const share = shareName(user);
    const usedBytes = this.#bytes.of(share);
    if (usedBytes + bytes > maxBytesPerUser) {
      throw new SvcError(
        "too_many",
        `cannot accept a request of ${bytes} bytes: running calls and detached operations of this user hold ${usedBytes} bytes of requests, and at most ${maxBytesPerUser} are allowed; wait for one to finish`,
      );
    }
    this.#bytes.change(share, bytes);
    const hold = new RequestHold(() => this.#bytes.change(share, -bytes));
    values.set(holdKey, hold);
    return hold;
  }
}

/** Keeps a request counted after its call has ended, until the result is disposed of. */
export function retainRequest({ values }: Pick<HandlerContext, "values">): Disposable | undefined {
  return values.get(holdKey)?.retain();
}

/** Memory of a message. A character counts as two bytes. */
function estimateBytes(message: Message): number {
  let bytes = 0;
  const rest: unknown[] = [message];
  while (rest.length > 0) {
    const value = rest.pop();
    if (typeof value === "string") bytes += 2 * value.length;
    else if (value instanceof Uint8Array) bytes += value.byteLength;
    else if (typeof value === "object" && value !== null) {
      for (const [name, field] of Object.entries(value)) {
        bytes += fieldBytes + name.length;
        rest.push(field);
      }
    }
  }
  return bytes;
}
