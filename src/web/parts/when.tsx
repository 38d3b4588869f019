import { timestampDate, type Timestamp } from "@bufbuild/protobuf/wkt";

interface WhenProps {
  readonly at: Timestamp | Date | undefined;
  /** With seconds, to distinguish entries of a list. */
  readonly isExact?: true;
}

/** A time in the reader's local time; nothing for a time out of range, which files may have. */
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

/** With the month's name, since `3/4` is ambiguous; without the current year. */
export function momentText(date: Date, isExact = false): string {
  const isThisYear = date.getFullYear() === new Date().getFullYear();
  return date.toLocaleString(undefined, {
    ...{ month: "short", day: "numeric", ...clock },
    ...(!isThisYear && { year: "numeric" }),
    ...(isExact && { second: "2-digit" }),
  });
}

/** Only the time of day, in the format of {@link momentText}. */
export function clockText(date: Date): string {
  return date.toLocaleTimeString(undefined, clock);
}
