import type { TerminalSize } from "../lib/terminal.ts";

/** Sizes of a terminal's window on their way to the engine, which takes what comes at once in any order. */
export class WindowSize {
  readonly #apply: (size: TerminalSize) => Promise<unknown>;
  #wanted: TerminalSize | undefined;
  #isApplying = false;

  /** @param apply may fail: the terminal may have ended by then */
  constructor(apply: (size: TerminalSize) => Promise<unknown>) {
    this.#apply = apply;
  }

  /** The latest one is applied last; those that it overtakes are left out. */
  set(size: TerminalSize): void {
    this.#wanted = size;
    if (!this.#isApplying) void this.#run();
  }

  async #run(): Promise<void> {
    this.#isApplying = true;
    for (let size = this.#take(); size !== undefined; size = this.#take())
      await this.#apply(size).catch(() => undefined);
    this.#isApplying = false;
  }

  #take(): TerminalSize | undefined {
    const wanted = this.#wanted;
    this.#wanted = undefined;
    return wanted;
  }
}
