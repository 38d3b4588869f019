// Generated from proto/ by src/codegen/protoc-gen-svc-rest.ts; `npm run gen` writes it.

/** Values of `svc.v1.ErrorDetail.reason`. */
export const ErrorDetailReasons = ["unauthenticated","token_denied","root_required","not_found","already_exists","invalid_request","body_too_large","unsupported_media_type","method_not_allowed","upgrade_required","host_denied","origin_denied","license_required","ambiguous","package_invalid","no_manifest","source_failed","git_failed","build_failed","start_failed","app_running","app_not_running","app_busy","pinned_image","volumes_shared","owned_by_app","protected","job_owned","pid_reused","denied","not_possible","conflict","changed","range_not_satisfiable","too_many","disk_full","store_damaged","archive_damaged","archive_refused","not_ready","not_implemented","canceled","deadline_exceeded","unavailable","internal"] as const;
export type ErrorDetailReason = (typeof ErrorDetailReasons)[number];

/** Values of `svc.v1.Operation.kind`. */
export const OperationKinds = ["install","upgrade","clone","backup","restore","verify","repull","place","prune","adopt","move_files","copy_files","create_archive","extract_archive"] as const;
export type OperationKind = (typeof OperationKinds)[number];

/** Values of `svc.v1.Operation.state`. */
export const OperationStates = ["RUNNING","SUCCEEDED","FAILED","CANCELED","INTERRUPTED"] as const;
export type OperationState = (typeof OperationStates)[number];

/** Values of `svc.v1.ListOperationsRequest.state`. */
export const ListOperationsRequestStates = ["RUNNING","SUCCEEDED","FAILED","CANCELED","INTERRUPTED"] as const;
export type ListOperationsRequestState = (typeof ListOperationsRequestStates)[number];

/** Values of `svc.v1.App.runtime`. */
export const AppRuntimes = ["process","docker","compose","service"] as const;
export type AppRuntime = (typeof AppRuntimes)[number];

/** Values of `svc.v1.App.state`. */
export const AppStates = ["INSTALLING","STOPPED","STARTING","RUNNING","STOPPING","UPGRADING","RESTORING","REMOVING","FAILED","CRASHED","UNKNOWN"] as const;
export type AppState = (typeof AppStates)[number];

/** Values of `svc.v1.App.health`. */
export const AppHealths = ["none","starting","healthy","unhealthy"] as const;
export type AppHealth = (typeof AppHealths)[number];

/** Values of `svc.v1.App.status`. */
export const AppStatuses = ["INSTALLING","STOPPED","STARTING","RUNNING","UNHEALTHY","STOPPING","UPGRADING","RESTORING","REMOVING","FAILED","CRASHED","UNKNOWN"] as const;
export type AppStatus = (typeof AppStatuses)[number];

/** Values of `svc.v1.AppPlacement.on`. */
export const AppPlacementOns = ["machine","swarm"] as const;
export type AppPlacementOn = (typeof AppPlacementOns)[number];

/** Values of `svc.v1.AppPlacement.ports`. */
export const AppPlacementPortses = ["host","mesh"] as const;
export type AppPlacementPorts = (typeof AppPlacementPortses)[number];

/** Values of `svc.v1.AppOrigin.kind`. */
export const AppOriginKinds = ["git","directory"] as const;
export type AppOriginKind = (typeof AppOriginKinds)[number];

/** Values of `svc.v1.AppPort.protocol`. */
export const AppPortProtocols = ["tcp","udp"] as const;
export type AppPortProtocol = (typeof AppPortProtocols)[number];

/** Values of `svc.v1.AppLimit.name`. */
export const AppLimitNames = ["memory","cpus","open_files"] as const;
export type AppLimitName = (typeof AppLimitNames)[number];

/** Values of `svc.v1.AppOperation.kind`. */
export const AppOperationKinds = ["install","upgrade","clone","remove","start","stop","restart","settings","restore","repull","backup","adopt"] as const;
export type AppOperationKind = (typeof AppOperationKinds)[number];

/** Values of `svc.v1.AppImage.freshness`. */
export const AppImageFreshnesses = ["current","outdated","unknown"] as const;
export type AppImageFreshness = (typeof AppImageFreshnesses)[number];

/** Values of `svc.v1.ExportAppRequest.to`. */
export const ExportAppRequestTos = ["kubernetes","nomad","quadlet","compose"] as const;
export type ExportAppRequestTo = (typeof ExportAppRequestTos)[number];

/** Values of `svc.v1.LogLine.stream`. */
export const LogLineStreams = ["stdout","stderr","svc"] as const;
export type LogLineStream = (typeof LogLineStreams)[number];

/** Values of `svc.v1.IssueConsoleTokenRequest.session`. */
export const IssueConsoleTokenRequestSessions = ["logs","attach","shell"] as const;
export type IssueConsoleTokenRequestSession = (typeof IssueConsoleTokenRequestSessions)[number];

