/** Formats numbers for people. */

const byteUnits = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function formatBytes(bytes: bigint | number): string {
  let value = Number(bytes);
  let unit = 0;
  while (value >= 1024 && unit < byteUnits.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value.toFixed(unit === 0 || value >= 100 ? 0 : 1)} ${byteUnits[unit] ?? ""}`;
}

/** Bytes per second; empty if unknown. */
export function formatRate(bytes: number | undefined): string {
  return bytes === undefined ? "" : `${formatBytes(bytes)}/s`;
}

export function formatPercent(share: number): string {
  return `${share.toFixed(0)} %`;
}

/** `12 s`, `3 min 5 s`. */
export function formatElapsed(seconds: number): string {
  const [minutes, rest] = [Math.floor(seconds / 60), Math.floor(seconds % 60)];
  return minutes > 0 ? `${String(minutes)} min ${String(rest)} s` : `${String(rest)} s`;
}

/** `3 d 4 h`, `5 min`. */
export function formatDuration(seconds: number): string {
  const [days, hours, minutes] = [
    Math.floor(seconds / 86_400),
    Math.floor(seconds / 3_600) % 24,
    Math.floor(seconds / 60) % 60,
  ];
  if (days > 0) return `${String(days)} d ${String(hours)} h`;
  return hours > 0 ? `${String(hours)} h ${String(minutes)} min` : `${String(minutes)} min`;
}
