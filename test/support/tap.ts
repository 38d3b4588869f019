/** Parses AVA's `--tap` output (Test Anything Protocol 13). */

/** One test point, or a failure outside of a test, such as an uncaught exception. */
export interface TestPoint {
  outcome: "passed" | "failed" | "skipped";
  /** `file › title`; the reason of a skip is part of the title. */
  title: string;
}

export interface TestCounts {
  passed: number;
  failed: number;
  skipped: number;
}

export interface TapSummary {
  counts: TestCounts;
  points: readonly TestPoint[];
  /** The plan at the end of each stream was read: no runner died early. */
  isWhole: boolean;
}

/** The test point of a line; undefined for comments, diagnostics and the plan. */
export function parseTestPoint(line: string): TestPoint | undefined {
  const match = /^(not )?ok \d+ - (.*?)(?: # (SKIP|TODO).*)?$/.exec(line);
  if (match === null) return undefined;
  const [, not, title = "", directive] = match;
  const outcome = directive !== undefined ? "skipped" : not === undefined ? "passed" : "failed";
  return { outcome, title };
}

/** The prefix of a file's titles. */
export function titleOfFile(file: string): string {
  return file
    .replace(/^test(?:\/|$)/, "")
    .replace(/\.test\.ts$/, "")
    .replaceAll("/", " › ");
}

/** Counts a complete TAP stream, or several that were mixed line by line. */
export function summarizeTap(text: string): TapSummary {
  const lines = text.split("\n");
  const points = lines.map(parseTestPoint).filter((point) => point !== undefined);
  const linesLike = (pattern: RegExp) => lines.filter((line) => pattern.test(line)).length;
  const streams = linesLike(/^TAP version \d+$/);
  const count = (outcome: TestPoint["outcome"]) => points.filter((point) => point.outcome === outcome).length;
  return {
    counts: { passed: count("passed"), failed: count("failed"), skipped: count("skipped") },
    points,
    isWhole: streams > 0 && linesLike(/^1\.\.\d+$/) === streams,
  };
}

/** The last line of a run. */
export function formatCounts({ passed, failed, skipped }: TestCounts): string {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}
