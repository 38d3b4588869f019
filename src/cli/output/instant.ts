/** Instants relative to now, and as clock times. */
import { formatAge, formatDuration } from "./units.ts";

/** Formats an instant for a table, given in milliseconds since 1970. */
export type InstantFormat = (instantMs: number) => string;

/** `in 4m 10s`, `3m ago`, `now`. */
export function relativeTo(nowMs: number): InstantFormat {
  return (instantMs) => {
    const aheadMs = instantMs - nowMs;
    if (Math.abs(aheadMs) < 1000) return "now";
    return aheadMs > 0
      ? `in ${formatDuration(aheadMs)}`
      : formatAge(new Date(instantMs).toISOString(), nowMs);
  };
}

/** `2026-03-29 03:00:00Z` */
export const inUtc: InstantFormat = (instantMs) =>
  `${new Date(instantMs).toISOString().slice(0, 19).replace("T", " ")}Z`;

/** `2026-03-29 03:00:00 +02:00`, in the time zone of this process. */
export const inLocalTime: InstantFormat = (instantMs) => {
  const offsetMinutes = -new Date(instantMs).getTimezoneOffset();
  const wall = new Date(instantMs + offsetMinutes * 60_000).toISOString().slice(0, 19).replace("T", " ");
  const [hours, minutes] = [Math.trunc(Math.abs(offsetMinutes) / 60), Math.abs(offsetMinutes) % 60];
  const digits = [hours, minutes].map((part) => String(part).padStart(2, "0")).join(":");
  return `${wall} ${offsetMinutes < 0 ? "-" : "+"}${digits}`;
};

/** How long work took: `0.2s`, `1m 5s`. */
export function formatTook(durationMs: number): string {
  return durationMs < 10_000 ? `${(Math.max(0, durationMs) / 1000).toFixed(1)}s` : formatDuration(durationMs);
}
