/** Time zones as spans with one offset each. `Intl` has the offsets, but each lookup takes microseconds. */
import { invalidField } from "../errors.ts";
import { BoundedMemo } from "../lib/bounded-memo.ts";
import { dayMs, hourMs, minuteMs } from "./wall-slice.ts";

/** A stretch of time with one offset. All instants are milliseconds since 1970. */
export interface ZoneSpan {
  readonly startMs: number;
  /** The first instant after the span. */
  readonly endMs: number;
  /** Offset from UTC. */
  readonly offsetMs: number;
  /** How much wall-clock time is skipped at `startMs`; 0 except after a forward change. */
  readonly skippedMs: number;
  /** Until this instant the clock repeats times from before `startMs`; equals `startMs` except after a backward change. */
  readonly repeatUntilMs: number;
  /** From this instant the clock shows times that it repeats after `endMs`; equals `endMs` except before a backward change. */
  readonly repeatFromMs: number;
}

/** One time zone: the host's, `UTC`, or an IANA name. */
export interface Zone {
  /** The name as the caller wrote it. */
  readonly name: string;
  /** Offset from UTC in minutes. */
  offsetMinutesAt(unixMs: number): number;
  /** The span that contains an instant. A span ends with the UTC year at the latest, even if the offset does not change. */
  spanAt(unixMs: number): ZoneSpan;
}

/** How many zones are cached; further names are other spellings. */
const maxZones = 1024;
/** How many years are cached per zone. */
const maxYears = 16;
/** Offset changes are always further apart than this. */
const probeStepMs = 7 * dayMs;
/** No offset change repeats or skips more than this. */
const maxShiftMs = 2 * dayMs;

/** The time zones of the host. Each is created once and caches the spans of the years that were looked up. */
export class Zones {
  readonly #zones = new BoundedMemo<string, Zone | undefined>(maxZones);
  /** By name, in every spelling that was used; a lookup takes milliseconds. */
  readonly #years = new BoundedMemo<string, Years>(maxZones);
  readonly #localName: () => string;

  /** @param options.local returns the name of the host's zone; by default the zone that Node read at its start */
  constructor(options: { local?: () => string } = {}) {
    this.#localName = options.local ?? createLocalName();
  }

  /** The host's zone; UTC if its name is unknown. */
  local(): Zone {
    return this.#find(this.#localName()) ?? this.get("UTC");
  }

  /** @throws SvcError `invalid_argument` `invalid_request` about `time_zone` when no zone has the name */
  get(name: string): Zone {
    const zone = this.#find(name);
    if (zone !== undefined) return zone;
    throw invalidField("time_zone", `"${name}" must be UTC or an IANA time zone such as Europe/Berlin`);
  }

  /** The zone that a job names; an empty name is the host's zone. Undefined if the host does not know the name (any more). */
  named(name: string): Zone | undefined {
    return name === "" ? this.local() : this.#find(name);
  }

  isKnown(name: string): boolean {
    return this.#find(name) !== undefined;
  }

  #find(name: string): Zone | undefined {
    return this.#zones.get(name, () => this.#create(name));
  }

  #create(name: string): Zone | undefined {
    if (name === "UTC") return new FixedZone();
    if (offsetReader(name) === undefined) return undefined;
    return new ChangingZone(
      name,
      this.#years.get(name.toLowerCase(), () => new BoundedMemo(maxYears)),
    );
  }
}

/** Cached, because each lookup takes 60 µs. */
function createLocalName(): () => string {
  let name: string | undefined;
  return () => (name ??= readLocalName());
}

function readLocalName(): string {
  // Undefined if TZ names a zone that does not exist, although the type does not allow it.
  const options: Partial<Intl.ResolvedDateTimeFormatOptions> = Intl.DateTimeFormat().resolvedOptions();
  return options.timeZone ?? "UTC";
}

class FixedZone implements Zone {
  readonly name = "UTC";
  readonly #span = {
    startMs: -Infinity,
    endMs: Infinity,
    offsetMs: 0,
    skippedMs: 0,
    repeatUntilMs: -Infinity,
    repeatFromMs: Infinity,
  };

  offsetMinutesAt(): number {
    return 0;
  }

  spanAt(): ZoneSpan {
    return this.#span;
  }
}

/** The cached spans of a zone, by year. */
type Years = BoundedMemo<number, readonly ZoneSpan[]>;

class ChangingZone implements Zone {
  readonly name: string;
  readonly #years: Years;
  /** The span of the last lookup; nearly every lookup needs the same one. */
  #last: ZoneSpan | undefined;

