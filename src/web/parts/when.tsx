import { timestampDate, type Timestamp } from "@bufbuild/protobuf/wkt";

/** A moment as the reader's own clock shows it; nothing for one that no clock shows, as files may have. */
export function When({ at }: { at: Timestamp | Date | undefined }) {
  if (at === undefined) return null;
  const date = at instanceof Date ? at : timestampDate(at);
  if (Number.isNaN(date.getTime())) return null;
  return <time dateTime={date.toISOString()}>{date.toLocaleString()}</time>;
}
