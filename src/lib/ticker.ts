/** Calls back again and again until disposed; a call that still runs is never doubled. */
export class Ticker implements AsyncDisposable {
  readonly #timer: NodeJS.Timeout;
  #running: Promise<void> | undefined;

  /** @param work must not throw */
  constructor(intervalMs: number, work: () => Promise<void>) {
    this.#timer = setInterval(() => {
      this.#running ??= work().finally(() => (this.#running = undefined));
    }, intervalMs).unref();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#running;
  }
}
