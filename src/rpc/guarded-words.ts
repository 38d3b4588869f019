/** What a method that not everybody may call is about, in words for a person who was refused. */
import type { methodPolicies, MethodName } from "../../gen/svc/v1/methods.ts";

type Guarded = {
  [M in MethodName]: (typeof methodPolicies)[M]["access"] extends "ROOT" | "PRIMARY" ? M : never;
}[MethodName];

const engine = "the host's container engine";

/** Each begins a sentence such as `… is for root`. The compiler misses whichever is added to the contract. */
export const guardedWords = {
  "svc.v1.AuditService/ListAudit": "the audit trail",
  "svc.v1.AuditService/VerifyAudit": "the audit trail",
  "svc.v1.BackupService/UpsertBackupStorage": "adding or changing a storage of backups",
  "svc.v1.BackupService/RemoveBackupStorage": "removing a storage of backups",
  "svc.v1.BackupService/TestBackupStorage": "trying a storage of backups",
  "svc.v1.DaemonService/GetDaemonMetrics": "what the daemon measures of itself",
  "svc.v1.DaemonService/ReloadConfig": "reloading the daemon's configuration",
  "svc.v1.DockerService/ListContainers": engine,
  "svc.v1.DockerService/ListContainerStats": engine,
  "svc.v1.DockerService/ListImages": engine,
  "svc.v1.DockerService/ListVolumes": engine,
  "svc.v1.DockerService/ListNetworks": engine,
  "svc.v1.DockerService/GetDockerDiskUsage": engine,
  "svc.v1.DockerService/PruneDocker": engine,
  "svc.v1.DockerService/ControlContainer": engine,
  "svc.v1.DockerService/InspectContainer": engine,
  "svc.v1.DockerService/GetContainerLogs": engine,
  "svc.v1.DockerService/StreamContainerLogs": engine,
  "svc.v1.DockerService/StreamDockerEvents": engine,
  "svc.v1.ProcessService/SignalProcess": "sending a signal to a process",
  "svc.v1.ScheduleService/ReplaceManagedSchedules": "a platform's push of schedules",
  "svc.v1.SourceService/UpsertSource": "adding or changing a source",
  "svc.v1.SourceService/RemoveSource": "removing a source",
  "svc.v1.SystemService/RebootSystem": "rebooting this machine",
  "svc.v1.TokenService/GetTokenStatus": "the state of the daemon's tokens",
  "svc.v1.TokenService/IssueAccessToken": "issuing a token",
  "svc.v1.TokenService/RevokeAccessTokens": "ending the issued tokens",
  "svc.v1.TokenService/RotatePrimaryToken": "rotating the primary token",
  "svc.v1.TokenService/CommitPrimaryTokenRotation": "ending a rotation of the primary token",
} satisfies Record<Guarded, string>;
