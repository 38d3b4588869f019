/** Converts git's progress lines. */
import type { OnProgress } from "../../work/progress.ts";

const units: Readonly<Record<string, number>> = { bytes: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

export interface FetchProgress {
  /** Such as `Receiving objects: 45%`. */
  message: string;
  /** Bytes received so far. */
  doneBytes?: bigint;
}

/** Parses a line such as `Receiving objects:  45% (9/20), 1.20 MiB | 2.00 MiB/s`; `undefined` for others. */
function parseGitProgress(line: string): FetchProgress | undefined {
  const [, phase, percent, amount, unit = ""] =
    /^(?:remote: )?([A-Z][a-z]+(?: [a-z]+)*): +(\d{1,3})% \(\d+\/\d+\)(?:, ([\d.]+) (bytes|KiB|MiB|GiB))?/.exec(
      line,
    ) ?? [];
  if (phase === undefined) return undefined;
  const message = `${phase}: ${percent ?? "0"}%`;
  return amount === undefined
    ? { message }
    : { message, doneBytes: BigInt(Math.round(Number(amount) * (units[unit] ?? 1))) };
}

/** Reports git's progress, at most ten times per second. */
export function forwardGitProgress(
  onProgress: OnProgress | undefined,
  now: () => number,
): ((line: string) => void) | undefined {
  if (onProgress === undefined) return undefined;
  let nextMs = -Infinity;
  return (line) => {
    const progress = parseGitProgress(line);
    if (progress === undefined || now() < nextMs) return;
    nextMs = now() + 100;
    onProgress({ step: "fetch", ...progress });
  };
}
