/** The output and the errors of a build. */
import { SvcError } from "../../errors.ts";
import { RateBudget } from "../../lib/rate-budget.ts";
import { secretMask } from "../../lib/secret-mask.ts";

/** Number of last lines in the error of a failed build. */
const maxErrorLines = 20;
/** Limit of reported lines: reporting one costs as much as skipping a hundred. */
const reported = { atOnce: 2_000, perSec: 500 };

export function buildFailed(
  tag: string,
  reason: string,
  exitCode: number | undefined,
  lastLines: readonly string[],
): SvcError {
  const isCode = exitCode !== undefined && exitCode > 0;
  return new SvcError("build_failed", `the image ${tag} cannot be built: ${reason.slice(0, 1_000)}`, {
    payload: { ...(isCode && { exitCode }), signal: "", lastLines: [...lastLines] },
  });
}

/** A failure that the output of the build does not explain. */
export function failedWithoutOutput(message: string): SvcError {
  return new SvcError("build_failed", message, { payload: { signal: "", lastLines: [] } });
}

/** Assembles the build's output into lines, and keeps the last ones. If it comes too fast, some lines are not reported. */
export class BuildLines {
  readonly #onLine: (line: string) => void;
  readonly #last: string[] = [];
  readonly #secret: string | undefined;
  readonly #budget = new RateBudget(reported.atOnce, reported.perSec, () => performance.now());
  #rest = "";

  /** @param secret is masked: the engine prints the labels that it sets on the image */
  constructor(onLine: (line: string) => void, secret?: string) {
    this.#onLine = onLine;
    this.#secret = secret;
  }

  add(text: string): void {
    const lines = (this.#rest + text).split(/\r?\n|\r/);
    this.#rest = (lines.pop() ?? "").slice(-16_384);
    let at = 0;
    while (at < lines.length && this.#budget.take()) this.#append(lines[at++] ?? "", this.#onLine);
    for (const line of lines.slice(Math.max(at, lines.length - maxErrorLines))) this.#append(line);
  }

  end(): readonly string[] {
    if (this.#rest !== "") this.#append(this.#rest, this.#onLine);
    this.#rest = "";
    return this.#last;
  }

  #append(line: string, onLine?: (line: string) => void): void {
    if (line.trim() === "") return;
    const shown = this.#secret === undefined ? line : line.replaceAll(this.#secret, secretMask);
    this.#last.push(shown);
    if (this.#last.length > maxErrorLines) this.#last.shift();
    onLine?.(shown);
  }
}
