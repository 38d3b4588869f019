/** What of users' answers lies in memory since they do not read it: so much of one user's, and no more (T 57). */
import type { HttpCall } from "./http-call.ts";

/** Of one user. An answer of the longest kind is some 5 MB. */
const maxUnsentBytes = 64 << 20;
/** Less than that is not worth counting: connections and requests have bounds of their own. */
const smallBytes = 16 << 10;

export class UnsentAnswers {
  readonly #maxBytes: number;
  /** By name of the user. */
  readonly #bytes = new Map<string, number>();

  constructor(maxBytes = maxUnsentBytes) {
    this.#maxBytes = maxBytes;
  }

  /** Counts an answer that is on its way until it is out; gives up one for which there is no room any more. */
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
      const left = (this.#bytes.get(name) ?? 0) - bytes;
      if (left > 0) this.#bytes.set(name, left);
      else this.#bytes.delete(name);
    });
  }
}
