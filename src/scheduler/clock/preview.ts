/** When a trigger would fire, for people to look at. */
import { nextFiring } from "../trigger/next-firing.ts";
import type { Trigger } from "../trigger/trigger.ts";
import type { Zone } from "../trigger/zone.ts";

/** As the contract's `PreviewScheduleResponse`. */
export interface Preview {
  readonly firings: { unix: bigint; localTime: string; anomaly: string }[];
  readonly timeZone: string;
}

const defaultCount = 5;

export interface PreviewOptions {
  readonly afterMs: number;
  /** 1 to 100. */
  readonly count?: number | undefined;
  /** Lets others have their turn: in a year that was not asked about yet it takes milliseconds to find one. */
  readonly giveWay: () => Promise<void> | undefined;
  /** Ends it: nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

/** The next firings after an instant, each within a year of the one before. */
export async function previewFirings(
  trigger: Trigger,
  zone: Zone,
  { afterMs, count = defaultCount, giveWay, signal }: PreviewOptions,
): Promise<Preview> {
  const firings: Preview["firings"] = [];
  for (let lastMs = afterMs; firings.length < count;) {
    await giveWay();
    signal.throwIfAborted();
    const firing = nextFiring(trigger, zone, lastMs);
    if (firing === undefined) break;
    const { unixMs, anomaly } = firing;
    const localTime = localText(unixMs, zone.offsetMinutesAt(unixMs));
    firings.push({ unix: BigInt(unixMs / 1000), localTime, anomaly: anomaly === "" ? "none" : anomaly });
    lastMs = unixMs;
  }
  return { firings, timeZone: zone.name };
}

/** RFC 3339 with the offset, such as `2026-03-29T03:00:00+02:00`. */
function localText(unixMs: number, offsetMinutes: number): string {
  const wall = new Date(unixMs + offsetMinutes * 60_000).toISOString().slice(0, -".000Z".length);
  const distance = Math.abs(offsetMinutes);
  const [hours, minutes] = [Math.floor(distance / 60), distance % 60].map((part) =>
    String(part).padStart(2, "0"),
  );
  return `${wall}${offsetMinutes < 0 ? "-" : "+"}${hours}:${minutes}`;
}
