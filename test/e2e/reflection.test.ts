/** Server reflection, v1 and v1alpha: a client without the contract builds all of it from the responses. */
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
import { AuditService } from "../../gen/svc/v1/audit_pb.ts";
import { routes } from "../../gen/svc/v1/routes.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";

const emptyDaemon = sharedDaemon();

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

test("it requires authentication, and changes nothing", async (t) => {
  const daemon = await emptyDaemon();
  const refused = await errorOf(ask(daemon.tokenClient(ServerReflection, "grpc", "svcp_wrong")));
  t.is(refused.code, "Unauthenticated");
  await ask(daemon.client(ServerReflection, "grpc"), { case: "listServices", value: "" });
  t.is((await daemon.client(AuditService).listAudit({})).records.length, 0);
});

const rootTest = isRoot ? test : test.skip;
rootTest(`a regular user may use it${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using nobody = await daemon.as(65_534);
  const [list] = await ask(nobody.client(ServerReflection, "grpc"), { case: "listServices", value: "" });
  t.is(list?.messageResponse.case, "listServicesResponse");
});
