/** The form values of a schedule, and the request made from them. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Schedule, UpsertScheduleRequestSchema } from "../../../../gen/svc/v1/schedule_pb.ts";
import { namesIn } from "../../names.ts";

export type ScheduleDraft = ReturnType<typeof draftOf>;

export type ActionField = "app" | "command" | "url" | "method" | "body" | "storages" | "keep";

/** The fields of each action type. */
export const fieldsOfType: Readonly<Record<string, readonly ActionField[]>> = {
  app_start: ["app"],
  app_stop: ["app"],
  app_restart: ["app"],
  app_update: ["app"],
  backup: ["app", "storages", "keep"],
  backup_verify: ["app", "storages"],
  shell: ["command", "app"],
  http: ["url", "method", "body"],
  node_reboot: [],
};

/** Action types that only root's schedules may use. */
export const rootTypes: readonly string[] = ["http", "node_reboot"];

export function draftOf(schedule?: Schedule) {
  const action = schedule?.action;
  return {
    id: schedule?.id ?? "",
    trigger: schedule?.trigger ?? "daily@02:30",
    timeZone: schedule?.utc === true ? "UTC" : (schedule?.timeZone ?? ""),
    type: action?.type ?? "backup",
    app: action?.app ?? "",
    command: action?.command ?? "",
    url: action?.url ?? "",
    method: action?.method ?? "GET",
    body: action?.body ?? "",
    storages: action?.storages.join(", ") ?? "",
    keep: text(schedule?.keep ?? action?.keep),
    timeout: text(schedule?.timeout ?? 600),
    retries: text(schedule?.retries ?? 0),
    jitter: text(schedule?.jitterSecs ?? 0),
    catchUp: schedule?.catchUp === "latest" ? "latest" : "none",
    comment: schedule?.comment ?? "",
    isEnabled: schedule?.enabled ?? true,
  };
}

/** @param before the stored schedule, for a change: properties that the form does not show stay unchanged */
export function requestOf(
  draft: ScheduleDraft,
  before?: Schedule,
): MessageInitShape<typeof UpsertScheduleRequestSchema> {
  const used = fieldsOfType[draft.type] ?? [];
  const isSet = (field: ActionField): boolean => used.includes(field) && draft[field] !== "";
  const stored = before?.action?.type === draft.type ? before.action : undefined;
  return {
    id: draft.id.trim(),
    trigger: draft.trigger.trim(),
    timeZone: draft.timeZone.trim(),
    enabled: draft.isEnabled,
    comment: draft.comment,
    timeout: Number(draft.timeout),
    retries: Number(draft.retries),
    jitterSecs: Number(draft.jitter),
    catchUp: draft.catchUp,
    ...(isSet("keep") && { keep: Number(draft.keep) }),
    action: {
      type: draft.type,
      ...(isSet("app") && { app: draft.app }),
      ...(isSet("command") && { command: draft.command }),
      ...(isSet("url") && { url: draft.url.trim(), method: draft.method }),
      ...(isSet("body") && { body: draft.body }),
      storages: used.includes("storages") ? namesIn(draft.storages) : [],
      headers: stored?.headers ?? {},
      ...(stored?.keepChildren !== undefined && { keepChildren: stored.keepChildren }),
    },
    ...(before === undefined
      ? { createOnly: true }
      : {
          owner: before.owner,
          revision: before.revision,
          ...(before.managedBy !== undefined && { managedBy: before.managedBy }),
          ...(!used.includes("keep") && before.keep !== undefined && { keep: before.keep }),
        }),
  };
}

/** The stored schedule, enabled or disabled. */
export function switched(
  { $typeName: _type, $unknown: _unknown, ...read }: Schedule,
  enabled: boolean,
): MessageInitShape<typeof UpsertScheduleRequestSchema> {
  return { ...read, enabled };
}

function text(value: number | undefined): string {
  return value === undefined ? "" : String(value);
}
