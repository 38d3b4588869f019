// Generated from proto/ by src/codegen/protoc-gen-svc-rest.ts; `npm run gen` writes it.

/** The words of `svc.v1.App.runtime`. */
export const AppRuntimes = ["process","docker","compose","service"] as const;
export type AppRuntime = (typeof AppRuntimes)[number];

/** The words of `svc.v1.App.state`. */
export const AppStates = ["INSTALLING","STOPPED","STARTING","RUNNING","STOPPING","UPGRADING","RESTORING","REMOVING","FAILED","CRASHED","UNKNOWN"] as const;
export type AppState = (typeof AppStates)[number];

/** The words of `svc.v1.App.health`. */
export const AppHealths = ["none","starting","healthy","unhealthy"] as const;
export type AppHealth = (typeof AppHealths)[number];

/** The words of `svc.v1.AppOrigin.kind`. */
export const AppOriginKinds = ["git","directory"] as const;
export type AppOriginKind = (typeof AppOriginKinds)[number];

/** The words of `svc.v1.AppPort.protocol`. */
export const AppPortProtocols = ["tcp","udp"] as const;
export type AppPortProtocol = (typeof AppPortProtocols)[number];

/** The words of `svc.v1.AppLimit.name`. */
export const AppLimitNames = ["memory","cpus","open_files"] as const;
export type AppLimitName = (typeof AppLimitNames)[number];

/** The words of `svc.v1.AppOperation.kind`. */
export const AppOperationKinds = ["install","upgrade","clone","remove","start","stop","restart","settings","restore"] as const;
export type AppOperationKind = (typeof AppOperationKinds)[number];

/** The words of `svc.v1.AppImage.freshness`. */
export const AppImageFreshnesses = ["current","outdated","unknown"] as const;
export type AppImageFreshness = (typeof AppImageFreshnesses)[number];

/** The words of `svc.v1.LogLine.stream`. */
export const LogLineStreams = ["stdout","stderr","svc"] as const;
export type LogLineStream = (typeof LogLineStreams)[number];

/** The words of `svc.v1.IssueConsoleTokenRequest.session`. */
export const IssueConsoleTokenRequestSessions = ["logs","attach"] as const;
export type IssueConsoleTokenRequestSession = (typeof IssueConsoleTokenRequestSessions)[number];

/** The words of `svc.v1.GetStatusResponse.mode`. */
export const GetStatusResponseModes = ["system","user"] as const;
export type GetStatusResponseMode = (typeof GetStatusResponseModes)[number];

/** The words of `svc.v1.ErrorDetail.reason`. */
export const ErrorDetailReasons = ["unauthenticated","token_denied","root_required","not_found","already_exists","invalid_request","body_too_large","unsupported_media_type","method_not_allowed","host_denied","origin_denied","license_required","ambiguous","package_invalid","source_failed","git_failed","build_failed","start_failed","app_running","app_not_running","app_busy","pinned_image","owned_by_app","protected","job_owned","pid_reused","denied","too_many","disk_full","not_ready","not_implemented","canceled","deadline_exceeded","unavailable","internal"] as const;
export type ErrorDetailReason = (typeof ErrorDetailReasons)[number];

