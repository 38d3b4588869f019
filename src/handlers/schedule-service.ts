/** ScheduleService: its methods come with their domain folder. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { unimplemented } from "../rpc/unimplemented.ts";

export function createScheduleService(): ServiceImpl<typeof ScheduleService> {
  return {
    listSchedules: unimplemented,
    getSchedule: unimplemented,
    upsertSchedule: unimplemented,
    removeSchedule: unimplemented,
    replaceManagedSchedules: unimplemented,
    runSchedule: unimplemented,
    runScheduleStream: unimplemented,
    cancelScheduleRun: unimplemented,
    listScheduleRuns: unimplemented,
    followScheduleRuns: unimplemented,
    previewSchedule: unimplemented,
  };
}
