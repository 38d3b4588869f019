import type { OperationService } from "./operation_pb.ts";
import type { AppService } from "./app_pb.ts";
import type { AuditService } from "./audit_pb.ts";
import type { BackupService } from "./backup_pb.ts";
import type { CredentialService } from "./credential_pb.ts";
import type { DaemonService } from "./daemon_pb.ts";
import type { DockerService } from "./docker_pb.ts";
import type { FileService } from "./file_pb.ts";
import type { MonitorService } from "./monitor_pb.ts";
import type { ProcessService } from "./process_pb.ts";
import type { ScheduleService } from "./schedule_pb.ts";
import type { SessionService } from "./session_pb.ts";
import type { SourceService } from "./source_pb.ts";
import type { SystemService } from "./system_pb.ts";
import type { TokenService } from "./token_pb.ts";

// Generated from proto/ by src/codegen/protoc-gen-svc-rest.ts; `npm run gen` writes it.

/** Unary JSON methods of REST by name, each with one binding as plain strings. */
export const restCalls = {
  listOperations: {"service":"svc.v1.OperationService","method":"listOperations","httpMethod":"GET","path":"/v1/operations","body":""},
  getOperation: {"service":"svc.v1.OperationService","method":"getOperation","httpMethod":"GET","path":"/v1/operations/{id}","body":""},
  cancelOperation: {"service":"svc.v1.OperationService","method":"cancelOperation","httpMethod":"POST","path":"/v1/operations/{id}/cancel","body":"*"},
  listApps: {"service":"svc.v1.AppService","method":"listApps","httpMethod":"GET","path":"/v1/apps","body":""},
  installApp: {"service":"svc.v1.AppService","method":"installApp","httpMethod":"POST","path":"/v1/apps","body":"*"},
  getApp: {"service":"svc.v1.AppService","method":"getApp","httpMethod":"GET","path":"/v1/apps/{id}","body":""},
  removeApp: {"service":"svc.v1.AppService","method":"removeApp","httpMethod":"DELETE","path":"/v1/apps/{id}","body":""},
  getAppDisk: {"service":"svc.v1.AppService","method":"getAppDisk","httpMethod":"GET","path":"/v1/apps/{id}/disk","body":""},
  getAppImage: {"service":"svc.v1.AppService","method":"getAppImage","httpMethod":"GET","path":"/v1/apps/{id}/image","body":""},
  repullApp: {"service":"svc.v1.AppService","method":"repullApp","httpMethod":"POST","path":"/v1/apps/{id}/repull","body":"*"},
  listAppPorts: {"service":"svc.v1.AppService","method":"listAppPorts","httpMethod":"GET","path":"/v1/apps/{id}/ports","body":""},
  listUpdates: {"service":"svc.v1.AppService","method":"listUpdates","httpMethod":"GET","path":"/v1/updates","body":""},
  upgradeApp: {"service":"svc.v1.AppService","method":"upgradeApp","httpMethod":"POST","path":"/v1/apps/{id}/upgrade","body":"*"},
  cloneApp: {"service":"svc.v1.AppService","method":"cloneApp","httpMethod":"POST","path":"/v1/apps/{id}/clone","body":"*"},
  startApp: {"service":"svc.v1.AppService","method":"startApp","httpMethod":"POST","path":"/v1/apps/{id}/start","body":"*"},
  stopApp: {"service":"svc.v1.AppService","method":"stopApp","httpMethod":"POST","path":"/v1/apps/{id}/stop","body":"*"},
  restartApp: {"service":"svc.v1.AppService","method":"restartApp","httpMethod":"POST","path":"/v1/apps/{id}/restart","body":"*"},
  placeApp: {"service":"svc.v1.AppService","method":"placeApp","httpMethod":"POST","path":"/v1/apps/{id}/place","body":"*"},
  scaleApp: {"service":"svc.v1.AppService","method":"scaleApp","httpMethod":"POST","path":"/v1/apps/{id}/scale","body":"*"},
  renameApp: {"service":"svc.v1.AppService","method":"renameApp","httpMethod":"POST","path":"/v1/apps/{id}/rename","body":"*"},
  cancelAppOperation: {"service":"svc.v1.AppService","method":"cancelAppOperation","httpMethod":"POST","path":"/v1/apps/{id}/cancel","body":"*"},
  exportApp: {"service":"svc.v1.AppService","method":"exportApp","httpMethod":"GET","path":"/v1/apps/{id}/export","body":""},
  getAppLogs: {"service":"svc.v1.AppService","method":"getAppLogs","httpMethod":"GET","path":"/v1/apps/{id}/logs","body":""},
  getAppSettings: {"service":"svc.v1.AppService","method":"getAppSettings","httpMethod":"GET","path":"/v1/apps/{id}/settings","body":""},
  updateAppSettings: {"service":"svc.v1.AppService","method":"updateAppSettings","httpMethod":"PUT","path":"/v1/apps/{id}/settings","body":"*"},
  issueConsoleToken: {"service":"svc.v1.AppService","method":"issueConsoleToken","httpMethod":"POST","path":"/v1/apps/{app_id}/console-token","body":"*"},
  getDiskReport: {"service":"svc.v1.AppService","method":"getDiskReport","httpMethod":"GET","path":"/v1/disk","body":""},
  getPortReport: {"service":"svc.v1.AppService","method":"getPortReport","httpMethod":"GET","path":"/v1/ports","body":""},
  getAppStats: {"service":"svc.v1.AppService","method":"getAppStats","httpMethod":"GET","path":"/v1/stats","body":""},
  getAppStatsHistory: {"service":"svc.v1.AppService","method":"getAppStatsHistory","httpMethod":"GET","path":"/v1/apps/{id}/stats/history","body":""},
  listStacks: {"service":"svc.v1.AppService","method":"listStacks","httpMethod":"GET","path":"/v1/stacks","body":""},
  listAudit: {"service":"svc.v1.AuditService","method":"listAudit","httpMethod":"GET","path":"/v1/audit","body":""},
  verifyAudit: {"service":"svc.v1.AuditService","method":"verifyAudit","httpMethod":"GET","path":"/v1/audit/verification","body":""},
  listBackups: {"service":"svc.v1.BackupService","method":"listBackups","httpMethod":"GET","path":"/v1/backups","body":""},
  listBackupStorages: {"service":"svc.v1.BackupService","method":"listBackupStorages","httpMethod":"GET","path":"/v1/backups/storages","body":""},
  upsertBackupStorage: {"service":"svc.v1.BackupService","method":"upsertBackupStorage","httpMethod":"PUT","path":"/v1/backups/storages/{name}","body":"*"},
  removeBackupStorage: {"service":"svc.v1.BackupService","method":"removeBackupStorage","httpMethod":"DELETE","path":"/v1/backups/storages/{name}","body":""},
  testBackupStorage: {"service":"svc.v1.BackupService","method":"testBackupStorage","httpMethod":"POST","path":"/v1/backups/storages/{name}/test","body":"*"},
  createBackup: {"service":"svc.v1.BackupService","method":"createBackup","httpMethod":"POST","path":"/v1/apps/{app_id}/backups","body":"*"},
  restoreBackup: {"service":"svc.v1.BackupService","method":"restoreBackup","httpMethod":"POST","path":"/v1/apps/{app_id}/backups/restore","body":"*"},
  getBackup: {"service":"svc.v1.BackupService","method":"getBackup","httpMethod":"POST","path":"/v1/apps/{app_id}/backups/{storage}/{name}/show","body":"*"},
  verifyBackup: {"service":"svc.v1.BackupService","method":"verifyBackup","httpMethod":"POST","path":"/v1/apps/{app_id}/backups/verify","body":"*"},
  deleteBackup: {"service":"svc.v1.BackupService","method":"deleteBackup","httpMethod":"DELETE","path":"/v1/apps/{app_id}/backups/{storage}/{name}","body":""},
  browseBackup: {"service":"svc.v1.BackupService","method":"browseBackup","httpMethod":"POST","path":"/v1/apps/{app_id}/backups/{storage}/{name}/browse","body":"*"},
  getBackupPolicy: {"service":"svc.v1.BackupService","method":"getBackupPolicy","httpMethod":"GET","path":"/v1/apps/{app_id}/backup-policy","body":""},
  setBackupPolicy: {"service":"svc.v1.BackupService","method":"setBackupPolicy","httpMethod":"PUT","path":"/v1/apps/{app_id}/backup-policy","body":"*"},
  listCredentials: {"service":"svc.v1.CredentialService","method":"listCredentials","httpMethod":"GET","path":"/v1/credentials","body":""},
  upsertCredential: {"service":"svc.v1.CredentialService","method":"upsertCredential","httpMethod":"PUT","path":"/v1/credentials/{name}","body":"*"},
  removeCredential: {"service":"svc.v1.CredentialService","method":"removeCredential","httpMethod":"DELETE","path":"/v1/credentials/{name}","body":""},
  getStatus: {"service":"svc.v1.DaemonService","method":"getStatus","httpMethod":"GET","path":"/v1/status","body":""},
  reloadConfig: {"service":"svc.v1.DaemonService","method":"reloadConfig","httpMethod":"POST","path":"/v1/config/reload","body":"*"},
  listContainers: {"service":"svc.v1.DockerService","method":"listContainers","httpMethod":"GET","path":"/v1/docker/containers","body":""},
  listContainerStats: {"service":"svc.v1.DockerService","method":"listContainerStats","httpMethod":"GET","path":"/v1/docker/stats","body":""},
  listImages: {"service":"svc.v1.DockerService","method":"listImages","httpMethod":"GET","path":"/v1/docker/images","body":""},
  listVolumes: {"service":"svc.v1.DockerService","method":"listVolumes","httpMethod":"GET","path":"/v1/docker/volumes","body":""},
  listNetworks: {"service":"svc.v1.DockerService","method":"listNetworks","httpMethod":"GET","path":"/v1/docker/networks","body":""},
  getDockerDiskUsage: {"service":"svc.v1.DockerService","method":"getDockerDiskUsage","httpMethod":"GET","path":"/v1/docker/disk-usage","body":""},
  pruneDocker: {"service":"svc.v1.DockerService","method":"pruneDocker","httpMethod":"POST","path":"/v1/docker/prune","body":"*"},
  controlContainer: {"service":"svc.v1.DockerService","method":"controlContainer","httpMethod":"POST","path":"/v1/docker/control","body":"*"},
  listUnmanagedStacks: {"service":"svc.v1.DockerService","method":"listUnmanagedStacks","httpMethod":"GET","path":"/v1/docker/unmanaged-stacks","body":""},
  adoptStack: {"service":"svc.v1.DockerService","method":"adoptStack","httpMethod":"POST","path":"/v1/docker/adopt","body":"*"},
  inspectContainer: {"service":"svc.v1.DockerService","method":"inspectContainer","httpMethod":"GET","path":"/v1/docker/containers/{container}","body":""},
  getContainerLogs: {"service":"svc.v1.DockerService","method":"getContainerLogs","httpMethod":"GET","path":"/v1/docker/containers/{container}/logs","body":""},
  listDirectory: {"service":"svc.v1.FileService","method":"listDirectory","httpMethod":"GET","path":"/v1/files","body":""},
  statPath: {"service":"svc.v1.FileService","method":"statPath","httpMethod":"GET","path":"/v1/files/stat","body":""},
  createDirectory: {"service":"svc.v1.FileService","method":"createDirectory","httpMethod":"POST","path":"/v1/files/directory","body":"*"},
  movePath: {"service":"svc.v1.FileService","method":"movePath","httpMethod":"POST","path":"/v1/files/move","body":"*"},
  copyPath: {"service":"svc.v1.FileService","method":"copyPath","httpMethod":"POST","path":"/v1/files/copy","body":"*"},
  deletePaths: {"service":"svc.v1.FileService","method":"deletePaths","httpMethod":"POST","path":"/v1/files/delete","body":"*"},
  createArchive: {"service":"svc.v1.FileService","method":"createArchive","httpMethod":"POST","path":"/v1/files/archive","body":"*"},
  extractArchive: {"service":"svc.v1.FileService","method":"extractArchive","httpMethod":"POST","path":"/v1/files/extract","body":"*"},
  setPathAttributes: {"service":"svc.v1.FileService","method":"setPathAttributes","httpMethod":"POST","path":"/v1/files/attributes","body":"*"},
  listSystemIdentities: {"service":"svc.v1.FileService","method":"listSystemIdentities","httpMethod":"GET","path":"/v1/files/identities","body":""},
  getSystemMetrics: {"service":"svc.v1.MonitorService","method":"getSystemMetrics","httpMethod":"GET","path":"/v1/metrics","body":""},
  getMetricsHistory: {"service":"svc.v1.MonitorService","method":"getMetricsHistory","httpMethod":"GET","path":"/v1/metrics/history","body":""},
  listListeningPorts: {"service":"svc.v1.MonitorService","method":"listListeningPorts","httpMethod":"GET","path":"/v1/ports/listening","body":""},
  listProcesses: {"service":"svc.v1.ProcessService","method":"listProcesses","httpMethod":"GET","path":"/v1/processes","body":""},
  signalProcess: {"service":"svc.v1.ProcessService","method":"signalProcess","httpMethod":"POST","path":"/v1/processes/{pid}/signal","body":"*"},
  listSchedules: {"service":"svc.v1.ScheduleService","method":"listSchedules","httpMethod":"GET","path":"/v1/schedules","body":""},
  getSchedule: {"service":"svc.v1.ScheduleService","method":"getSchedule","httpMethod":"GET","path":"/v1/schedules/{id}","body":""},
  upsertSchedule: {"service":"svc.v1.ScheduleService","method":"upsertSchedule","httpMethod":"PUT","path":"/v1/schedules/{id}","body":"*"},
  removeSchedule: {"service":"svc.v1.ScheduleService","method":"removeSchedule","httpMethod":"DELETE","path":"/v1/schedules/{id}","body":""},
  replaceManagedSchedules: {"service":"svc.v1.ScheduleService","method":"replaceManagedSchedules","httpMethod":"PUT","path":"/v1/schedules/managed/{managed_by}","body":"*"},
  runSchedule: {"service":"svc.v1.ScheduleService","method":"runSchedule","httpMethod":"POST","path":"/v1/schedules/{id}/run","body":"*"},
  cancelScheduleRun: {"service":"svc.v1.ScheduleService","method":"cancelScheduleRun","httpMethod":"POST","path":"/v1/schedules/{id}/cancel","body":"*"},
  listScheduleRuns: {"service":"svc.v1.ScheduleService","method":"listScheduleRuns","httpMethod":"GET","path":"/v1/schedules/{id}/runs","body":""},
  previewSchedule: {"service":"svc.v1.ScheduleService","method":"previewSchedule","httpMethod":"POST","path":"/v1/schedules/preview","body":"*"},
  issueSessionCode: {"service":"svc.v1.SessionService","method":"issueSessionCode","httpMethod":"POST","path":"/v1/sessions/codes","body":"*"},
  openSession: {"service":"svc.v1.SessionService","method":"openSession","httpMethod":"POST","path":"/v1/sessions","body":"*"},
  listSessions: {"service":"svc.v1.SessionService","method":"listSessions","httpMethod":"GET","path":"/v1/sessions","body":""},
  endSession: {"service":"svc.v1.SessionService","method":"endSession","httpMethod":"DELETE","path":"/v1/sessions/{id}","body":""},
  endSessions: {"service":"svc.v1.SessionService","method":"endSessions","httpMethod":"DELETE","path":"/v1/sessions","body":""},
  listSources: {"service":"svc.v1.SourceService","method":"listSources","httpMethod":"GET","path":"/v1/sources","body":""},
  upsertSource: {"service":"svc.v1.SourceService","method":"upsertSource","httpMethod":"PUT","path":"/v1/sources/{name}","body":"*"},
  removeSource: {"service":"svc.v1.SourceService","method":"removeSource","httpMethod":"DELETE","path":"/v1/sources/{name}","body":""},
  searchPackages: {"service":"svc.v1.SourceService","method":"searchPackages","httpMethod":"GET","path":"/v1/packages","body":""},
  rebootSystem: {"service":"svc.v1.SystemService","method":"rebootSystem","httpMethod":"POST","path":"/v1/system/reboot","body":"*"},
  getTokenStatus: {"service":"svc.v1.TokenService","method":"getTokenStatus","httpMethod":"GET","path":"/v1/token","body":""},
  issueAccessToken: {"service":"svc.v1.TokenService","method":"issueAccessToken","httpMethod":"POST","path":"/v1/token/access","body":"*"},
  revokeAccessTokens: {"service":"svc.v1.TokenService","method":"revokeAccessTokens","httpMethod":"DELETE","path":"/v1/token/access","body":""},
  rotatePrimaryToken: {"service":"svc.v1.TokenService","method":"rotatePrimaryToken","httpMethod":"POST","path":"/v1/token/rotate","body":"*"},
  commitPrimaryTokenRotation: {"service":"svc.v1.TokenService","method":"commitPrimaryTokenRotation","httpMethod":"POST","path":"/v1/token/rotate/commit","body":"*"},
} as const;