  constructor(name: string, years: Years) {
    this.name = name;
    this.#years = years;
  }

  offsetMinutesAt(unixMs: number): number {
    return this.spanAt(unixMs).offsetMs / minuteMs;
  }

  spanAt(unixMs: number): ZoneSpan {
    const last = this.#last;
    if (last !== undefined && unixMs >= last.startMs && unixMs < last.endMs) return last;
    const span = this.#spansOf(new Date(unixMs).getUTCFullYear()).find(({ endMs }) => unixMs < endMs);
    if (span === undefined) throw new RangeError(`${unixMs} is not an instant in milliseconds`);
    this.#last = span;
    return span;
  }

  #spansOf(year: number): readonly ZoneSpan[] {
    return this.#years.get(year, () => findSpans(this.name, Date.UTC(year), Date.UTC(year + 1)));
  }
}

/** The spans of a zone that cover the given time; the first may start earlier. */
function findSpans(name: string, fromMs: number, toMs: number): ZoneSpan[] {
  // The formatter is not cached, because it uses far more memory than the spans.
  const offsetAt = offsetReader(name) ?? (() => 0);
  // A change shortly before or after the year can repeat times within it.
  const changes = findChanges(offsetAt, fromMs - maxShiftMs, toMs + maxShiftMs);
  const starts = [fromMs - maxShiftMs, ...changes.map(({ atMs }) => atMs)];
  const shifts = [0, ...changes.map(({ shiftMs }) => shiftMs)];
  return starts
    .map((startMs, at) => {
      const endMs = starts[at + 1] ?? Infinity;
      return {
        startMs,
        endMs: Math.min(endMs, toMs),
        offsetMs: offsetAt(startMs),
        skippedMs: Math.max(0, shifts[at] ?? 0),
        repeatUntilMs: startMs + Math.max(0, -(shifts[at] ?? 0)),
        repeatFromMs: endMs - Math.max(0, -(shifts[at + 1] ?? 0)),
      };
    })
    .filter(({ startMs, endMs }) => startMs < toMs && endMs > fromMs);
}

/** The offset changes after `fromMs` and up to `toMs`, found by probing and bisection. */
function findChanges(
  offsetAt: (unixMs: number) => number,
  fromMs: number,
  toMs: number,
): { atMs: number; shiftMs: number }[] {
  const changes: { atMs: number; shiftMs: number }[] = [];
  let offsetMs = offsetAt(fromMs);
  for (let leftMs = fromMs; leftMs < toMs; leftMs += probeStepMs) {
    const rightMs = Math.min(leftMs + probeStepMs, toMs);
    const nextMs = offsetAt(rightMs);
    if (nextMs !== offsetMs) {
      changes.push({ atMs: bisect(offsetAt, leftMs, rightMs), shiftMs: nextMs - offsetMs });
    }
    offsetMs = nextMs;
  }
  return changes;
}

/** The first minute whose offset differs from the offset at `leftMs`. */
function bisect(offsetAt: (unixMs: number) => number, leftMs: number, rightMs: number): number {
  const offsetMs = offsetAt(leftMs);
  let [same, other] = [leftMs / minuteMs, rightMs / minuteMs];
  while (other - same > 1) {
    const middle = Math.floor((same + other) / 2);
    if (offsetAt(middle * minuteMs) === offsetMs) same = middle;
    else other = middle;
  }
  return other * minuteMs;
}

/** A function that returns a zone's offset in milliseconds, in whole minutes (true of all zones since 1972); undefined if the name is unknown. */
function offsetReader(name: string): ((unixMs: number) => number) | undefined {
  // `Intl` also accepts offsets such as +05:30, which are not names.
  if (!/^[A-Za-z]/.test(name)) return undefined;
  let format: Intl.DateTimeFormat;
  try {
    format = new Intl.DateTimeFormat("en-US", { timeZone: name, timeZoneName: "longOffset" });
  } catch {
    return undefined;
  }
  return (unixMs) => {
    // Such as `3/29/2026, GMT+02:00`; UTC itself is `GMT`.
    const [, sign, hours, minutes] = /GMT([+-])(\d\d):(\d\d)/.exec(format.format(unixMs)) ?? [];
    const offsetMs = Number(hours ?? 0) * hourMs + Number(minutes ?? 0) * minuteMs;
    return sign === "-" ? -offsetMs : offsetMs;
  };
}
