import { timestampDate, type Timestamp } from "@bufbuild/protobuf/wkt";

interface WhenProps {
  readonly at: Timestamp | Date | undefined;
  /** To the second, for what is one of many. */
  readonly isExact?: true;
}

/** A moment as the reader's own clock shows it; nothing for one that no clock shows, as files may have. */
export function When({ at, isExact }: WhenProps) {
  if (at === undefined) return null;
  const date = at instanceof Date ? at : timestampDate(at);
  if (Number.isNaN(date.getTime())) return null;
  const full = date.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
  return (
    <time dateTime={date.toISOString()} title={full}>
      {momentText(date, isExact)}
    </time>
  );
}

const clock = { hour: "numeric", minute: "2-digit" } as const;

/** With the month in words, as of `3/4` nobody knows which is the day; the year goes without saying while it is this one. */
export function momentText(date: Date, isExact = false): string {
  const isThisYear = date.getFullYear() === new Date().getFullYear();
  return date.toLocaleString(undefined, {
    ...{ month: "short", day: "numeric", ...clock },
    ...(!isThisYear && { year: "numeric" }),
    ...(isExact && { second: "2-digit" }),
  });
}

/** The time of day alone, as it stands in {@link momentText}, too. */
export function clockText(date: Date): string {
  return date.toLocaleTimeString(undefined, clock);
}
