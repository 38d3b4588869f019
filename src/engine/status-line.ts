/** Formats the status line of a container like the engine, such as `Up 3 minutes (healthy)`. */
import type { ContainerHealth, ContainerState } from "./container-record.ts";

/** The facts that determine a status line. */
export interface StatusFacts {
  readonly state: ContainerState;
  readonly health: ContainerHealth;
  readonly exitCode: number;
  readonly startedAtMs: number | undefined;
  readonly finishedAtMs: number | undefined;
}

export interface StatusLine {
  readonly text: string;
  /** Unix milliseconds; the text stays the same until then. */
  readonly validUntilMs: number;
}

export function statusLine(facts: StatusFacts, nowMs: number): StatusLine {
  const { state, exitCode } = facts;
  switch (state) {
    case "running":
    case "paused": {
      const up = duration(facts.startedAtMs, nowMs);
      return { text: `Up ${up.text}${note(facts)}`, validUntilMs: up.validUntilMs };
    }
    case "exited":
    case "restarting": {
      const ago = duration(facts.finishedAtMs, nowMs);
      const word = state === "exited" ? "Exited" : "Restarting";
      return { text: `${word} (${exitCode}) ${ago.text} ago`, validUntilMs: ago.validUntilMs };
    }
    case "created":
      return lasting("Created");
    case "removing":
      return lasting("Removal In Progress");
    case "dead":
      return lasting("Dead");
  }
}

function lasting(text: string): StatusLine {
  return { text, validUntilMs: Infinity };
}

function note({ state, health }: StatusFacts): string {
  if (state === "paused") return " (Paused)";
  if (health === "none") return "";
  return health === "starting" ? " (health: starting)" : ` (${health})`;
}

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

/** Formats durations like the engine and its command line: one rounded unit, days up to two weeks, and so on. */
function duration(sinceMs: number | undefined, nowMs: number): StatusLine {
  if (sinceMs === undefined) return lasting("Less than a second");
  const elapsed = Math.max(0, nowMs - sinceMs);
  const next = (step: number, offset = 0): number =>
    sinceMs + (Math.floor((elapsed + offset) / step) + 1) * step - offset;
  const line = (text: string, validUntilMs: number): StatusLine => ({ text, validUntilMs });
  const seconds = Math.floor(elapsed / second);
  if (seconds < 1) return line("Less than a second", next(second));
  if (seconds === 1) return line("1 second", next(second));
  if (seconds < 60) return line(`${seconds} seconds`, next(second));
  const minutes = Math.floor(elapsed / minute);
  if (minutes === 1) return line("About a minute", next(minute));
  if (minutes < 60) return line(`${minutes} minutes`, next(minute));
  const hours = Math.floor((elapsed + hour / 2) / hour);
  if (hours === 1) return line("About an hour", next(hour, hour / 2));
  if (hours < 48) return line(`${hours} hours`, next(hour, hour / 2));
  // From here on, the rounded hours are divided.
  const nextHour = next(hour, hour / 2);
  if (hours < 24 * 7 * 2) return line(`${Math.floor(hours / 24)} days`, nextHour);
  if (hours < 24 * 30 * 2) return line(`${Math.floor(hours / 24 / 7)} weeks`, nextHour);
  if (hours < 24 * 365 * 2) return line(`${Math.floor(hours / 24 / 30)} months`, nextHour);
  return line(`${Math.floor(elapsed / day / 365)} years`, nextHour);
}
