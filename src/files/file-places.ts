/** Places for calls of the file service: so many of a caller run at a time, as each occupies their helper. */
import { SvcError } from "../errors.ts";
import { Tally } from "../lib/tally.ts";

const maxPerCaller = 16;

export class FilePlaces {
  readonly #taken = new Tally<string>();

  /** @param share by what name the caller's share is known @throws SvcError `too_many` */
  take(share: string): Disposable {
    if (this.#taken.of(share) >= maxPerCaller) {
      throw new SvcError(
        "too_many",
        `${maxPerCaller} calls of yours work on files already: wait for one of them to end`,
      );
    }
    this.#taken.change(share, 1);
    return { [Symbol.dispose]: () => void this.#taken.change(share, -1) };
  }
}
