/** A preview of a trigger's firings. */
import { nextFiring, rareStarts, type Firing } from "../../triggers/next-firing.ts";
import type { Trigger } from "../../triggers/trigger.ts";
import type { Zone } from "../../triggers/zone.ts";

/** Like the contract's `PreviewScheduleResponse`. */
export interface Preview {
  readonly firings: { unix: bigint; localTime: string; anomaly: string }[];
  readonly timeZone: string;
}

const defaultCount = 5;

export interface PreviewOptions {
  readonly afterMs: number;
  /** 1 to 100. */
  readonly count?: number | undefined;
  /** Yields to other users between firings, because each may take milliseconds to compute. */
  readonly yieldToOthers: () => Promise<void> | undefined;
  /** Cancels the computation. */
  readonly signal: AbortSignal;
}

/** The next firings after an instant, each within nine years of the previous one. */
export async function previewFirings(
  trigger: Trigger,
  zone: Zone,
  { afterMs, count = defaultCount, yieldToOthers, signal }: PreviewOptions,
): Promise<Preview> {
  const firings: Preview["firings"] = [];
  for (let lastMs = afterMs; firings.length < count;) {
    let firing: Firing | undefined;
    for (const startMs of rareStarts(lastMs)) {
      await yieldToOthers();
      signal.throwIfAborted();
      firing = nextFiring(trigger, zone, startMs);
      if (firing !== undefined) break;
    }
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
