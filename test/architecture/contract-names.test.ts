/**
 * Spellings for clients: JSON names, methods and paths have a fixed spelling where clients depend on it, and follow one
 * rule elsewhere.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import {
  ScalarType,
  createFileRegistry,
  fromBinary,
  type DescField,
  type DescMessage,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { routes } from "../../gen/svc/v1/routes.ts";
import { root } from "./sources.ts";

const registry = createFileRegistry(
  fromBinary(FileDescriptorSetSchema, await readFile(join(root, "gen/svc.binpb"))),
);
const files = [...registry.files].filter((file) => file.name.startsWith("svc/v1/"));

/** Files whose other fields are camelCase. */
const camelFiles = ["svc/v1/docker", "svc/v1/process", "svc/v1/monitor"];
/** Never JSON of an API: options of the contract, and the envelope of error details, whose keys are reasons. */
const unspoken = ["svc/v1/rules", "svc/v1/access", "svc/v1/error"];
/** Exceptions from the rule of their file. */
const shownOtherwise = ["GetAppImageRequest.checkRemote"];

for (const file of files.filter(({ name }) => !unspoken.includes(name))) {
  const style = camelFiles.includes(file.name) ? "camelCase" : "snake_case";
  test(`fields of ${file.name}.proto are ${style} in JSON`, (t) => {
    const wrong = style === "camelCase" ? /_/ : /[A-Z]/;
    const strays = file.messages
      .flatMap((message) => nestedIn(message))
      .flatMap((message) => message.fields.map((field) => `${message.name}.${field.jsonName}`))
      .filter((name) => wrong.test(name.split(".")[1] ?? "") && !shownOtherwise.includes(name));
    t.deepEqual(strays, []);
  });
}

function nestedIn(message: DescMessage): DescMessage[] {
  return [message, ...message.nestedMessages.flatMap(nestedIn)];
}

/** Fixed names, by message. */
const shown: Record<string, string[]> = {
  App: ["id", "name"],
  InstallAppRequest: ["spec", "source", "name", "branch", "tag", "license_ack"],
  GetAppImageRequest: ["checkRemote"],
  GetAppLogsRequest: ["tail", "timestamps"],
  UpgradeAppResponse: ["id", "up_to_date", "from", "to"],
  CloneAppResponse: ["id", "name", "copied_bytes"],
  AppSettings: ["schema", "values"],
  StreamAppStatsRequest: ["min_interval_secs"],
  IssueConsoleTokenRequest: ["session"],
  GetStatusResponse: ["version", "capabilities"],
  ListProcessesRequest: ["kernelThreads"],
  Process: ["startTicks"],
  SignalProcessRequest: ["signal", "expectedStartTicks"],
  ListContainersRequest: ["all", "size"],
  Image: ["svcProtected", "protectedReason"],
  Volume: ["svcProtected", "protectedReason"],
  PruneDockerRequest: ["target", "dryRun", "danglingOnly"],
  PruneDockerResponse: ["skipped"],
  ControlContainerRequest: ["container", "composeProject", "action"],
  ListBackupsRequest: ["app_id", "storage"],
  ListBackupsResponse: ["errors"],
  UpsertBackupStorageRequest: ["managed_by", "s3", "local"],
  S3Location: ["endpoint", "region", "bucket", "access_key", "secret_key", "prefix"],
  CreateBackupRequest: ["storages", "keep"],
  RestoreBackupRequest: ["storage", "name", "stop_app"],
  ListSchedulesRequest: ["managed_by"],
  Schedule: [
    "id",
    "trigger",
    "utc",
    "enabled",
    "comment",
    "managed_by",
    "action",
    "timeout",
    "keep",
    "next_run_unix",
  ],
  ReplaceManagedSchedulesRequest: ["schedules"],
  RunScheduleResponse: ["started", "run"],
  ScheduleRun: ["status", "output", "error"],
  IssueAccessTokenRequest: ["ttl_secs", "label"],
  RevokeAccessTokensResponse: ["revoked"],
  RotatePrimaryTokenRequest: ["grace_secs"],
  ListDirectoryRequest: ["path", "hidden"],
  ReadFileRequest: ["path", "offset"],
  WriteFileRequest: ["path", "name", "overwrite"],
};

for (const [message, names] of Object.entries(shown)) {
  test(`${message} has its fixed field names`, (t) => {
    const fields = registry.getMessage(`svc.v1.${message}`)?.fields.map((field) => field.jsonName) ?? [];
    t.deepEqual(
      names.filter((name) => !fields.includes(name)),
      [],
    );
  });
}