/** Values of `svc.v1.ConsoleInput.session`. */
export const ConsoleInputSessions = ["logs","attach","shell"] as const;
export type ConsoleInputSession = (typeof ConsoleInputSessions)[number];

/** Values of `svc.v1.AuditRecord.kind`. */
export const AuditRecordKinds = ["peer","primary","replaced","access","session","code","local","anonymous"] as const;
export type AuditRecordKind = (typeof AuditRecordKinds)[number];

/** Values of `svc.v1.StorageUse.kind`. */
export const StorageUseKinds = ["policy","job"] as const;
export type StorageUseKind = (typeof StorageUseKinds)[number];

/** Values of `svc.v1.BackupStorageCheck.name`. */
export const BackupStorageCheckNames = ["list","write","read","delete"] as const;
export type BackupStorageCheckName = (typeof BackupStorageCheckNames)[number];

/** Values of `svc.v1.CreateBackupRequest.mode`. */
export const CreateBackupRequestModes = ["live","pause","stop"] as const;
export type CreateBackupRequestMode = (typeof CreateBackupRequestModes)[number];

/** Values of `svc.v1.BackupEntry.type`. */
export const BackupEntryTypes = ["file","directory","symlink","hardlink","other"] as const;
export type BackupEntryType = (typeof BackupEntryTypes)[number];

/** Values of `svc.v1.BackupPolicy.mode`. */
export const BackupPolicyModes = ["live","pause","stop"] as const;
export type BackupPolicyMode = (typeof BackupPolicyModes)[number];

/** Values of `svc.v1.BackupPolicy.catch_up`. */
export const BackupPolicyCatchUps = ["none","latest"] as const;
export type BackupPolicyCatchUp = (typeof BackupPolicyCatchUps)[number];

/** Values of `svc.v1.SetBackupPolicyRequest.mode`. */
export const SetBackupPolicyRequestModes = ["live","pause","stop"] as const;
export type SetBackupPolicyRequestMode = (typeof SetBackupPolicyRequestModes)[number];

/** Values of `svc.v1.SetBackupPolicyRequest.catch_up`. */
export const SetBackupPolicyRequestCatchUps = ["none","latest"] as const;
export type SetBackupPolicyRequestCatchUp = (typeof SetBackupPolicyRequestCatchUps)[number];

/** Values of `svc.v1.Credential.kind`. */
export const CredentialKinds = ["git","registry"] as const;
export type CredentialKind = (typeof CredentialKinds)[number];

/** Values of `svc.v1.UpsertCredentialRequest.kind`. */
export const UpsertCredentialRequestKinds = ["git","registry"] as const;
export type UpsertCredentialRequestKind = (typeof UpsertCredentialRequestKinds)[number];

/** Values of `svc.v1.GetStatusResponse.mode`. */
export const GetStatusResponseModes = ["system","user"] as const;
export type GetStatusResponseMode = (typeof GetStatusResponseModes)[number];

/** Values of `svc.v1.ContainerEngine.state`. */
export const ContainerEngineStates = ["AVAILABLE","MISSING","DENIED","UNAVAILABLE"] as const;
export type ContainerEngineState = (typeof ContainerEngineStates)[number];

/** Values of `svc.v1.Listener.kind`. */
export const ListenerKinds = ["tcp","socket","root_socket"] as const;
export type ListenerKind = (typeof ListenerKinds)[number];

/** Values of `svc.v1.Listener.state`. */
export const ListenerStates = ["LISTENING","FAILED","UNUSED"] as const;
export type ListenerState = (typeof ListenerStates)[number];

/** Values of `svc.v1.ContainerLogLine.stream`. */
export const ContainerLogLineStreams = ["stdout","stderr"] as const;
export type ContainerLogLineStream = (typeof ContainerLogLineStreams)[number];

/** Values of `svc.v1.ContainerPort.protocol`. */
export const ContainerPortProtocols = ["tcp","udp","sctp"] as const;
export type ContainerPortProtocol = (typeof ContainerPortProtocols)[number];

/** Values of `svc.v1.PruneDockerRequest.target`. */
export const PruneDockerRequestTargets = ["images","volumes","build_cache"] as const;
export type PruneDockerRequestTarget = (typeof PruneDockerRequestTargets)[number];

/** Values of `svc.v1.ControlContainerRequest.action`. */
export const ControlContainerRequestActions = ["start","stop","restart","pause","unpause","remove"] as const;
export type ControlContainerRequestAction = (typeof ControlContainerRequestActions)[number];

/** Values of `svc.v1.UnmanagedStack.kind`. */
export const UnmanagedStackKinds = ["project","container"] as const;
export type UnmanagedStackKind = (typeof UnmanagedStackKinds)[number];

