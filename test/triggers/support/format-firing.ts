import type { Firing } from "../../../src/triggers/next-firing.ts";
import type { Zone } from "../../../src/triggers/zone.ts";

/** Such as `2026-03-29T03:00+02:00 gap`: the local time, its offset, and the anomaly. */
export function formatFiring(firing: Firing | undefined, zone: Zone): string {
  if (firing === undefined) return "none";
  const offset = zone.offsetMinutesAt(firing.unixMs);
  const wall = new Date(firing.unixMs + offset * 60_000).toISOString().slice(0, "2026-03-29T03:00".length);
  const [hours, minutes] = [Math.floor(Math.abs(offset) / 60), Math.abs(offset) % 60];
  const sign = offset < 0 ? "-" : "+";
  return `${wall}${sign}${twoDigits(hours)}:${twoDigits(minutes)} ${firing.anomaly}`.trimEnd();
}

function twoDigits(value: number): string {
  return String(value).padStart(2, "0");
}