/** Fixed routes. `-`: any method name. */
const endpoints = `
GET /v1/status DaemonService.GetStatus
GET /v1/apps AppService.ListApps
POST /v1/apps AppService.InstallApp
GET /v1/apps/{id} AppService.GetApp
DELETE /v1/apps/{id} AppService.RemoveApp
GET /v1/apps/{id}/disk AppService.GetAppDisk
GET /v1/apps/{id}/image AppService.GetAppImage
POST /v1/apps/{id}/repull AppService.RepullApp
GET /v1/apps/{id}/ports -
POST /v1/apps/{id}/upgrade -
POST /v1/apps/{id}/clone AppService.CloneApp
POST /v1/apps/{id}/start AppService.StartApp
POST /v1/apps/{id}/stop AppService.StopApp
POST /v1/apps/{id}/restart AppService.RestartApp
GET /v1/apps/{id}/logs AppService.GetAppLogs
GET /v1/apps/{id}/settings -
PUT /v1/apps/{id}/settings -
POST /v1/apps/{id}/console-token AppService.IssueConsoleToken
GET /v1/disk -
GET /v1/ports -
GET /v1/stats AppService.GetAppStats
GET /v1/metrics MonitorService.GetSystemMetrics
GET /v1/metrics/history MonitorService.GetMetricsHistory
GET /v1/ports/listening MonitorService.ListListeningPorts
GET /v1/processes ProcessService.ListProcesses
POST /v1/processes/{pid}/signal ProcessService.SignalProcess
POST /v1/system/reboot SystemService.RebootSystem
GET /v1/docker/containers DockerService.ListContainers
GET /v1/docker/stats DockerService.ListContainerStats
GET /v1/docker/images DockerService.ListImages
GET /v1/docker/volumes DockerService.ListVolumes
GET /v1/docker/networks DockerService.ListNetworks
GET /v1/docker/disk-usage DockerService.GetDockerDiskUsage
POST /v1/docker/prune DockerService.PruneDocker
POST /v1/docker/control DockerService.ControlContainer
GET /v1/backups BackupService.ListBackups
GET /v1/backups/storages BackupService.ListBackupStorages
PUT /v1/backups/storages/{name} BackupService.UpsertBackupStorage
DELETE /v1/backups/storages/{name} BackupService.RemoveBackupStorage
POST /v1/apps/{id}/backups BackupService.CreateBackup
POST /v1/apps/{id}/backups/restore BackupService.RestoreBackup
DELETE /v1/apps/{id}/backups/{storage}/{name} BackupService.DeleteBackup
GET /v1/schedules ScheduleService.ListSchedules
PUT /v1/schedules/{id} ScheduleService.UpsertSchedule
DELETE /v1/schedules/{id} ScheduleService.RemoveSchedule
PUT /v1/schedules/managed/{managed_by} ScheduleService.ReplaceManagedSchedules
POST /v1/schedules/{id}/run ScheduleService.RunSchedule
GET /v1/schedules/{id}/runs ScheduleService.ListScheduleRuns
GET /v1/token TokenService.GetTokenStatus
POST /v1/token/access TokenService.IssueAccessToken
DELETE /v1/token/access TokenService.RevokeAccessTokens
POST /v1/token/rotate TokenService.RotatePrimaryToken
POST /v1/token/rotate/commit TokenService.CommitPrimaryTokenRotation
GET /v1/files FileService.ListDirectory
GET /v1/files/stat FileService.StatPath
POST /v1/files/directory FileService.CreateDirectory
POST /v1/files/move FileService.MovePath
POST /v1/files/copy FileService.CopyPath
POST /v1/files/delete FileService.DeletePaths
POST /v1/files/archive FileService.CreateArchive
GET /v1/files/content FileService.ReadFile
PUT /v1/files/content FileService.WriteFile
POST /v1/files/attributes FileService.SetPathAttributes
GET /v1/files/identities FileService.ListSystemIdentities
`
  .trim()
  .split("\n");

/** Variables by position: the name of a path variable is not visible to clients. */
function shapeOf(path: string): string {
  return path.replaceAll(/\{[^}]*\}/g, "{}");
}

for (const endpoint of endpoints) {
  const [httpMethod = "", path = "", rpc = ""] = endpoint.split(" ");
  test(`${httpMethod} ${path} is ${rpc === "-" ? "a method" : rpc}`, (t) => {
    const route = routes.find(
      (each) => each.httpMethod === httpMethod && shapeOf(each.template.source) === shapeOf(path),
    );
    t.truthy(route, "no such route in gen/svc/v1/routes.ts");
    if (route && rpc !== "-") t.is(`${route.method.parent.name}.${route.method.name}`, rpc);
  });
}

for (const [service, method] of [
  ["AppService", "StreamAppStats"],
  ["AppService", "CloneAppStream"],
] as const) {
  test(`${service}.${method} streams and has no REST route`, (t) => {
    const methods = registry.getService(`svc.v1.${service}`)?.methods ?? [];
    t.is(methods.find(({ name }) => name === method)?.methodKind, "server_streaming");
    t.false(routes.some((route) => route.method.name === method));
  });
}

const putRoutes = routes.filter(
  ({ httpMethod, method, body }) => httpMethod === "PUT" && body === "*" && method.methodKind === "unary",
);
/** Returns a page of written resources. */
const lists = ["ReplaceManagedSchedules"];

for (const { method } of putRoutes.filter(({ method: { name } }) => !lists.includes(name))) {
  test(`the response of ${method.name} can be written back`, (t) => {
    const shapeOfField = ({ fieldKind, scalar, message }: DescField) => [
      fieldKind,
      scalar ?? message?.typeName,
    ];
    const taken = new Map(method.input.fields.map((field) => [field.jsonName, field]));
    for (const field of method.output.fields) {
      const its = taken.get(field.jsonName);
      t.truthy(its, `${method.input.name} has no ${field.jsonName}`);
      if (its) t.deepEqual(shapeOfField(its), shapeOfField(field));
    }
  });
}

test("an owner is always a user ID, except an owner of files, which is a name", (t) => {
  const owners = files
    .filter(({ name }) => name !== "svc/v1/file")
    .flatMap((file) => file.messages.flatMap((message) => nestedIn(message)))
    .flatMap((message) => message.fields)
    .filter((field) => field.jsonName === "owner");
  t.true(owners.length > 5);
  t.deepEqual(
    owners.filter((field) => field.scalar !== ScalarType.UINT32).map((field) => field.toString()),
    [],
  );
});
