/** The complete contract with handlers that a test controls; the others return `unimplemented`. */
import type { DescService } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { AppService } from "../../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../../gen/svc/v1/backup_pb.ts";
import { DaemonService } from "../../../../gen/svc/v1/daemon_pb.ts";
import { DockerService } from "../../../../gen/svc/v1/docker_pb.ts";
import { EventService } from "../../../../gen/svc/v1/event_pb.ts";
import { FileService } from "../../../../gen/svc/v1/file_pb.ts";
import { MonitorService } from "../../../../gen/svc/v1/monitor_pb.ts";
import { ProcessService } from "../../../../gen/svc/v1/process_pb.ts";
import { ScheduleService } from "../../../../gen/svc/v1/schedule_pb.ts";
import { SystemService } from "../../../../gen/svc/v1/system_pb.ts";
import { TokenService } from "../../../../gen/svc/v1/token_pb.ts";
import { type BoundService, unimplemented } from "../../../../src/server/rpc/bound-service.ts";
import { userOf } from "../../../../src/server/rpc/user-context.ts";
import { bindService } from "../../../support/bind-service.ts";

export interface FakeHandlers {
  app?: Partial<ServiceImpl<typeof AppService>>;
  daemon?: Partial<ServiceImpl<typeof DaemonService>>;
  event?: Partial<ServiceImpl<typeof EventService>>;
  file?: Partial<ServiceImpl<typeof FileService>>;
  monitor?: Partial<ServiceImpl<typeof MonitorService>>;
  process?: Partial<ServiceImpl<typeof ProcessService>>;
  schedule?: Partial<ServiceImpl<typeof ScheduleService>>;
  system?: Partial<ServiceImpl<typeof SystemService>>;
  token?: Partial<ServiceImpl<typeof TokenService>>;
}

function bind<S extends DescService>(service: S, handlers: Partial<ServiceImpl<S>> = {}): BoundService {
  const missing = service.methods.map((method) => [method.localName, unimplemented]);
  return bindService(service, { ...Object.fromEntries(missing), ...handlers } as ServiceImpl<S>);
}

/** `getStatus` returns the caller's identity by default. */
export function fakeServices(handlers: FakeHandlers = {}): BoundService[] {
  const daemon: FakeHandlers["daemon"] = {
    getStatus(_request, context) {
      const { uid, root, kind, ownerUid } = userOf(context);
      return { version: kind, hostname: String(ownerUid), caller: { uid, root } };
    },
    ...handlers.daemon,
  };
  return [
    bind(AppService, handlers.app),
    bind(BackupService),
    bind(DaemonService, daemon),
    bind(DockerService),
    bind(EventService, handlers.event),
    bind(FileService, handlers.file),
    bind(MonitorService, handlers.monitor),
    bind(ProcessService, handlers.process),
    bind(ScheduleService, handlers.schedule),
    bind(SystemService, handlers.system),
    bind(TokenService, handlers.token),
  ];
}
