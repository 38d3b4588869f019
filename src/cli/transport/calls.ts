/**
 * The unary methods that the commands call, bound to HTTP as the contract's `google.api.http` binds them.
 *
 * Plain strings, because loading the generated descriptors takes as long as starting Node itself. The types come from
 * the generated services, and a test holds every line against the generated route table.
 */
import type { DescMethod, MessageShape } from "@bufbuild/protobuf";
import type { AppService } from "../../../gen/svc/v1/app_pb.ts";
import type { AuditService } from "../../../gen/svc/v1/audit_pb.ts";
import type { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import type { CredentialService } from "../../../gen/svc/v1/credential_pb.ts";
import type { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import type { DockerService } from "../../../gen/svc/v1/docker_pb.ts";
import type { MonitorService } from "../../../gen/svc/v1/monitor_pb.ts";
import type { ProcessService } from "../../../gen/svc/v1/process_pb.ts";
import type { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import type { SourceService } from "../../../gen/svc/v1/source_pb.ts";
import type { SystemService } from "../../../gen/svc/v1/system_pb.ts";
import type { TokenService } from "../../../gen/svc/v1/token_pb.ts";
import type { Naming, RestShape } from "./rest-shape.ts";

/** A unary method as REST reaches it. `Request` and `Response` are its types in REST JSON. */
export interface UnaryCall<Request, Response> {
  /** Full name of its service, such as `svc.v1.AppService`. */
  readonly service: string;
  /** Its name in the generated service, such as `listApps`. */
  readonly method: string;
  readonly httpMethod: "GET" | "POST" | "PUT" | "DELETE";
  /** Path template: every `{field}` is filled from the request; the rest goes to the query or the body. */
  readonly path: string;
  /** Types only: never set. */
  readonly types?: (request: Request) => Response;
}

type RequestOf<M extends DescMethod, Style extends Naming = "snake"> = Partial<
  RestShape<MessageShape<M["input"]>, Style>
>;
type ResponseOf<M extends DescMethod, Style extends Naming = "snake"> = RestShape<
  MessageShape<M["output"]>,
  Style
>;

function callsOf<Methods extends Record<string, DescMethod>, Style extends Naming = "snake">(
  service: string,
) {
  return <Name extends keyof Methods & string>(
    method: Name,
    httpMethod: UnaryCall<never, never>["httpMethod"],
    path: string,
  ): UnaryCall<RequestOf<Methods[Name], Style>, ResponseOf<Methods[Name], Style>> => ({
    service,
    method,
    httpMethod,
    path,
  });
}

const app = callsOf<(typeof AppService)["method"]>("svc.v1.AppService");
const audit = callsOf<(typeof AuditService)["method"]>("svc.v1.AuditService");
const backup = callsOf<(typeof BackupService)["method"]>("svc.v1.BackupService");
const credential = callsOf<(typeof CredentialService)["method"]>("svc.v1.CredentialService");
const daemon = callsOf<(typeof DaemonService)["method"]>("svc.v1.DaemonService");
const docker = callsOf<(typeof DockerService)["method"], "camel">("svc.v1.DockerService");
const monitor = callsOf<(typeof MonitorService)["method"], "camel">("svc.v1.MonitorService");
const processes = callsOf<(typeof ProcessService)["method"], "camel">("svc.v1.ProcessService");
const schedule = callsOf<(typeof ScheduleService)["method"]>("svc.v1.ScheduleService");
const source = callsOf<(typeof SourceService)["method"]>("svc.v1.SourceService");
const system = callsOf<(typeof SystemService)["method"]>("svc.v1.SystemService");
const token = callsOf<(typeof TokenService)["method"]>("svc.v1.TokenService");

export const calls = {
  getStatus: daemon("getStatus", "GET", "/v1/status"),
  listApps: app("listApps", "GET", "/v1/apps"),
  getApp: app("getApp", "GET", "/v1/apps/{id}"),
  removeApp: app("removeApp", "DELETE", "/v1/apps/{id}"),
  startApp: app("startApp", "POST", "/v1/apps/{id}/start"),
  stopApp: app("stopApp", "POST", "/v1/apps/{id}/stop"),
  restartApp: app("restartApp", "POST", "/v1/apps/{id}/restart"),
  getAppDisk: app("getAppDisk", "GET", "/v1/apps/{id}/disk"),
  listAppPorts: app("listAppPorts", "GET", "/v1/apps/{id}/ports"),
  getAppLogs: app("getAppLogs", "GET", "/v1/apps/{id}/logs"),
  getAppSettings: app("getAppSettings", "GET", "/v1/apps/{id}/settings"),
  updateAppSettings: app("updateAppSettings", "PUT", "/v1/apps/{id}/settings"),
  getDiskReport: app("getDiskReport", "GET", "/v1/disk"),
  getPortReport: app("getPortReport", "GET", "/v1/ports"),
  getAppStats: app("getAppStats", "GET", "/v1/stats"),
  listStacks: app("listStacks", "GET", "/v1/stacks"),
  listAudit: audit("listAudit", "GET", "/v1/audit"),
  verifyAudit: audit("verifyAudit", "GET", "/v1/audit/verification"),
  listBackups: backup("listBackups", "GET", "/v1/backups"),
  getBackup: backup("getBackup", "GET", "/v1/apps/{app_id}/backups/{storage}/{name}"),
  deleteBackup: backup("deleteBackup", "DELETE", "/v1/apps/{app_id}/backups/{storage}/{name}"),
  browseBackup: backup("browseBackup", "GET", "/v1/apps/{app_id}/backups/{storage}/{name}/entries"),
  listBackupStorages: backup("listBackupStorages", "GET", "/v1/backups/storages"),
  upsertBackupStorage: backup("upsertBackupStorage", "PUT", "/v1/backups/storages/{name}"),
  getBackupPolicy: backup("getBackupPolicy", "GET", "/v1/apps/{app_id}/backup-policy"),
  setBackupPolicy: backup("setBackupPolicy", "PUT", "/v1/apps/{app_id}/backup-policy"),
  testBackupStorage: backup("testBackupStorage", "POST", "/v1/backups/storages/{name}/test"),
  removeBackupStorage: backup("removeBackupStorage", "DELETE", "/v1/backups/storages/{name}"),
  listContainers: docker("listContainers", "GET", "/v1/docker/containers"),
  listContainerStats: docker("listContainerStats", "GET", "/v1/docker/stats"),
  listImages: docker("listImages", "GET", "/v1/docker/images"),
  listVolumes: docker("listVolumes", "GET", "/v1/docker/volumes"),
  listNetworks: docker("listNetworks", "GET", "/v1/docker/networks"),
  getDockerDiskUsage: docker("getDockerDiskUsage", "GET", "/v1/docker/disk-usage"),
  pruneDocker: docker("pruneDocker", "POST", "/v1/docker/prune"),
  controlContainer: docker("controlContainer", "POST", "/v1/docker/control"),
  inspectContainer: docker("inspectContainer", "GET", "/v1/docker/containers/{container}"),
  getContainerLogs: docker("getContainerLogs", "GET", "/v1/docker/containers/{container}/logs"),
  getSystemMetrics: monitor("getSystemMetrics", "GET", "/v1/metrics"),
  getMetricsHistory: monitor("getMetricsHistory", "GET", "/v1/metrics/history"),
  listListeningPorts: monitor("listListeningPorts", "GET", "/v1/ports/listening"),
  listProcesses: processes("listProcesses", "GET", "/v1/processes"),
  signalProcess: processes("signalProcess", "POST", "/v1/processes/{pid}/signal"),
  rebootSystem: system("rebootSystem", "POST", "/v1/system/reboot"),
  listSchedules: schedule("listSchedules", "GET", "/v1/schedules"),
  getSchedule: schedule("getSchedule", "GET", "/v1/schedules/{id}"),
  upsertSchedule: schedule("upsertSchedule", "PUT", "/v1/schedules/{id}"),
  removeSchedule: schedule("removeSchedule", "DELETE", "/v1/schedules/{id}"),
  runSchedule: schedule("runSchedule", "POST", "/v1/schedules/{id}/run"),
  cancelScheduleRun: schedule("cancelScheduleRun", "POST", "/v1/schedules/{id}/cancel"),
  listScheduleRuns: schedule("listScheduleRuns", "GET", "/v1/schedules/{id}/runs"),
  previewSchedule: schedule("previewSchedule", "POST", "/v1/schedules/preview"),
  listSources: source("listSources", "GET", "/v1/sources"),
  upsertSource: source("upsertSource", "PUT", "/v1/sources/{name}"),
  removeSource: source("removeSource", "DELETE", "/v1/sources/{name}"),
  listCredentials: credential("listCredentials", "GET", "/v1/credentials"),
  upsertCredential: credential("upsertCredential", "PUT", "/v1/credentials/{name}"),
  removeCredential: credential("removeCredential", "DELETE", "/v1/credentials/{name}"),
  getTokenStatus: token("getTokenStatus", "GET", "/v1/token"),
  issueAccessToken: token("issueAccessToken", "POST", "/v1/token/access"),
  revokeAccessTokens: token("revokeAccessTokens", "DELETE", "/v1/token/access"),
  rotatePrimaryToken: token("rotatePrimaryToken", "POST", "/v1/token/rotate"),
  commitPrimaryTokenRotation: token("commitPrimaryTokenRotation", "POST", "/v1/token/rotate/commit"),
};

/** The answers that more than one command shows. */
export type App = ResponseOf<(typeof AppService)["method"]["getApp"]>;
export type AppDisk = ResponseOf<(typeof AppService)["method"]["getAppDisk"]>;
export type AppSettings = ResponseOf<(typeof AppService)["method"]["getAppSettings"]>;
export type Credential = ResponseOf<(typeof CredentialService)["method"]["upsertCredential"]>;
type BackupMethods = (typeof BackupService)["method"];
export type BackupArchive = ResponseOf<BackupMethods["listBackups"]>["backups"][number];
export type BackupEntry = ResponseOf<BackupMethods["browseBackup"]>["entries"][number];
export type BackupStorage = ResponseOf<BackupMethods["upsertBackupStorage"]>;
export type BackupPolicy = ResponseOf<BackupMethods["getBackupPolicy"]>;
export type Source = ResponseOf<(typeof SourceService)["method"]["upsertSource"]>;
export type AuditRecord = ResponseOf<(typeof AuditService)["method"]["listAudit"]>["records"][number];
export type Schedule = ResponseOf<(typeof ScheduleService)["method"]["getSchedule"]>;
export type ScheduleRequest = RequestOf<(typeof ScheduleService)["method"]["upsertSchedule"]>;
export type ScheduleRun = ResponseOf<(typeof ScheduleService)["method"]["cancelScheduleRun"]>;
export type ScheduleFiring = ResponseOf<
  (typeof ScheduleService)["method"]["previewSchedule"]
>["firings"][number];
export type AppStats = ResponseOf<(typeof AppService)["method"]["getAppStats"]>["stats"][number];

type DockerMethods = (typeof DockerService)["method"];
export type Container = ResponseOf<DockerMethods["listContainers"], "camel">["containers"][number];
export type ContainerDetails = ResponseOf<DockerMethods["inspectContainer"], "camel">;
export type ContainerStats = ResponseOf<DockerMethods["listContainerStats"], "camel">["stats"][number];
export type ControlResult = ResponseOf<DockerMethods["controlContainer"], "camel">;
export type DockerEvent = ResponseOf<DockerMethods["streamDockerEvents"], "camel">;
export type Image = ResponseOf<DockerMethods["listImages"], "camel">["images"][number];
export type Network = ResponseOf<DockerMethods["listNetworks"], "camel">["networks"][number];
export type PruneResult = ResponseOf<DockerMethods["pruneDocker"], "camel">;
export type Volume = ResponseOf<DockerMethods["listVolumes"], "camel">["volumes"][number];

export type HostMetrics = ResponseOf<(typeof MonitorService)["method"]["getSystemMetrics"], "camel">;
export type HostProcess = ResponseOf<
  (typeof ProcessService)["method"]["listProcesses"],
  "camel"
>["processes"][number];
