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
  /** The title of each failed point, with its messages: the indented lines after it, and what its hooks logged. */
  failures: readonly string[];
  points: readonly TestPoint[];
  /** The plan at the end of each stream was read: no runner died early. */
  isComplete: boolean;
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
  const failures = lines.flatMap((line, at) => {
    const point = parseTestPoint(line);
    if (point?.outcome !== "failed") return [];
    const end = lines.findIndex((other, after) => after > at && !other.startsWith("  "));
    const messages = lines.slice(at + 1, end === -1 ? undefined : end);
    return [[point.title, ...messages, ...hookLogs(lines, point.title)].map((one) => `  ${one}`).join("\n")];
  });
  return {
    failures,
    counts: { passed: count("passed"), failed: count("failed"), skipped: count("skipped") },
    points,
    isComplete: streams > 0 && linesLike(/^1\.\.\d+$/) === streams,
  };
}

/** What the hooks of a test logged, such as what an open page showed. */
function hookLogs(lines: readonly string[], title: string): string[] {
  return lines.flatMap((line, at) => {
    const [, test] = /^# .* hook for (.+)$/.exec(line) ?? [];
    if (test === undefined || !title.endsWith(test)) return [];
    const end = lines.findIndex((other, after) => after > at && !other.startsWith("#   "));
    return lines.slice(at + 1, end === -1 ? undefined : end).map((log) => log.replace("#", " "));
  });
}

/** The last line of a run. */
export function formatCounts({ passed, failed, skipped }: TestCounts): string {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}
