/** The standard gRPC services: health, reflection, and grpcurl, which uses them. */
import { spawn } from "node:child_process";
import { access, constants } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createFileRegistry, fromBinary, create } from "@bufbuild/protobuf";
import {
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
  type FileDescriptorProto,
} from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import test from "ava";
import {
  ServerReflection,
  type ServerReflectionRequest,
  type ServerReflectionResponse,
} from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServerReflection as ServerReflectionV1Alpha } from "../../gen/grpc/reflection/v1alpha/reflection_pb.ts";
import { Health, HealthCheckResponse_ServingStatus as Status } from "../../gen/health/v1/health_pb.ts";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { AuditService } from "../../gen/svc/v1/audit_pb.ts";
import { methodPolicies } from "../../gen/svc/v1/methods.ts";
import { routes } from "../../gen/svc/v1/routes.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { nextEvent } from "../support/eventually.ts";

const cache = fileURLToPath(new URL("../../node_modules/.cache/svc-tools", import.meta.url));
const grpcurl = await findGrpcurl();

const emptyDaemon = sharedDaemon();

// The standard health service: without authentication, per service and for all, until the daemon stops.

for (const protocol of ["grpc", "grpc-web", "connect"] as const) {
  test(`over ${protocol}: a check needs no authentication and knows each service`, async (t) => {
    const daemon = await emptyDaemon();
    const health = daemon.tokenClient(Health, protocol, "svcp_wrong");
    t.is((await health.check({})).status, Status.SERVING);
    t.is((await health.check({ service: "svc.v1.AppService" })).status, Status.SERVING);
    t.is((await errorOf(health.check({ service: "svc.v1.Nothing" }))).code, "NotFound");
    const { statuses } = await health.list({});
    t.is(statuses["svc.v1.TokenService"]?.status, Status.SERVING);
    t.is(statuses[""]?.status, Status.SERVING);
    const other = daemon.tokenClient(AppService, protocol, "svcp_wrong");
    t.is((await errorOf(other.listApps({}))).code, "Unauthenticated", "nothing else is public");
  });
}

test("watchers are notified that the daemon stops, and the stop does not wait for them", async (t) => {
  await using daemon = await startDaemon();
  const seen: Status[] = [];
  const unknown: Status[] = [];
  const watching = daemon.tokenClient(Health, "grpc", "none").watch({});
  const watchingNothing = daemon.client(Health, "grpc").watch({ service: "later.Service" });
  const first = Promise.withResolvers<undefined>();
  const ended = [
    errorOf(
      (async function* () {
        for await (const { status } of watching) {
          seen.push(status);
          first.resolve(undefined);
          yield status;
        }
      })(),
    ),
    errorOf(
      (async function* () {
        for await (const { status } of watchingNothing) {
          unknown.push(status);
          yield status;
        }
      })(),
    ),
  ];
  await first.promise;
  const startMs = performance.now();
  await daemon.stop();
  t.true(performance.now() - startMs < 5_000);
  for (const { code } of await Promise.all(ended)) t.is(code, "Unavailable");
  t.deepEqual(seen, [Status.SERVING, Status.NOT_SERVING]);
  t.deepEqual(unknown, [Status.SERVICE_UNKNOWN]);
});

test("the number of unauthenticated watchers is limited, and a disconnect frees a slot", async (t) => {
  await using daemon = await startDaemon();
  const leave = new AbortController();
  const clients = Array.from({ length: 4 }, () => daemon.client(Health, "grpc"));
  const iterators = clients.flatMap((client) =>
    Array.from({ length: 50 }, () => client.watch({}, { signal: leave.signal })[Symbol.asyncIterator]()),
  );
  for (const { value } of await Promise.all(iterators.map((iterator) => iterator.next()))) {
    t.like(value, { status: Status.SERVING });
  }
  t.is((await errorOf(daemon.client(Health, "grpc").watch({}))).reason, "too_many");
  t.is((await daemon.client(Health, "grpc").check({})).status, Status.SERVING);
  leave.abort();
  await Promise.allSettled(iterators.map((iterator) => iterator.next()));
  const again = daemon.client(Health, "grpc").watch({})[Symbol.asyncIterator]();
  t.is((await again.next()).value?.status, Status.SERVING);
  await again.return?.();
});

