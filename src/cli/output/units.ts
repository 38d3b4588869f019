/** Formats numbers and instants. */

const byteUnits = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

/** `1536` → `1.5 KiB`; three significant digits at most. */
export function formatBytes(bytes: number): string {
  let value = Math.abs(bytes);
  let unit = 0;
  // 1023.5 would be printed as 1024.
  while (value >= 1023.5 && unit < byteUnits.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  return `${bytes < 0 ? "-" : ""}${value.toFixed(digits)} ${byteUnits[unit] ?? ""}`;
}

/** Bytes, or `-` if they were not measured. */
export function formatMeasured(bytes: number | undefined): string {
  return bytes === undefined ? "-" : formatBytes(bytes);
}

/** Two amounts, such as received and sent: `1.5 KiB / 512 B`. */
export function formatBothWays(one: number | undefined, other: number | undefined): string {
  return `${formatMeasured(one)} / ${formatMeasured(other)}`;
}

const spans = [
  ["y", 365 * 86_400],
  ["d", 86_400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
] as const;

/** `93784000` → `1d 2h`: the two largest units. */
export function formatDuration(durationMs: number): string {
  let seconds = Math.max(0, Math.floor(durationMs / 1000));
  const first = spans.findIndex(([, size]) => seconds >= size);
  if (first === -1) return "0s";
  const parts: string[] = [];
  for (const [name, size] of spans.slice(first, first + 2)) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count > 0) parts.push(`${count}${name}`);
  }
  return parts.join(" ");
}

/** How long ago an RFC 3339 instant was; empty for none. */
export function formatAge(instant: string | undefined, nowMs: number): string {
  if (instant === undefined) return "";
  return `${formatDuration(nowMs - Date.parse(instant))} ago`;
}

export function formatPercent(percent: number): string {
  return `${percent.toFixed(1)}%`;
}
