/** Reading what AVA writes with `--tap` (Test Anything Protocol 13). */

/** One test point, or something that failed outside of a test, such as an uncaught exception. */
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
  /** The plan at the end of each stream has been read: no runner died halfway. */
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

const isAgain = /^# again: (.+)$/;

/** The line after which what was said of a file before does not count any more. */
export function againLine(file: string): string {
  return `# again: ${titleOfFile(file)}`;
}

/** What the titles of a file begin with. */
export function titleOfFile(file: string): string {
  return file
    .replace(/^test(?:\/|$)/, "")
    .replace(/\.test\.ts$/, "")
    .replaceAll("/", " › ");
}

/** Counts a whole TAP stream, or several that were mixed line by line. */
export function summarizeTap(text: string): TapSummary {
  const lines = text.split("\n");
  let points: TestPoint[] = [];
  for (const line of lines) {
    const point = parseTestPoint(line);
    const again = isAgain.exec(line)?.[1];
    if (point !== undefined) points.push(point);
    if (again !== undefined) points = points.filter(({ title }) => !title.startsWith(`${again} › `));
  }
  const linesLike = (pattern: RegExp) => lines.filter((line) => pattern.test(line)).length;
  const streams = linesLike(/^TAP version \d+$/);
  const count = (outcome: TestPoint["outcome"]) => points.filter((point) => point.outcome === outcome).length;
  return {
    counts: { passed: count("passed"), failed: count("failed"), skipped: count("skipped") },
    points,
    isWhole: streams > 0 && linesLike(/^1\.\.\d+$/) === streams,
  };
}

/** The line that a run ends with. */
export function formatCounts({ passed, failed, skipped }: TestCounts): string {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}
