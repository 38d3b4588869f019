import type { DescService } from "@bufbuild/protobuf";
import { OperationService } from "./operation_pb.ts";
import { AppService } from "./app_pb.ts";
import { AuditService } from "./audit_pb.ts";
import { BackupService } from "./backup_pb.ts";
import { CredentialService } from "./credential_pb.ts";
import { DaemonService } from "./daemon_pb.ts";
import { DockerService } from "./docker_pb.ts";
import { EventService } from "./event_pb.ts";
import { FileService } from "./file_pb.ts";
import { MonitorService } from "./monitor_pb.ts";
import { ProcessService } from "./process_pb.ts";
import { ScheduleService } from "./schedule_pb.ts";
import { SessionService } from "./session_pb.ts";
import { SourceService } from "./source_pb.ts";
import { SystemService } from "./system_pb.ts";
import { TokenService } from "./token_pb.ts";

// Generated from proto/ by src/codegen/protoc-gen-svc-rest.ts; `npm run gen` writes it.

/** Every service of the contract with its descriptors. Slow to load. */
export const services: readonly DescService[] = [
  OperationService,
  AppService,
  AuditService,
  BackupService,
  CredentialService,
  DaemonService,
  DockerService,
  EventService,
  FileService,
  MonitorService,
  ProcessService,
  ScheduleService,
  SessionService,
  SourceService,
  SystemService,
  TokenService,
];
