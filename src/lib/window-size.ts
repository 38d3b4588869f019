import type { TerminalSize } from "./terminal.ts";

/** Applies window sizes of a terminal one at a time, because clients can send them faster than they are applied. */
export class WindowSize {
  readonly #apply: (size: TerminalSize) => Promise<unknown>;
  #requested: TerminalSize | undefined;
  #isApplying = false;

  /** @param apply may fail, for example when the terminal has ended */
  constructor(apply: (size: TerminalSize) => Promise<unknown>) {
    this.#apply = apply;
  }

  /** The latest size is applied last; sizes that it overtakes are skipped. */
  set(size: TerminalSize): void {
    this.#requested = size;
    if (!this.#isApplying) void this.#run();
  }

  async #run(): Promise<void> {
    this.#isApplying = true;
    for (let size = this.#take(); size !== undefined; size = this.#take())
      await this.#apply(size).catch(() => undefined);
    this.#isApplying = false;
  }

  #take(): TerminalSize | undefined {
    const requested = this.#requested;
    this.#requested = undefined;
    return requested;
  }
}
