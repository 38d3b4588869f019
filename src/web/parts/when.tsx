import { timestampDate, type Timestamp } from "@bufbuild/protobuf/wkt";

/** A moment as the reader's own clock shows it. */
export function When({ at }: { at: Timestamp | Date | undefined }) {
  if (at === undefined) return null;
  const date = at instanceof Date ? at : timestampDate(at);
  return <time dateTime={date.toISOString()}>{date.toLocaleString()}</time>;
}
