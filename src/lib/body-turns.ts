/** How the bodies of one user's requests are read: a little of each at once, much of one after the other, and parsed in turns. */
import type { FairTurns } from "./fair-turns.ts";

/** What is read of a body at once, whatever else its user sends. */
export const smallBodyBytes = 64 * 1024;

export class BodyTurns {
  readonly #turns: FairTurns;
  /** By name of the user: those who wait behind the one large body that is being read. */
  readonly #lanes = new Map<string, (() => void)[]>();

  constructor(turns: FairTurns) {
    this.#turns = turns;
  }

  open(name: string): BodyTurn {
    return new BodyTurn(name, this.#turns, this.#lanes);
  }
}

/** One body. */
export class BodyTurn implements Disposable {
  readonly #name: string;
  readonly #turns: FairTurns;
  readonly #lanes: Map<string, (() => void)[]>;
  #state: "small" | "waiting" | "large" | "done" = "small";

  constructor(name: string, turns: FairTurns, lanes: Map<string, (() => void)[]>) {
    this.#name = name;
    this.#turns = turns;
    this.#lanes = lanes;
  }

  /** There is more than {@link smallBodyBytes} of it. Undefined when it may be read on, else a promise for when it may. */
  large(): Promise<void> | undefined {
    if (this.#state !== "small") return undefined;
    const waiting = this.#lanes.get(this.#name);
    if (waiting === undefined) {
      this.#lanes.set(this.#name, []);
      this.#state = "large";
      return undefined;
    }
    this.#state = "waiting";
    return new Promise((resolve) => {
      waiting.push(() => {
        resolve();
        if (this.#state === "done") this.#next();
        else this.#state = "large";
      });
    });
  }

  /** All of it is there. Undefined when it may be parsed now, else a promise for when it may. */
  whole(): Promise<void> | undefined {
    return this.#turns.wait(this.#name);
  }

  /** It is parsed, or nobody wants it any more. */
  [Symbol.dispose](): void {
    const wasLarge = this.#state === "large";
    this.#state = "done";
    if (wasLarge) this.#next();
  }

  #next(): void {
    const waiting = this.#lanes.get(this.#name);
    const next = waiting?.shift();
    if (next === undefined) this.#lanes.delete(this.#name);
    else next();
  }
}
