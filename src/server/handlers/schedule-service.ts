/** ScheduleService: one domain call per method. */
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { userOf } from "../rpc/user-context.ts";
import type { Schedules } from "../../scheduler/schedules.ts";

const defaultPageSize = 1000;

export function createScheduleService(schedules: Schedules): ServiceImpl<typeof ScheduleService> {
  return {
    listSchedules: ({ managedBy, app, limit = defaultPageSize, pageToken }, context) =>
      schedules.list(userOf(context), { managedBy, app, limit, pageToken }),

    getSchedule: (name, context) => schedules.get(name, userOf(context)),

    upsertSchedule: (request, context) => schedules.upsert(request, request, userOf(context)),

    removeSchedule: async (name, context) => {
      await schedules.remove(name, userOf(context));
      return { id: name.id };
    },

    replaceManagedSchedules: ({ managedBy, schedules: jobs }, context) =>
      schedules.replaceManaged(managedBy, jobs, userOf(context)),

    runSchedule: (name, context) => schedules.run(name, userOf(context)),

    runScheduleStream: (name, context) => schedules.runStream(name, userOf(context), context.signal),

    cancelScheduleRun: (name, context) => schedules.cancel(name, userOf(context)),

    listScheduleRuns: (request, context) => schedules.runs(request, request, userOf(context)),

    followScheduleRuns: ({ since, ...name }, context) =>
      schedules.followRuns(name, userOf(context), {
        sinceMs: since && timestampMs(since),
        signal: context.signal,
      }),

    previewSchedule: (request, context) => schedules.preview(request, userOf(context), context.signal),
  };
}
