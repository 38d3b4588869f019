// Generated from proto/ by src/codegen/protoc-gen-svc-rest.ts; `npm run gen` writes it.

/** Fields that a request may say and that are ignored there. */
export const outputOnlyFields: ReadonlySet<string> = new Set([
  "svc.v1.AppSettings.schema",
  "svc.v1.AppSettings.restart_required",
  "svc.v1.AppSettings.running",
  "svc.v1.AppSettings.changed",
  "svc.v1.UpdateAppSettingsRequest.schema",
  "svc.v1.UpdateAppSettingsRequest.restart_required",
  "svc.v1.UpdateAppSettingsRequest.running",
  "svc.v1.UpdateAppSettingsRequest.changed",
  "svc.v1.BackupPolicy.next_run_at",
  "svc.v1.BackupPolicy.last_error",
  "svc.v1.SetBackupPolicyRequest.next_run_at",
  "svc.v1.SetBackupPolicyRequest.last_error",
  "svc.v1.Credential.owner",
  "svc.v1.Credential.updated_at",
  "svc.v1.UpsertCredentialRequest.owner",
  "svc.v1.UpsertCredentialRequest.updated_at",
  "svc.v1.Schedule.owner",
  "svc.v1.Schedule.next_run_unix",
  "svc.v1.Schedule.last_run",
  "svc.v1.Schedule.skipped",
  "svc.v1.Schedule.skips",
  "svc.v1.Schedule.owner_name",
  "svc.v1.Schedule.revision",
  "svc.v1.Schedule.warnings",
  "svc.v1.Schedule.waiting",
  "svc.v1.Schedule.disabled_reason",
  "svc.v1.UpsertScheduleRequest.owner_name",
  "svc.v1.UpsertScheduleRequest.next_run_unix",
  "svc.v1.UpsertScheduleRequest.last_run",
  "svc.v1.UpsertScheduleRequest.skipped",
  "svc.v1.UpsertScheduleRequest.skips",
  "svc.v1.UpsertScheduleRequest.warnings",
  "svc.v1.UpsertScheduleRequest.waiting",
  "svc.v1.UpsertScheduleRequest.disabled_reason",
  "svc.v1.Source.configured",
  "svc.v1.Source.shipped",
  "svc.v1.UpsertSourceRequest.configured",
  "svc.v1.UpsertSourceRequest.shipped",
]);

/** Lists that a request must say, though they may be empty. */
export const statedFields: ReadonlySet<string> = new Set([
  "svc.v1.ReplaceManagedSchedulesRequest.schedules",
]);
