/** Limits the memory of responses that clients do not read, per user. */
import type { HttpCall } from "./http-call.ts";

/** Per user. The largest responses have about 5 MB. */
const maxUnsentBytes = 64 << 20;
/** Smaller responses are not counted; the numbers of connections and requests are limited. */
const smallBytes = 16 << 10;

export class UnsentResponses {
  readonly #maxBytes: number;
  /** By share name. */
  readonly #bytes = new Map<string, number>();

  constructor(maxBytes = maxUnsentBytes) {
    this.#maxBytes = maxBytes;
  }

  /** Counts a response until it is sent; aborts it if the limit is exceeded. */
  add(call: Pick<HttpCall, "share" | "response">): void {
    const { response } = call;
    const bytes = response.writableLength;
    if (bytes <= smallBytes) return;
    const name = call.share;
    const sum = (this.#bytes.get(name) ?? 0) + bytes;
    if (sum > this.#maxBytes) {
      response.destroy();
      return;
    }
    this.#bytes.set(name, sum);
    response.once("close", () => {
      const remaining = (this.#bytes.get(name) ?? 0) - bytes;
      if (remaining > 0) this.#bytes.set(name, remaining);
      else this.#bytes.delete(name);
    });
  }
}
