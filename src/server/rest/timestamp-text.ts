/** Timestamps as RFC 3339. `Date.toISOString` would use half of the time to write a list of apps. */
import { toJson } from "@bufbuild/protobuf";
import { TimestampSchema, type Timestamp } from "@bufbuild/protobuf/wkt";
import { BoundedMemo } from "../../lib/bounded-memo.ts";

/** Years 1 to 9999, the range of RFC 3339. */
const firstSecond = -62135596800n;
const lastSecond = 253402300799n;
const secondsPerDay = 86_400;
const maxDays = 256;

/** Writes a timestamp as JSON text, as `toJson` does. Caches dates, because the timestamps of a response are on few days. */
export function timestampWriter(): (timestamp: Timestamp) => string {
  const dates = new BoundedMemo<number, string>(maxDays);
  const dateOf = (day: number): string => new Date(day * secondsPerDay * 1000).toISOString().slice(0, 10);

  return (timestamp) => {
    const { seconds, nanos } = timestamp;
    const isWritable = nanos >= 0 && nanos < 1e9 && seconds >= firstSecond && seconds <= lastSecond;
    // toJson throws the error for a timestamp that is out of range.
    if (!isWritable) return JSON.stringify(toJson(TimestampSchema, timestamp));
    const total = Number(seconds);
    const day = Math.floor(total / secondsPerDay);
    const second = total - day * secondsPerDay;
    const hours = pad(Math.floor(second / 3600));
    const minutes = pad(Math.floor(second / 60) % 60);
    return `"${dates.get(day, dateOf)}T${hours}:${minutes}:${pad(second % 60)}${fraction(nanos)}Z"`;
  };
}

function pad(value: number): string {
  return value < 10 ? `0${value}` : String(value);
}

/** 3, 6 or 9 digits, as few as possible. */
function fraction(nanos: number): string {
  if (nanos === 0) return "";
  if (nanos % 1e6 === 0) return `.${String(nanos / 1e6).padStart(3, "0")}`;
  if (nanos % 1e3 === 0) return `.${String(nanos / 1e3).padStart(6, "0")}`;
  return `.${String(nanos).padStart(9, "0")}`;
}