(isRoot ? test : test.skip)(`one user cannot take the health watches of others${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  await using greedy = await daemon.as(4_001);
  await using other = await daemon.as(4_002);
  const leave = new AbortController();
  const watch = (user: Pick<typeof greedy, "client">) =>
    user.client(Health, "grpc").watch({}, { signal: leave.signal })[Symbol.asyncIterator]();
  const held = Array.from({ length: 50 }, () => watch(greedy));
  for (const { value } of await Promise.all(held.map((each) => each.next())))
    t.like(value, { status: Status.SERVING });
  t.is((await errorOf(watch(greedy).next())).reason, "too_many");
  for (const user of [other, daemon]) t.is((await watch(user).next()).value?.status, Status.SERVING);
  leave.abort();
  await Promise.allSettled(held.map((each) => each.next()));
});

// Server reflection, v1 and v1alpha: a client without the contract builds all of it from the responses.

type Question = ServerReflectionRequest["messageRequest"];

/** The responses to the requests, over one stream. */
async function ask(
  client: Client<typeof ServerReflection>,
  ...questions: Question[]
): Promise<ServerReflectionResponse[]> {
  async function* requests() {
    for (const messageRequest of questions) yield { host: "here", messageRequest };
  }
  return Array.fromAsync(client.serverReflectionInfo(requests()));
}

function filesOf(answer: ServerReflectionResponse | undefined): FileDescriptorProto[] {
  if (answer?.messageResponse.case !== "fileDescriptorResponse") {
    throw new Error(`not files but ${JSON.stringify(answer?.messageResponse)}`);
  }
  return answer.messageResponse.value.fileDescriptorProto.map((bytes) =>
    fromBinary(FileDescriptorProtoSchema, bytes),
  );
}

const versions = {
  v1: ServerReflection,
  v1alpha: ServerReflectionV1Alpha as unknown as typeof ServerReflection,
};

for (const [version, service] of Object.entries(versions)) {
  test(`${version}: a client builds every service from the responses`, async (t) => {
    const daemon = await emptyDaemon();
    const client = daemon.tokenClient(service, "grpc");
    const [list] = await ask(client, { case: "listServices", value: "" });
    t.is(list?.validHost, "here");
    const names =
      list?.messageResponse.case === "listServicesResponse"
        ? list.messageResponse.value.service.map(({ name }) => name)
        : [];
    t.true(names.includes("grpc.health.v1.Health"));
    t.true(names.includes(service.typeName));
    const answers = await ask(
      client,
      ...names.map((value) => ({ case: "fileContainingSymbol" as const, value })),
    );
    const files = new Map(answers.flatMap(filesOf).map((file) => [file.name, file]));
    const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: inOrder(files) }));
    for (const { method } of routes) {
      const found = registry
        .getService(method.parent.typeName)
        ?.methods.find(({ name }) => name === method.name);
      t.is(found?.input.typeName, method.input.typeName, method.name);
    }
  });
}

/** Files after those that they import. */
function inOrder(files: ReadonlyMap<string, FileDescriptorProto>): FileDescriptorProto[] {
  const ordered = new Set<FileDescriptorProto>();
  const add = (name: string): void => {
    const file = files.get(name);
    if (file === undefined) throw new Error(`${name} was never sent`);
    if (ordered.has(file)) return;
    for (const dependency of file.dependency) add(dependency);
    ordered.add(file);
  };
  for (const name of files.keys()) add(name);
  return [...ordered];
}

const symbols: [symbol: string, file: string][] = [
  ["svc.v1.AuditService.ListAudit", "svc/v1/audit.proto"],
  ["svc.v1.AuditRecord", "svc/v1/audit.proto"],
  ["svc.v1.AuditRecord.seq", "svc/v1/audit.proto"],
  ["svc.v1.ErrorDetail.payload", "svc/v1/error.proto"],
  ["svc.v1.AccessLevel", "svc/v1/access.proto"],
  ["svc.v1.ACCESS_LEVEL_ROOT", "svc/v1/access.proto"],
  ["svc.v1.access", "svc/v1/access.proto"],
  ["google.api.http", "google/api/annotations.proto"],
  ["google.protobuf.Timestamp", "google/protobuf/timestamp.proto"],
];

test("every kind of symbol, files by name and extensions by number are found", async (t) => {
  const daemon = await emptyDaemon();
  const client = daemon.client(ServerReflection, "grpc");
  for (const [value, file] of symbols) {
    const [answer] = await ask(client, { case: "fileContainingSymbol", value });
    t.is(filesOf(answer)[0]?.name, file, value);
  }
  const [byName] = await ask(client, { case: "fileByFilename", value: "svc/v1/audit.proto" });
  const audit = filesOf(byName);
  t.is(audit[0]?.name, "svc/v1/audit.proto");
  t.true(
    audit.some(({ name }) => name === "google/api/annotations.proto"),
    "imports are included",
  );
  const [byExtension] = await ask(client, {
    case: "fileContainingExtension",
    value: {
      $typeName: "grpc.reflection.v1.ExtensionRequest",
      containingType: "google.protobuf.MethodOptions",
      extensionNumber: 50001,
    },
  });
  t.is(filesOf(byExtension)[0]?.name, "svc/v1/access.proto");
  const [numbers] = await ask(client, {
    case: "allExtensionNumbersOfType",
    value: "google.protobuf.MethodOptions",
  });
  t.deepEqual(
    numbers?.messageResponse.case === "allExtensionNumbersResponse"
      ? numbers.messageResponse.value.extensionNumber
      : [],
    [50001, 50002, 72295728],
  );
});

test("an unknown name gets NOT_FOUND, and the stream continues; a file is sent once", async (t) => {
  const daemon = await emptyDaemon();
  const answers = await ask(
    daemon.client(ServerReflection, "grpc"),
    { case: "fileContainingSymbol", value: "no.such.Symbol" },
    { case: "fileByFilename", value: "../../etc/passwd" },
    { case: "allExtensionNumbersOfType", value: "no.Type" },
    { case: undefined },
    { case: "fileByFilename", value: "svc/v1/audit.proto" },
    { case: "fileByFilename", value: "svc/v1/token.proto" },
  );
  t.deepEqual(
    answers
      .slice(0, 4)
      .map(({ messageResponse: { case: kind, value } }) =>
        kind === "errorResponse" ? value.errorCode : kind,
      ),
    [5, 5, 5, 3],
  );
  t.true(filesOf(answers[4]).length > 3);
  t.deepEqual(
    filesOf(answers[5]).map(({ name }) => name),
    ["svc/v1/token.proto"],
    "its imports are known",
  );
});

test("reflection requires authentication, and is not audited", async (t) => {
  const daemon = await emptyDaemon();
  const refused = await errorOf(ask(daemon.tokenClient(ServerReflection, "grpc", "svcp_wrong")));
  t.is(refused.code, "Unauthenticated");
  await ask(daemon.client(ServerReflection, "grpc"), { case: "listServices", value: "" });
  t.is((await daemon.client(AuditService).listAudit({})).records.length, 0);
});

const rootTest = isRoot ? test : test.skip;
rootTest(`a regular user may use reflection${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using nobody = await daemon.as(65_534);
  const [list] = await ask(nobody.client(ServerReflection, "grpc"), { case: "listServices", value: "" });
  t.is(list?.messageResponse.case, "listServicesResponse");
});

