/** All schedules visible to the user. */
import type { Client } from "@connectrpc/connect";
import type { Schedule, ScheduleService } from "../../../../gen/svc/v1/schedule_pb.ts";

/** Minimum milliseconds between reads, since any run causes one. */
export const readAgainMs = 1_000;

export async function everySchedule(
  client: Client<typeof ScheduleService>,
  signal: AbortSignal,
): Promise<Schedule[]> {
  const found: Schedule[] = [];
  let pageToken = "";
  do {
    const page = await client.listSchedules({ pageToken }, { signal });
    found.push(...page.schedules);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return found;
}