/** Values of `svc.v1.Event.kind`. */
export const EventKinds = ["begin","reset","app.installed","app.changed","app.removed","app.busy","app.starting","app.running","app.stopping","app.stopped","app.failed","app.crashed","app.unknown","app.healthy","app.unhealthy","app.detail","operation.began","operation.changed","operation.ended","operation.started","operation.finished","run.began","run.ended","backup.made","backup.failed","alert.began","alert.ended","container.changed"] as const;
export type EventKind = (typeof EventKinds)[number];

/** Values of `svc.v1.FileEntry.type`. */
export const FileEntryTypes = ["file","directory","symlink","socket","fifo","block_device","char_device"] as const;
export type FileEntryType = (typeof FileEntryTypes)[number];

/** Values of `svc.v1.CreateArchiveRequest.format`. */
export const CreateArchiveRequestFormats = ["tar.gz","tar.zst","zip"] as const;
export type CreateArchiveRequestFormat = (typeof CreateArchiveRequestFormats)[number];

/** Values of `svc.v1.ExtractArchiveRequest.format`. */
export const ExtractArchiveRequestFormats = ["tar","tar.gz","tar.zst","tar.xz","tar.bz2","zip"] as const;
export type ExtractArchiveRequestFormat = (typeof ExtractArchiveRequestFormats)[number];

/** Values of `svc.v1.ExtractArchiveRequest.name_encoding`. */
export const ExtractArchiveRequestNameEncodings = ["cp437","windows-1252","gbk","big5","shift_jis","euc-kr","windows-1251","cp866"] as const;
export type ExtractArchiveRequestNameEncoding = (typeof ExtractArchiveRequestNameEncodings)[number];

/** Values of `svc.v1.ListeningPort.protocol`. */
export const ListeningPortProtocols = ["tcp","udp"] as const;
export type ListeningPortProtocol = (typeof ListeningPortProtocols)[number];

/** Values of `svc.v1.ListProcessesRequest.sort`. */
export const ListProcessesRequestSorts = ["pid","cpu","memory","start"] as const;
export type ListProcessesRequestSort = (typeof ListProcessesRequestSorts)[number];

/** Values of `svc.v1.SignalProcessRequest.signal`. */
export const SignalProcessRequestSignals = ["term","kill","hup","int","stop","cont","usr1","usr2"] as const;
export type SignalProcessRequestSignal = (typeof SignalProcessRequestSignals)[number];

/** Values of `svc.v1.Schedule.catch_up`. */
export const ScheduleCatchUps = ["none","latest"] as const;
export type ScheduleCatchUp = (typeof ScheduleCatchUps)[number];

/** Values of `svc.v1.ScheduleWait.reason`. */
export const ScheduleWaitReasons = ["jitter","room","retry"] as const;
export type ScheduleWaitReason = (typeof ScheduleWaitReasons)[number];

/** Values of `svc.v1.ScheduleSkip.reason`. */
export const ScheduleSkipReasons = ["running","late","down","busy","owner"] as const;
export type ScheduleSkipReason = (typeof ScheduleSkipReasons)[number];

/** Values of `svc.v1.ScheduleAction.type`. */
export const ScheduleActionTypes = ["node_reboot","app_start","app_stop","app_restart","app_update","backup","backup_verify","shell","http"] as const;
export type ScheduleActionType = (typeof ScheduleActionTypes)[number];

/** Values of `svc.v1.ScheduleAction.method`. */
export const ScheduleActionMethods = ["GET","POST","PUT","PATCH","DELETE","HEAD"] as const;
export type ScheduleActionMethod = (typeof ScheduleActionMethods)[number];

/** Values of `svc.v1.ScheduleRun.trigger`. */
export const ScheduleRunTriggers = ["schedule","manual"] as const;
export type ScheduleRunTrigger = (typeof ScheduleRunTriggers)[number];

/** Values of `svc.v1.ScheduleRun.status`. */
export const ScheduleRunStatuses = ["RUNNING","SUCCEEDED","FAILED","TIMED_OUT","CANCELED","INTERRUPTED"] as const;
export type ScheduleRunStatus = (typeof ScheduleRunStatuses)[number];

/** Values of `svc.v1.UpsertScheduleRequest.catch_up`. */
export const UpsertScheduleRequestCatchUps = ["none","latest"] as const;
export type UpsertScheduleRequestCatchUp = (typeof UpsertScheduleRequestCatchUps)[number];

/** Values of `svc.v1.ScheduleFiring.anomaly`. */
export const ScheduleFiringAnomalies = ["none","gap","repeated"] as const;
export type ScheduleFiringAnomaly = (typeof ScheduleFiringAnomalies)[number];

/** Values of `svc.v1.TokenStatus.kind`. */
export const TokenStatusKinds = ["primary","replaced","peer"] as const;
export type TokenStatusKind = (typeof TokenStatusKinds)[number];

