/** Descriptions of restricted methods, for error messages. */
import type { methodPolicies, MethodName } from "../../../gen/svc/v1/methods.ts";

type Guarded = {
  [M in MethodName]: (typeof methodPolicies)[M]["access"] extends "ROOT" | "PRIMARY" ? M : never;
}[MethodName];

const engine = "the host's container engine";

/**
 * Each starts a sentence such as `… requires root`. The compiler reports a missing method of the contract.
 */
export const restrictedMethodLabels = {
  "svc.v1.AuditService/ListAudit": "reading the audit log",
  "svc.v1.AuditService/VerifyAudit": "reading the audit log",
  "svc.v1.BackupService/UpsertBackupStorage": "adding or changing a backup storage",
  "svc.v1.BackupService/RemoveBackupStorage": "removing a backup storage",
  "svc.v1.BackupService/TestBackupStorage": "testing a backup storage",
  "svc.v1.DaemonService/GetDaemonMetrics": "reading the daemon's metrics",
  "svc.v1.DaemonService/ReloadConfig": "reloading the daemon's configuration",
  "svc.v1.DockerService/AdoptStack": "adopting containers",
  "svc.v1.DockerService/AdoptStackStream": "adopting containers",
  "svc.v1.DockerService/ListUnmanagedStacks": engine,
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
  "svc.v1.ScheduleService/ReplaceManagedSchedules": "replacing a platform's jobs",
  "svc.v1.SourceService/UpsertSource": "adding or changing a source",
  "svc.v1.SourceService/RemoveSource": "removing a source",
  "svc.v1.SystemService/RebootSystem": "rebooting this host",
  "svc.v1.TokenService/GetTokenStatus": "reading the token status",
  "svc.v1.TokenService/IssueAccessToken": "issuing an access token",
  "svc.v1.TokenService/RevokeAccessTokens": "revoking access tokens",
  "svc.v1.TokenService/RotatePrimaryToken": "rotating the primary token",
  "svc.v1.TokenService/CommitPrimaryTokenRotation": "committing a rotation of the primary token",
} satisfies Record<Guarded, string>;
