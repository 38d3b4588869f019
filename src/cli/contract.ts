/** Every service of the contract with its descriptors: for `svc api` and for work in this process. Costly to load. */
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { AuditService } from "../../gen/svc/v1/audit_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { CredentialService } from "../../gen/svc/v1/credential_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { DockerService } from "../../gen/svc/v1/docker_pb.ts";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { MonitorService } from "../../gen/svc/v1/monitor_pb.ts";
import { ProcessService } from "../../gen/svc/v1/process_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { SystemService } from "../../gen/svc/v1/system_pb.ts";
import { TokenService } from "../../gen/svc/v1/token_pb.ts";

export const services: readonly DescService[] = [
  AppService,
  AuditService,
  BackupService,
  CredentialService,
  DaemonService,
  DockerService,
  FileService,
  MonitorService,
  ProcessService,
  ScheduleService,
  SourceService,
  SystemService,
  TokenService,
];

/** `AppService.ListApps`: how a command line names a method. */
export function methodName(method: DescMethod): string {
  return `${method.parent.name}.${method.name}`;
}

/** @param name `AppService.ListApps`, or the full `svc.v1.AppService/ListApps`, in any case */
export function findMethod(name: string): DescMethod | undefined {
  const wanted = name
    .toLowerCase()
    .replace(/^\/?svc\.v1\./, "")
    .replace("/", ".");
  return services
    .flatMap((service) => service.methods)
    .find((method) => methodName(method).toLowerCase() === wanted);
}
