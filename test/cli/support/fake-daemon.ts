/** A daemon with the real pipeline and REST on a socket, whose apps exist only in memory. */
import { create, type DescService } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { createContextValues, type ServiceImpl } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AppSchema, AppService, type App } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { DockerService } from "../../../gen/svc/v1/docker_pb.ts";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { SourceService } from "../../../gen/svc/v1/source_pb.ts";
import { routes } from "../../../gen/svc/v1/routes.ts";
import { invalidField } from "../../../src/errors.ts";
import { type BoundService, unimplemented } from "../../../src/server/rpc/bound-service.ts";
import { createPipeline, type Pipeline } from "../../../src/server/rpc/pipeline.ts";
import { userContextKey } from "../../../src/server/rpc/user-context.ts";
import { BodyScheduler } from "../../../src/lib/body-scheduler.ts";
import { canonicalPath } from "../../../src/server/rest/path.ts";
import { createRestHandler } from "../../../src/server/rest/rest-handler.ts";
import { Router } from "../../../src/server/rest/router.ts";
import { pathOf } from "../../../src/server/rpc/http-request.ts";
import { Exchange } from "../../../src/server/rpc/exchange.ts";
import { defaultTransportLimits } from "../../../src/server/http/limits.ts";
import { fakeApps } from "./fake-apps.ts";
import { fakeDocker } from "./fake-docker.ts";
import { fakeSchedules, type FakeSchedules } from "./fake-schedules.ts";
import { bindService } from "../../support/bind-service.ts";

export const localUser = { uid: 1000, root: true, kind: "local", ownerUid: 1000 } as const;

export interface FakeDaemon extends AsyncDisposable {
  readonly socketPath: string;
  readonly pipeline: Pipeline;
  /** Every request so far, with its headers. */
  readonly requests: readonly { readonly url: string; readonly headers: IncomingMessage["headers"] }[];
  /** How many streams their clients have canceled. */
  readonly left: () => number;
}

/** An app with the fields that tests check. */
export function appOf(fields: Partial<App> & { id: string }): App {
  return create(AppSchema, {
    name: fields.id,
    runtime: "process",
    state: "STOPPED",
    health: "none",
    version: "1.0.0",
    owner: 1000,
    ownerName: "ada",
    createdAt: timestampFromDate(new Date("2026-01-01T00:00:00Z")),
    ...(fields as object),
  });
}

export function createFakePipeline(
  apps: readonly App[],
  onLeft: () => void = () => undefined,
  schedules: FakeSchedules = { jobs: [], runs: {}, upserts: [] },
  appsPerPage = 1,
): Pipeline {
  const log = { info: () => undefined, error: (details: object) => console.error(details) };
  const services = [
    withOthers(AppService, fakeApps(apps, onLeft, appsPerPage)),
    withOthers(DockerService, fakeDocker()),
    withOthers(ScheduleService, fakeSchedules(schedules, onLeft)),
    withOthers(BackupService, {
      listBackups: ({ appId }) => ({ backups: [{ name: `${appId}-1.tar.zst`, storage: "local" }] }),
      getBackupPolicy: ({ appId }) => ({ appId, trigger: appId === "saved" ? "03:30" : "" }),
      listBackupStorages: () => ({ storages: [{ name: "local" }, { name: "nas" }] }),
    }),
    withOthers(FileService, { listSystemIdentities: () => ({ users: [{ name: "www", uid: 33 }] }) }),
    withOthers(SourceService, {
      listSources: () => ({ sources: [{ name: "main", url: "/srv/packages" }] }),
      searchPackages: ({ source, query }) => {
        if (!["", "main"].includes(source))
          throw invalidField("source", `no source "${source}" is configured`);
        const specs = ["main/web", "main/twice", "other/twice"].filter((spec) => spec.includes(query));
        return { packages: specs.map((spec) => ({ spec, id: spec.split("/").at(-1) ?? "" })) };
      },
    }),
    withOthers(DaemonService, {
      getStatus: () => ({
        version: "1.2.3",
        mode: "user",
        hostname: "test",
        apps: {
          total: apps.length,
          running: 1,
          busy: apps.filter(({ state }) => state === "STARTING").length,
        },
        caller: localUser,
        capabilities: ["app.upgrade"],
        ...{ configFile: "/etc/svc/svc.toml", storeDirectory: "/var/lib/svc", log: "journal" },
        engine: { socket: "/var/run/docker.sock", state: "UNAVAILABLE" },
        enforcedLimits: ["cpus", "memory"],
      }),
    }),
  ];
  return createPipeline({ services, log });
}

function withOthers<S extends DescService>(service: S, impl: Partial<ServiceImpl<S>>): BoundService {
  const others = Object.fromEntries(service.methods.map((method) => [method.localName, unimplemented]));
  return bindService(service, { ...others, ...impl } as ServiceImpl<S>);
}

/** @param appsPerPage one by default, so that a client has to request a second page */
export async function startFakeDaemon(
  apps: readonly App[] = [],
  schedules?: FakeSchedules,
  appsPerPage?: number,
): Promise<FakeDaemon> {
  const directory = await mkdtemp(join(tmpdir(), "svc-cli-"));
  const socketPath = join(directory, "svc.sock");
  const requests: { url: string; headers: IncomingMessage["headers"] }[] = [];
  let left = 0;
  const pipeline = createFakePipeline(apps, () => (left += 1), schedules, appsPerPage);
  const served = routes.filter(({ method }) =>
    pipeline.methodAt(`/${method.parent.typeName}/${method.name}`),
  );
  const rest = createRestHandler({
    routes: served,
    router: new Router(served),
    pipeline,
    exchange: new Exchange({ pipeline, bodies: new BodyScheduler(pipeline.fairQueue), log: console }),
    maxBodyBytes: defaultTransportLimits.maxBodyBytes,
    bodyTimeoutMs: defaultTransportLimits.requestTimeoutMs,
  });
  const connect = connectNodeAdapter({
    routes: pipeline.routes,
    requestPathPrefix: "",
    contextValues: () => createContextValues().set(userContextKey, localUser),
  });
  const server = createServer((request, response) => {
    requests.push({ url: request.url ?? "", headers: request.headers });
    if (request.url === "/healthz") response.end("ok");
    else {
      const path = canonicalPath(pathOf(request), { escapedSlash: "allow" });
      if (!rest(request, response, { user: localUser, requestId: "1", path, isRecorded: false }))
        connect(request, response);
    }
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    socketPath,
    pipeline,
    requests,
    left: () => left,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(directory, { recursive: true });
    },
  };
}