// grpcurl as users run it: with only an address it lists and calls everything, on the TCP port with a token and on the
// unix socket. Needs `grpcurl` on the PATH, or built once by `GOBIN=$PWD/node_modules/.cache/svc-tools go install
// github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4`, as .ci/run does.

async function findGrpcurl(): Promise<string | undefined> {
  for (const dir of [cache, ...(process.env["PATH"] ?? "").split(delimiter)]) {
    const path = join(dir, "grpcurl");
    if (
      await access(path, constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return path;
  }
  return undefined;
}

const grpcurlTest = grpcurl === undefined ? test.skip : test;
const why = grpcurl === undefined ? " (skipped: grpcurl is not there; see the head of this file)" : "";

async function run(...args: string[]): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(grpcurl ?? "grpcurl", ["-max-time", "30", ...args], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const seen = { out: "", err: "" };
  child.stdout.on("data", (chunk) => (seen.out += String(chunk)));
  child.stderr.on("data", (chunk) => (seen.err += String(chunk)));
  const [code] = (await nextEvent(child, "close")) as [number | null];
  return { code, ...seen };
}

const listeners: Record<string, (daemon: TestDaemon, ...args: string[]) => string[]> = {
  "the TCP port with a token": (daemon, ...args) => [
    "-plaintext",
    "-H",
    `authorization: Bearer ${daemon.token}`,
    ...args.slice(0, -1),
    `127.0.0.1:${daemon.port}`,
    ...args.slice(-1),
  ],
  "the unix socket": (daemon, ...args) => [
    "-plaintext",
    "-unix",
    "-authority",
    "localhost",
    ...args.slice(0, -1),
    daemon.socketPath,
    ...args.slice(-1),
  ],
};

for (const [listener, argsOf] of Object.entries(listeners)) {
  grpcurlTest(`grpcurl lists, describes and calls services on ${listener}${why}`, async (t) => {
    t.timeout(180_000);
    const daemon = await emptyDaemon();
    const ask = (...args: string[]) => run(...argsOf(daemon, ...args));

    const list = await ask("list");
    t.is(list.code, 0, list.err);
    const services = list.out.trim().split("\n");
    const own = new Set(Object.keys(methodPolicies).map((name) => name.split("/")[0]));
    t.deepEqual(
      services.filter((name) => name.startsWith("svc.v1.")),
      [...own].toSorted(),
    );
    const described = await ask("describe");
    t.is(described.code, 0, described.err);
    for (const name of Object.keys(methodPolicies)) {
      t.true(described.out.includes(`rpc ${name.split("/")[1]} (`), name);
    }

    t.like(JSON.parse((await ask("svc.v1.DaemonService/GetStatus")).out), {
      mode: isRoot ? "system" : "user",
    });
    t.deepEqual(JSON.parse((await ask("grpc.health.v1.Health/Check")).out), { status: "SERVING" });
    const missing = await ask("-d", '{"id":"missing"}', "svc.v1.AppService/StartApp");
    t.is(missing.code, 64 + 5, "NOT_FOUND");
    t.regex(missing.err, /"@type": *"type.googleapis.com\/svc.v1.ErrorDetail",[^]*"reason": *"not_found"/);
  });
}

grpcurlTest(`an empty request of every method gets a response from a handler or a rule${why}`, async (t) => {
  t.timeout(180_000);
  const daemon = await emptyDaemon();
  const overTcp = listeners["the TCP port with a token"]!;
  const answers = await Promise.all(
    Object.keys(methodPolicies)
      .filter((name) => !/Reboot|Rotate|Commit|Revoke|Stream|Follow/.test(name))
      .map(async (name) => [name, await run(...overTcp(daemon, "-d", "{}", name))] as const),
  );
  for (const [name, { code, err }] of answers) {
    // Opening a page session requires a code, and codes are issued only to socket peers: those are rules, too.
    if (name.startsWith("svc.v1.SessionService/") && /"reason": *"token_denied"/.test(err)) continue;
    const status = code === 0 ? "OK" : (/Code: (\w+)/.exec(err)?.[1] ?? err);
    t.regex(status, /^(OK|InvalidArgument|Unimplemented|FailedPrecondition|Unavailable)$/, `${name}: ${err}`);
  }
});

grpcurlTest(`grpcurl without a token is denied everything except the health check${why}`, async (t) => {
  const daemon = await emptyDaemon();
  const address = `127.0.0.1:${daemon.port}`;
  const list = await run("-plaintext", address, "list");
  t.is(list.code, 1);
  t.regex(list.err, /Unauthenticated|token/);
  const proto = fileURLToPath(new URL("../../node_modules/grpc-health-check/proto", import.meta.url));
  const args = ["-plaintext", "-import-path", proto, "-proto", "health/v1/health.proto"];
  const check = await run(...args, address, "grpc.health.v1.Health/Check");
  t.deepEqual(JSON.parse(check.out), { status: "SERVING" });
});
