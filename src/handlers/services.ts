/** Every service of the contract with its handlers. */
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { AuditService } from "../../gen/svc/v1/audit_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { CredentialService } from "../../gen/svc/v1/credential_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { DockerService } from "../../gen/svc/v1/docker_pb.ts";
import { EventService } from "../../gen/svc/v1/event_pb.ts";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { MonitorService } from "../../gen/svc/v1/monitor_pb.ts";
import { ProcessService } from "../../gen/svc/v1/process_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { SessionService } from "../../gen/svc/v1/session_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { SystemService } from "../../gen/svc/v1/system_pb.ts";
import { TokenService } from "../../gen/svc/v1/token_pb.ts";
import type { Alerts } from "../alerts/alerts.ts";
import type { AppHistory } from "../apps/app-history.ts";
import type { AppUpdates } from "../apps/app-updates.ts";
import type { Apps } from "../apps/apps.ts";
import type { AuditReader } from "../audit/audit-reader.ts";
import type { Backups } from "../backups/backups.ts";
import type { Consoles } from "../console/consoles.ts";
import type { Credentials } from "../credentials/credentials.ts";
import type { DaemonMetrics } from "../metrics/daemon-metrics.ts";
import type { ConfigReload } from "../daemon/config-reload.ts";
import type { DockerHost } from "../docker/docker-host.ts";
import type { EventLog } from "../events/event-log.ts";
import type { Files } from "../files/files.ts";
import type { HostMetrics } from "../host/host-metrics.ts";
import type { HostProcesses } from "../host/host-processes.ts";
import type { ProcessSignals } from "../host/process-signals.ts";
import type { HostReboot } from "../host/reboot.ts";
import type { SourceList } from "../packages/source-list.ts";
import { implement, type BoundService } from "../rpc/bound-service.ts";
import type { UserContext } from "../rpc/user-context.ts";
import type { Schedules } from "../scheduler/schedules.ts";
import type { ConsoleTokens } from "../tokens/console-tokens.ts";
import type { TokenAuthority } from "../tokens/token-authority.ts";
import { createAppService } from "./app-service.ts";
import { createAuditService } from "./audit-service.ts";
import { createBackupService } from "./backup-service.ts";
import { createCredentialService } from "./credential-service.ts";
import { createDaemonService } from "./daemon-service.ts";
import { type DaemonFacts } from "./status-answers.ts";
import { createDockerService } from "./docker-service.ts";
import { createEventService } from "./event-service.ts";
import { createFileService } from "./file-service.ts";
import { createMonitorService } from "./monitor-service.ts";
import { createProcessService } from "./process-service.ts";
import { createScheduleService } from "./schedule-service.ts";
import { createSessionService } from "./session-service.ts";
import { createSourceService } from "./source-service.ts";
import { createSystemService } from "./system-service.ts";
import { createTokenService } from "./token-service.ts";

export interface Domain {
  apps: Apps;
  audit: AuditReader;
  backups: Backups;
  facts: DaemonFacts;
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
  configReload: ConfigReload;
  processes: HostProcesses;
  signals: ProcessSignals;
  reboot: HostReboot;
  /** Where a browser on this machine finds the page; undefined where there is no TCP address. */
  pageAddress: () => string | undefined;
}

export function bindServices(domain: Domain): BoundService[] {
  const {
    apps,
    audit,
    backups,
    facts,
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
  return [
    implement(
      "svc.v1.AppService",
      () => AppService,
      createAppService(apps, appHistory, domain.updates, consoleTokens, schedules, consoles),
    ),
    implement("svc.v1.AuditService", () => AuditService, createAuditService(audit)),
    implement("svc.v1.BackupService", () => BackupService, createBackupService(backups)),
    implement("svc.v1.CredentialService", () => CredentialService, createCredentialService(credentials)),
    implement(
      "svc.v1.DaemonService",
      () => DaemonService,
      createDaemonService(apps, facts, metrics, alerts, configReload),
    ),
    implement("svc.v1.DockerService", () => DockerService, createDockerService(docker)),
    implement("svc.v1.EventService", () => EventService, createEventService(domain.events)),
    implement("svc.v1.FileService", () => FileService, createFileService(domain.files)),
    implement("svc.v1.MonitorService", () => MonitorService, createMonitorService(hostMetrics, processes)),
    implement("svc.v1.ProcessService", () => ProcessService, createProcessService(processes, signals)),
    implement("svc.v1.ScheduleService", () => ScheduleService, createScheduleService(schedules)),
    implement(
      "svc.v1.SessionService",
      () => SessionService,
      createSessionService(tokens, domain.pageAddress),
    ),
    implement("svc.v1.SourceService", () => SourceService, createSourceService(sources, apps)),
    implement("svc.v1.SystemService", () => SystemService, createSystemService(reboot)),
    implement("svc.v1.TokenService", () => TokenService, createTokenService(tokens)),
  ];
}
