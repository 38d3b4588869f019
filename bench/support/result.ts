/** A benchmark's result: one row of the table. */
export interface Result {
  /** The measured quantity. */
  what: string;
  /** With its unit. */
  measured: string;
  /** The baseline, measured in the same run. */
  yardstick: string;
  /** The value that the goal limits: a ratio, or the measured number itself. */
  value: number;
  /** The goal is met up to this value, or from it on; see `isFloor`. */
  goal: number;
  /** Whether `goal` is a minimum instead of a maximum. Default false. */
  isFloor?: boolean;
  /** Unit of `value` and `goal`: `×` for a ratio. */
  unit: "×" | "MiB" | "ms" | "µs" | "%";
  /** Runs behind each number. */
  runs: number;
}

export interface Bench {
  /** Selected by it: `npm run bench NAME`. */
  name: string;
  run: () => Promise<Result[]>;
}

export function isMet(result: Result): boolean {
  return result.isFloor === true ? result.value >= result.goal : result.value <= result.goal;
}

/** A Markdown table. */
export function formatTable(results: readonly Result[]): string {
  const rows = results.map((result) => [
    result.what,
    result.measured,
    result.yardstick,
    amount(result.value, result.unit),
    `${result.isFloor === true ? "≥" : "≤"} ${amount(result.goal, result.unit)}`,
    isMet(result) ? "yes" : "no",
    String(result.runs),
  ]);
  const table = [["what", "measured", "yardstick", "result", "goal", "met", "n"], ...rows];
  const widths =
    table[0]?.map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0))) ?? [];
  const lines = table.map(
    (row) => `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(" | ")} |`,
  );
  return [lines[0], `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`, ...lines.slice(1)].join(
    "\n",
  );
}

/** Such as `12.3 MiB`, `0.42 µs` or `1.25×`. */
export function amount(value: number, unit: Result["unit"]): string {
  return unit === "×" || unit === "µs" || unit === "%"
    ? `${value.toFixed(2)}${unit === "×" ? "" : " "}${unit}`
    : `${value.toFixed(1)} ${unit}`;
}
