/** The clock and the time zone. Jobs need both; the expiry of tokens and certificates needs the clock. */
import { stat } from "node:fs/promises";
import { ok, problem, warning, type Check, type Finding } from "./finding.ts";

/** svc did not exist before this time, so an earlier clock is wrong. */
const earliest = Date.UTC(2025, 0, 1);
/** Files that show that systemd-timesyncd or chrony has set the clock. */
const signs = ["/run/systemd/timesync/synchronized", "/run/chrony/chronyd.pid"];

export const checkClock: Check = () => clockFinding(new Date());

export async function clockFinding(now: Date): Promise<Finding> {
  if (now.getTime() < earliest)
    return problem(`the clock says ${now.toISOString()}: set it, and install an NTP client`);
  const found = await Promise.all(signs.map((path) => stat(path).catch(() => undefined)));
  return ok(
    found.some((each) => each !== undefined)
      ? `${now.toISOString()}, kept by NTP`
      : `${now.toISOString()}; no NTP client was found`,
  );
}

export const checkTimeZone: Check = ({ env }) => {
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  const { TZ } = env;
  return timeZone === ""
    ? warning("unknown, so jobs run in UTC: link /etc/localtime to your time zone")
    : ok(TZ === undefined ? timeZone : `${timeZone}, by TZ of this shell`);
};
