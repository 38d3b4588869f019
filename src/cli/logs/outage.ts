/**
 * Waits while the daemon restarts, for example during an upgrade, so that commands which follow something can
 * resume.
 */
import type { CommandContext } from "../context.ts";
import { asSvcError } from "../output/failure.ts";
import { escapeControls } from "../output/escape.ts";

/**
 * How long a daemon may be unavailable. Restarting with many apps, or after a failed start of the unit, takes
 * seconds.
 */
export const reconnectLimitMs = 30_000;
const pauseMs = 250;

export class LostConnection {
  readonly #context: CommandContext;
  readonly #clockMs: () => number;
  #sinceMs: number | undefined;

  /** @param clockMs a monotonic clock */
  constructor(context: CommandContext, clockMs: () => number = () => performance.now()) {
    this.#context = context;
    this.#clockMs = clockMs;
  }

  /** Records that the daemon responds; the next outage is a new one. */
  end(): void {
    this.#sinceMs = undefined;
  }

  /** Calls `attempt` until it succeeds, waiting while the daemon is unavailable. @throws as {@link wait} */
  async retry<T>(attempt: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        const answer = await attempt();
        this.end();
        return answer;
      } catch (error) {
        await this.wait(error);
      }
    }
  }

  /**
   * Resolves when it makes sense to try again; prints once what it waits for.
   * @param notify prints the message; default: a line on stderr
   * @throws the problem if it is of another kind, or lasts too long; the interruption
   */
  async wait(problem: unknown, notify = (line: string): unknown => this.#context.note(line)): Promise<void> {
    const error = asSvcError(problem);
    if (error?.code !== "unavailable") throw problem;
    if (this.#sinceMs === undefined) {
      this.#sinceMs = this.#clockMs();
      await notify(`${escapeControls(error.message).replace(/; try again[^;]*$/, "")}; waiting`);
    }
    const client = await this.#context.client();
    do {
      if (this.#clockMs() - this.#sinceMs >= reconnectLimitMs) throw problem;
      await this.#context.pause(pauseMs);
    } while (!(await client.isAvailable(this.#context.host.interrupted)));
  }
}
