import test from "ava";
import { parseMoment } from "../../src/cli/option-values.ts";

const nowMs = Date.UTC(2026, 10, 28, 12);

test("a moment is how long ago, or a time", (t) => {
  t.is(parseMoment("10m")(nowMs), nowMs - 600_000);
  t.is(parseMoment("1h30m")(nowMs), nowMs - 5_400_000);
  t.is(parseMoment("2026-11-28T02:00:00.250Z")(nowMs), Date.UTC(2026, 10, 28, 2, 0, 0, 250));
  t.is(parseMoment("2026-11-28 02:00+01:00")(nowMs), Date.UTC(2026, 10, 28, 1));
  t.is(parseMoment("2026-11-28T02:00")(nowMs), new Date(2026, 10, 28, 2).getTime(), "local time");
  t.is(parseMoment("2026-11-28")(nowMs), new Date(2026, 10, 28).getTime(), "local midnight");
  for (const text of ["", "noon", "10", "-10m", "2026-13-01", "2026-11-28T25:00", "1900-01-01", "28.11.2026"])
    t.throws(() => parseMoment(text), { message: /how long ago, such as 10m/ }, text);
});
