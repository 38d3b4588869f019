/** What is followed goes on across the end of the daemon, as an upgrade has one. */
import type { CommandContext } from "./context.ts";
import { asSvcError } from "./failure.ts";
import { escapeControls } from "./render/escape.ts";

/** How long a daemon may be away: one that starts over many apps, or after its unit has failed once, takes seconds. */
export const awayLimitMs = 30_000;
const pauseMs = 250;

export class Away {
  readonly #context: CommandContext;
  readonly #clockMs: () => number;
  #sinceMs: number | undefined;

  /** @param clockMs a monotonic clock */
  constructor(context: CommandContext, clockMs: () => number = () => performance.now()) {
    this.#context = context;
    this.#clockMs = clockMs;
  }

  /** That something answers: the next time is another. */
  end(): void {
    this.#sinceMs = undefined;
  }

  /** What `look` answers, behind the time that the daemon is away. @throws as {@link wait} */
  async through<T>(look: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        const answer = await look();
        this.end();
        return answer;
      } catch (error) {
        await this.wait(error);
      }
    }
  }

  /**
   * Resolves when it is worth to try again; says once for whom it waits.
   * @param say how, where a line on stderr is not
   * @throws the problem where it is another one or goes on for too long; the interruption
   */
  async wait(problem: unknown, say = (line: string): unknown => this.#context.note(line)): Promise<void> {
    const error = asSvcError(problem);
    if (error?.code !== "unavailable") throw problem;
    if (this.#sinceMs === undefined) {
      this.#sinceMs = this.#clockMs();
      await say(`${escapeControls(error.message).replace(/; try again[^;]*$/, "")}; waiting`);
    }
    const client = await this.#context.client();
    do {
      if (this.#clockMs() - this.#sinceMs >= awayLimitMs) throw problem;
      await this.#context.pause(pauseMs);
    } while (!(await client.isThere(this.#context.host.interrupted)));
  }
}