/** Types of the methods above, and how their messages name fields in JSON. */
export interface RestMethods {
  listOperations: { method: (typeof OperationService)["method"]["listOperations"]; naming: "snake" };
  getOperation: { method: (typeof OperationService)["method"]["getOperation"]; naming: "snake" };
  cancelOperation: { method: (typeof OperationService)["method"]["cancelOperation"]; naming: "snake" };
  listApps: { method: (typeof AppService)["method"]["listApps"]; naming: "snake" };
  installApp: { method: (typeof AppService)["method"]["installApp"]; naming: "snake" };
  getApp: { method: (typeof AppService)["method"]["getApp"]; naming: "snake" };
  removeApp: { method: (typeof AppService)["method"]["removeApp"]; naming: "snake" };
  getAppDisk: { method: (typeof AppService)["method"]["getAppDisk"]; naming: "snake" };
  getAppImage: { method: (typeof AppService)["method"]["getAppImage"]; naming: "snake" };
  repullApp: { method: (typeof AppService)["method"]["repullApp"]; naming: "snake" };
  listAppPorts: { method: (typeof AppService)["method"]["listAppPorts"]; naming: "snake" };
  listUpdates: { method: (typeof AppService)["method"]["listUpdates"]; naming: "snake" };
  upgradeApp: { method: (typeof AppService)["method"]["upgradeApp"]; naming: "snake" };
  cloneApp: { method: (typeof AppService)["method"]["cloneApp"]; naming: "snake" };
  startApp: { method: (typeof AppService)["method"]["startApp"]; naming: "snake" };
  stopApp: { method: (typeof AppService)["method"]["stopApp"]; naming: "snake" };
  restartApp: { method: (typeof AppService)["method"]["restartApp"]; naming: "snake" };
  placeApp: { method: (typeof AppService)["method"]["placeApp"]; naming: "snake" };
  scaleApp: { method: (typeof AppService)["method"]["scaleApp"]; naming: "snake" };
  renameApp: { method: (typeof AppService)["method"]["renameApp"]; naming: "snake" };
  cancelAppOperation: { method: (typeof AppService)["method"]["cancelAppOperation"]; naming: "snake" };
  exportApp: { method: (typeof AppService)["method"]["exportApp"]; naming: "snake" };
  getAppLogs: { method: (typeof AppService)["method"]["getAppLogs"]; naming: "snake" };
  getAppSettings: { method: (typeof AppService)["method"]["getAppSettings"]; naming: "snake" };
  updateAppSettings: { method: (typeof AppService)["method"]["updateAppSettings"]; naming: "snake" };
  issueConsoleToken: { method: (typeof AppService)["method"]["issueConsoleToken"]; naming: "snake" };
  getDiskReport: { method: (typeof AppService)["method"]["getDiskReport"]; naming: "snake" };
  getPortReport: { method: (typeof AppService)["method"]["getPortReport"]; naming: "snake" };
  getAppStats: { method: (typeof AppService)["method"]["getAppStats"]; naming: "snake" };
  getAppStatsHistory: { method: (typeof AppService)["method"]["getAppStatsHistory"]; naming: "snake" };
  listStacks: { method: (typeof AppService)["method"]["listStacks"]; naming: "snake" };
  listAudit: { method: (typeof AuditService)["method"]["listAudit"]; naming: "snake" };
  verifyAudit: { method: (typeof AuditService)["method"]["verifyAudit"]; naming: "snake" };
  listBackups: { method: (typeof BackupService)["method"]["listBackups"]; naming: "snake" };
  listBackupStorages: { method: (typeof BackupService)["method"]["listBackupStorages"]; naming: "snake" };
  upsertBackupStorage: { method: (typeof BackupService)["method"]["upsertBackupStorage"]; naming: "snake" };
  removeBackupStorage: { method: (typeof BackupService)["method"]["removeBackupStorage"]; naming: "snake" };
  testBackupStorage: { method: (typeof BackupService)["method"]["testBackupStorage"]; naming: "snake" };
  createBackup: { method: (typeof BackupService)["method"]["createBackup"]; naming: "snake" };
  restoreBackup: { method: (typeof BackupService)["method"]["restoreBackup"]; naming: "snake" };
  getBackup: { method: (typeof BackupService)["method"]["getBackup"]; naming: "snake" };
  verifyBackup: { method: (typeof BackupService)["method"]["verifyBackup"]; naming: "snake" };
  deleteBackup: { method: (typeof BackupService)["method"]["deleteBackup"]; naming: "snake" };
  browseBackup: { method: (typeof BackupService)["method"]["browseBackup"]; naming: "snake" };
  getBackupPolicy: { method: (typeof BackupService)["method"]["getBackupPolicy"]; naming: "snake" };
  setBackupPolicy: { method: (typeof BackupService)["method"]["setBackupPolicy"]; naming: "snake" };
  listCredentials: { method: (typeof CredentialService)["method"]["listCredentials"]; naming: "snake" };
  upsertCredential: { method: (typeof CredentialService)["method"]["upsertCredential"]; naming: "snake" };
  removeCredential: { method: (typeof CredentialService)["method"]["removeCredential"]; naming: "snake" };
  getStatus: { method: (typeof DaemonService)["method"]["getStatus"]; naming: "snake" };
  reloadConfig: { method: (typeof DaemonService)["method"]["reloadConfig"]; naming: "snake" };
  listContainers: { method: (typeof DockerService)["method"]["listContainers"]; naming: "camel" };
  listContainerStats: { method: (typeof DockerService)["method"]["listContainerStats"]; naming: "camel" };
  listImages: { method: (typeof DockerService)["method"]["listImages"]; naming: "camel" };
  listVolumes: { method: (typeof DockerService)["method"]["listVolumes"]; naming: "camel" };
  listNetworks: { method: (typeof DockerService)["method"]["listNetworks"]; naming: "camel" };
  getDockerDiskUsage: { method: (typeof DockerService)["method"]["getDockerDiskUsage"]; naming: "camel" };
  pruneDocker: { method: (typeof DockerService)["method"]["pruneDocker"]; naming: "camel" };
  controlContainer: { method: (typeof DockerService)["method"]["controlContainer"]; naming: "camel" };
  listUnmanagedStacks: { method: (typeof DockerService)["method"]["listUnmanagedStacks"]; naming: "camel" };
  adoptStack: { method: (typeof DockerService)["method"]["adoptStack"]; naming: "camel" };
  inspectContainer: { method: (typeof DockerService)["method"]["inspectContainer"]; naming: "camel" };
  getContainerLogs: { method: (typeof DockerService)["method"]["getContainerLogs"]; naming: "camel" };
  listDirectory: { method: (typeof FileService)["method"]["listDirectory"]; naming: "snake" };
  statPath: { method: (typeof FileService)["method"]["statPath"]; naming: "snake" };
  createDirectory: { method: (typeof FileService)["method"]["createDirectory"]; naming: "snake" };
  movePath: { method: (typeof FileService)["method"]["movePath"]; naming: "snake" };
  copyPath: { method: (typeof FileService)["method"]["copyPath"]; naming: "snake" };
  deletePaths: { method: (typeof FileService)["method"]["deletePaths"]; naming: "snake" };
  createArchive: { method: (typeof FileService)["method"]["createArchive"]; naming: "snake" };
  extractArchive: { method: (typeof FileService)["method"]["extractArchive"]; naming: "snake" };
  setPathAttributes: { method: (typeof FileService)["method"]["setPathAttributes"]; naming: "snake" };
  listSystemIdentities: { method: (typeof FileService)["method"]["listSystemIdentities"]; naming: "snake" };
  getSystemMetrics: { method: (typeof MonitorService)["method"]["getSystemMetrics"]; naming: "camel" };
  getMetricsHistory: { method: (typeof MonitorService)["method"]["getMetricsHistory"]; naming: "camel" };
  listListeningPorts: { method: (typeof MonitorService)["method"]["listListeningPorts"]; naming: "camel" };
  listProcesses: { method: (typeof ProcessService)["method"]["listProcesses"]; naming: "camel" };
  signalProcess: { method: (typeof ProcessService)["method"]["signalProcess"]; naming: "camel" };
  listSchedules: { method: (typeof ScheduleService)["method"]["listSchedules"]; naming: "snake" };
  getSchedule: { method: (typeof ScheduleService)["method"]["getSchedule"]; naming: "snake" };
  upsertSchedule: { method: (typeof ScheduleService)["method"]["upsertSchedule"]; naming: "snake" };
  removeSchedule: { method: (typeof ScheduleService)["method"]["removeSchedule"]; naming: "snake" };
  replaceManagedSchedules: { method: (typeof ScheduleService)["method"]["replaceManagedSchedules"]; naming: "snake" };
  runSchedule: { method: (typeof ScheduleService)["method"]["runSchedule"]; naming: "snake" };
  cancelScheduleRun: { method: (typeof ScheduleService)["method"]["cancelScheduleRun"]; naming: "snake" };
  listScheduleRuns: { method: (typeof ScheduleService)["method"]["listScheduleRuns"]; naming: "snake" };
  previewSchedule: { method: (typeof ScheduleService)["method"]["previewSchedule"]; naming: "snake" };
  issueSessionCode: { method: (typeof SessionService)["method"]["issueSessionCode"]; naming: "snake" };
  openSession: { method: (typeof SessionService)["method"]["openSession"]; naming: "snake" };
  listSessions: { method: (typeof SessionService)["method"]["listSessions"]; naming: "snake" };
  endSession: { method: (typeof SessionService)["method"]["endSession"]; naming: "snake" };
  endSessions: { method: (typeof SessionService)["method"]["endSessions"]; naming: "snake" };
  listSources: { method: (typeof SourceService)["method"]["listSources"]; naming: "snake" };
  upsertSource: { method: (typeof SourceService)["method"]["upsertSource"]; naming: "snake" };
  removeSource: { method: (typeof SourceService)["method"]["removeSource"]; naming: "snake" };
  searchPackages: { method: (typeof SourceService)["method"]["searchPackages"]; naming: "snake" };
  rebootSystem: { method: (typeof SystemService)["method"]["rebootSystem"]; naming: "snake" };
  getTokenStatus: { method: (typeof TokenService)["method"]["getTokenStatus"]; naming: "snake" };
  issueAccessToken: { method: (typeof TokenService)["method"]["issueAccessToken"]; naming: "snake" };
  revokeAccessTokens: { method: (typeof TokenService)["method"]["revokeAccessTokens"]; naming: "snake" };
  rotatePrimaryToken: { method: (typeof TokenService)["method"]["rotatePrimaryToken"]; naming: "snake" };
  commitPrimaryTokenRotation: { method: (typeof TokenService)["method"]["commitPrimaryTokenRotation"]; naming: "snake" };
}
