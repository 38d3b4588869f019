/** The calls that commands make, as generated: types of the contract without its descriptors. */
import type { MessageShape } from "@bufbuild/protobuf";
import { restCalls, type RestMethods } from "../../../gen/svc/v1/calls.ts";
import type { DockerService } from "../../../gen/svc/v1/docker_pb.ts";
import type { EventService } from "../../../gen/svc/v1/event_pb.ts";
import type { RestShape } from "./rest-shape.ts";

/** A unary method as REST exposes it. `Request` and `Response` are its types in REST JSON. */
export interface UnaryCall<Request, Response> {
  /** Full name of the service, such as `svc.v1.AppService`. */
  readonly service: string;
  /** Method name in the generated service, such as `listApps`. */
  readonly method: string;
  readonly httpMethod: "GET" | "POST" | "PUT" | "DELETE";
  /** Path template: each `{field}` is filled from the request. */
  readonly path: string;
  /** Where the remaining fields go: `*` for the body, empty for the query. */
  readonly body: "*" | "";
  /** For types only; never set. */
  readonly types?: (request: Request) => Response;
}

type Name = keyof RestMethods;
type RequestOf<N extends Name> = Partial<
  RestShape<MessageShape<RestMethods[N]["method"]["input"]>, RestMethods[N]["naming"]>
>;
type ResponseOf<N extends Name> = RestShape<
  MessageShape<RestMethods[N]["method"]["output"]>,
  RestMethods[N]["naming"]
>;

export const calls: { readonly [N in Name]: UnaryCall<RequestOf<N>, ResponseOf<N>> } = restCalls;

/** Responses that more than one command shows. */
export type App = ResponseOf<"getApp">;
export type AppDisk = ResponseOf<"getAppDisk">;
export type AppSettings = ResponseOf<"getAppSettings">;
export type Credential = ResponseOf<"upsertCredential">;
export type BackupArchive = ResponseOf<"listBackups">["backups"][number];
export type BackupEntry = ResponseOf<"browseBackup">["entries"][number];
export type BackupPolicy = ResponseOf<"getBackupPolicy">;
export type BackupStorage = ResponseOf<"upsertBackupStorage">;
export type StorageUse = ResponseOf<"removeBackupStorage">["used_by"][number];
export type Source = ResponseOf<"upsertSource">;
export type FoundPackages = ResponseOf<"searchPackages">;
export type ListedPackage = FoundPackages["packages"][number];
export type AppUpdate = ResponseOf<"listUpdates">["updates"][number];
export type Status = ResponseOf<"getStatus">;
export type Listeners = Status["listeners"];
export type Operation = ResponseOf<"getOperation">;
export type AuditRecord = ResponseOf<"listAudit">["records"][number];
export type Schedule = ResponseOf<"getSchedule">;
export type ScheduleRequest = RequestOf<"upsertSchedule">;
export type ScheduleRuns = ResponseOf<"listScheduleRuns">;
export type ScheduleRun = ResponseOf<"cancelScheduleRun">;
export type ScheduleFiring = ResponseOf<"previewSchedule">["firings"][number];
export type AppStats = ResponseOf<"getAppStats">["stats"][number];

export type Container = ResponseOf<"listContainers">["containers"][number];
export type UnmanagedStack = ResponseOf<"listUnmanagedStacks">["stacks"][number];
export type AdoptionPlan = NonNullable<ResponseOf<"adoptStack">["plan"]>;
export type ContainerDetails = ResponseOf<"inspectContainer">;
export type ContainerStats = ResponseOf<"listContainerStats">["stats"][number];
export type ControlResult = ResponseOf<"controlContainer">;
export type DockerEvent = RestShape<
  MessageShape<(typeof DockerService)["method"]["streamDockerEvents"]["output"]>,
  "camel"
>;
export type Event = RestShape<MessageShape<(typeof EventService)["method"]["streamEvents"]["output"]>>;
export type Image = ResponseOf<"listImages">["images"][number];
export type Network = ResponseOf<"listNetworks">["networks"][number];
export type PruneResult = ResponseOf<"pruneDocker">;
export type Volume = ResponseOf<"listVolumes">["volumes"][number];

export type HostMetrics = ResponseOf<"getSystemMetrics">;
export type HostProcess = ResponseOf<"listProcesses">["processes"][number];
