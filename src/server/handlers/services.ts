/** All services of the contract with their handlers. */
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { AuditService } from "../../../gen/svc/v1/audit_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { CredentialService } from "../../../gen/svc/v1/credential_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { DockerService } from "../../../gen/svc/v1/docker_pb.ts";
import { EventService } from "../../../gen/svc/v1/event_pb.ts";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { MonitorService } from "../../../gen/svc/v1/monitor_pb.ts";
import { OperationService } from "../../../gen/svc/v1/operation_pb.ts";
import { ProcessService } from "../../../gen/svc/v1/process_pb.ts";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { SessionService } from "../../../gen/svc/v1/session_pb.ts";
import { SourceService } from "../../../gen/svc/v1/source_pb.ts";
import { SystemService } from "../../../gen/svc/v1/system_pb.ts";
import { TokenService } from "../../../gen/svc/v1/token_pb.ts";
import type { Alerts } from "../../observability/alerts/alerts.ts";
import type { AppHistory } from "../../apps/records/app-history.ts";
import type { AppUpdates } from "../../apps/changes/app-updates.ts";
import type { PackageSearch } from "../../apps/changes/package-search.ts";
import type { AppCounters } from "../../apps/records/app-counters.ts";
import type { AppFinder } from "../../apps/records/app-finder.ts";
import type { AuditReader } from "../../observability/audit/audit-reader.ts";
import type { Backups } from "../../backups/backups.ts";
import type { Consoles } from "../../console/consoles.ts";
import type { Credentials } from "../../access/credentials.ts";
import type { DaemonMetrics } from "../../observability/metrics/daemon-metrics.ts";
import type { DockerHost } from "../../engine/docker-host.ts";
import type { EventLog } from "../../observability/events/event-log.ts";
import type { Files } from "../../files/files.ts";
import type { HostMetrics } from "../../host/metrics/host-metrics.ts";
import type { HostProcesses } from "../../host/processes/host-processes.ts";
import type { ProcessSignals } from "../../host/processes/process-signals.ts";
import type { HostReboot } from "../../host/reboot.ts";
import type { OperationRegistry } from "../../operations/operation-registry.ts";
import type { SourceList } from "../../packages/sources/source-list.ts";
import { implement, type BoundService } from "../rpc/bound-service.ts";
import type { UserContext } from "../rpc/user-context.ts";
import type { Schedules } from "../../scheduler/schedules.ts";
import type { ConsoleTokens } from "../../access/tokens/console-tokens.ts";
import type { TokenAuthority } from "../../access/tokens/token-authority.ts";
import { createAppService, type InstalledParts } from "./app-service.ts";
import { createAuditService } from "./audit-service.ts";
import { createBackupService } from "./backup-service.ts";
import { createCredentialService } from "./credential-service.ts";
import { createDaemonService, type ReloadsConfig } from "./daemon-service.ts";
import type { DaemonFacts, StatusResponses } from "./status-responses.ts";
import { createDockerService } from "./docker-service.ts";
import { createEventService } from "./event-service.ts";
import { createFileService } from "./file-service.ts";
import { createMonitorService } from "./monitor-service.ts";
import { LongMethods, type LongMethodsOptions } from "./long-method.ts";
import { createOperationService } from "./operation-service.ts";
import { createProcessService } from "./process-service.ts";
import { createScheduleService } from "./schedule-service.ts";
import { createSessionService } from "./session-service.ts";
import { createSourceService } from "./source-service.ts";
import { createSystemService } from "./system-service.ts";
import { createTokenService } from "./token-service.ts";

export interface Domain {
  apps: InstalledParts;
  finder: AppFinder;
  counters: AppCounters;
  packageSearch: PackageSearch;
  audit: AuditReader;
  backups: Backups;
  /** The name of a uid; empty for none. */
  userName: DaemonFacts["userName"];
  status: StatusResponses;
  metrics: DaemonMetrics;
  schedules: Schedules;
  tokens: TokenAuthority;
  consoleTokens: ConsoleTokens<UserContext>;
  consoles: Consoles;
  sources: SourceList;
  credentials: Credentials;
  docker: DockerHost;
  events: EventLog;
  files: Files;
  hostMetrics: HostMetrics;
  appHistory: AppHistory;
  updates: AppUpdates;
  alerts: Alerts;
  configReload: ReloadsConfig;
  processes: HostProcesses;
  signals: ProcessSignals;
  reboot: HostReboot;
  operations: OperationRegistry;
  appendAudit: LongMethodsOptions["audit"];
  json: LongMethodsOptions["json"];
  /** The page's URL for a browser on this host; undefined without a TCP address. */
  pageAddress: () => string | undefined;
}

export function bindServices(domain: Domain): BoundService[] {
  const {
    apps,
    finder,
    counters,
    audit,
    backups,
    userName,
    metrics,
    schedules,
    tokens,
    consoleTokens,
    consoles,
    sources,
    credentials,
    docker,
  } = domain;
  const { hostMetrics, alerts, appHistory, configReload, processes, signals, reboot } = domain;
  const long = new LongMethods({
    ...{ operations: domain.operations, userName, audit: domain.appendAudit },
    ownerOf: (appId, user) => (finder.has(appId, user) ? finder.ownerOf(appId) : undefined),
    json: domain.json,
  });
  return [
    implement(
      "svc.v1.AppService",
      () => AppService,
      createAppService(apps, appHistory, domain.updates, consoleTokens, schedules, consoles, long),
    ),
    implement("svc.v1.AuditService", () => AuditService, createAuditService(audit)),
    implement("svc.v1.BackupService", () => BackupService, createBackupService(backups, long)),
    implement("svc.v1.CredentialService", () => CredentialService, createCredentialService(credentials)),
    implement(
      "svc.v1.DaemonService",
      () => DaemonService,
      createDaemonService(finder, counters, userName, domain.status, metrics, alerts, configReload),
    ),
    implement("svc.v1.DockerService", () => DockerService, createDockerService(docker, apps, long)),
    implement("svc.v1.EventService", () => EventService, createEventService(domain.events)),
    implement("svc.v1.FileService", () => FileService, createFileService(domain.files, long)),
    implement("svc.v1.MonitorService", () => MonitorService, createMonitorService(hostMetrics, processes)),
    implement(
      "svc.v1.OperationService",
      () => OperationService,
      createOperationService(domain.operations, userName),
    ),
    implement("svc.v1.ProcessService", () => ProcessService, createProcessService(processes, signals)),
    implement("svc.v1.ScheduleService", () => ScheduleService, createScheduleService(schedules)),
    implement(
      "svc.v1.SessionService",
      () => SessionService,
      createSessionService({ tokens, pageAddress: domain.pageAddress, userName }),
    ),
    implement(
      "svc.v1.SourceService",
      () => SourceService,
      createSourceService(sources, domain.packageSearch),
    ),
    implement("svc.v1.SystemService", () => SystemService, createSystemService(reboot)),
    implement("svc.v1.TokenService", () => TokenService, createTokenService(tokens)),
  ];
}
