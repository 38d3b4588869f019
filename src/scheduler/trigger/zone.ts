/** Time zones as spans of one offset each: `Intl` knows the offsets, but takes microseconds to tell one. */
import { invalidField } from "../../errors.ts";
import { BoundedMemo } from "../../lib/bounded-memo.ts";
import { dayMs, hourMs, minuteMs } from "./wall-slice.ts";

/** A stretch of time with one offset. All instants are milliseconds since 1970. */
export interface ZoneSpan {
  readonly startMs: number;
  /** The first instant after it. */
  readonly endMs: number;
  /** What is added to UTC. */
  readonly offsetMs: number;
  /** How much wall time the clock skips at `startMs`; 0 but after a forward change. */
  readonly skippedMs: number;
  /** Until here the clock shows what it has shown before `startMs`; `startMs` itself but after a change backwards. */
  readonly repeatUntilMs: number;
  /** From here on the clock shows what it will show again after `endMs`; `endMs` itself but before a change backwards. */
  readonly repeatFromMs: number;
}

/** One time zone: the node's own, `UTC`, or an IANA name. */
export interface Zone {
  /** As it was asked for. */
  readonly name: string;
  /** Minutes that are added to UTC. */
  offsetMinutesAt(unixMs: number): number;
  /** The span in which an instant lies; it ends at the latest with the UTC year, whether the offset changes or not. */
  spanAt(unixMs: number): ZoneSpan;
}

/** Zones whose spans are kept; more are names in other spellings. */
const maxZones = 1024;
/** Years whose spans are kept per zone. */
const maxYears = 16;
/** Changes of an offset are further apart than this. */
const probeStepMs = 7 * dayMs;
/** No change repeats or skips more than this. */
const maxShiftMs = 2 * dayMs;

/** The time zones of the node; each is made once and remembers the spans of the years that it was asked about. */
export class Zones {
  readonly #zones = new BoundedMemo<string, Zone | undefined>(maxZones);
  /** Of all spellings of a name: to find them takes milliseconds. There are fewer names than that. */
  readonly #years = new BoundedMemo<string, Years>(maxZones);
  readonly #localName: () => string;

  /** @param options.local names the node's own zone, each time anew; Node's by default, which it learns when it starts */
  constructor(options: { local?: () => string } = {}) {
    this.#localName = options.local ?? createLocalName();
  }

  /** The node's zone; UTC where its name is none that is known. */
  local(): Zone {
    return this.#find(this.#localName()) ?? this.get("UTC");
  }

  /** @throws SvcError `invalid_argument` `invalid_request` about `time_zone` when no zone has the name */
  get(name: string): Zone {
    const zone = this.#find(name);
    if (zone !== undefined) return zone;
    throw invalidField("time_zone", `"${name}" must be UTC or an IANA time zone such as Europe/Berlin`);
  }

  /** The zone that a job names: empty for the node's own; undefined for one that the host does not know, or no longer. */
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

/** Asks once: every question takes 60 µs. */
function createLocalName(): () => string {
  let name: string | undefined;
  return () => (name ??= readLocalName());
}

function readLocalName(): string {
  // Absent where TZ names a zone that does not exist, whatever its type says.
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

/** The spans of the years that a zone was asked about. */
type Years = BoundedMemo<number, readonly ZoneSpan[]>;

class ChangingZone implements Zone {
  readonly name: string;
  readonly #years: Years;
  /** The one that was asked for last: nearly every question is about the same. */
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
    if (span === undefined) throw new RangeError(`${unixMs} is no instant in milliseconds`);
    this.#last = span;
    return span;
  }

  #spansOf(year: number): readonly ZoneSpan[] {
    return this.#years.get(year, () => findSpans(this.name, Date.UTC(year), Date.UTC(year + 1)));
  }
}

/** The spans of a zone that cover the given time, and the first of which may start earlier. */
function findSpans(name: string, fromMs: number, toMs: number): ZoneSpan[] {
  // The formatter is dropped with the year: it takes far more memory than the spans.
  const offsetAt = offsetReader(name) ?? (() => 0);
  // A change shortly before or after repeats times that lie within.
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

/** When the offset changes and by how much, by probing and bisection; from after `fromMs` to `toMs`. */
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

/** The first minute with another offset than `leftMs` has. */
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

/** Tells a zone's offset in milliseconds, whole minutes (as all are since 1972); `undefined` for a name that is no zone's. */
function offsetReader(name: string): ((unixMs: number) => number) | undefined {
  // `Intl` takes offsets such as +05:30 too, which are no names.
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
