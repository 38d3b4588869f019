/**
 * A client generated from proto/ with only @grpc/grpc-js, over TCP and the unix socket; errors are read from their rich
 * details.
 */
import { createHash } from "node:crypto";
import { join } from "node:path";
import {
  compressionAlgorithms,
  credentials,
  loadPackageDefinition,
  Metadata,
  status,
  type ClientOptions,
  type ServiceClientConstructor,
  type ServiceError,
} from "@grpc/grpc-js";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import { load } from "@grpc/proto-loader";
import test from "ava";
import { ErrorDetailSchema } from "../../gen/svc/v1/error_pb.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { freePort, writePackage, writeRepository } from "../support/packages.ts";

const root = join(import.meta.dirname, "../..");

type Call = (name: string, request: object) => Promise<Record<string, unknown>>;

const transports: Record<string, (daemon: TestDaemon) => { address: string; token?: string }> = {
  TCP: ({ port, token }) => ({ address: `127.0.0.1:${port}`, token }),
  "the unix socket": ({ socketPath }) => ({ address: `unix:${socketPath}` }),
};

for (const [name, transport] of Object.entries(transports)) {
  test(`grpc-js installs, runs and removes an app over ${name}`, async (t) => {
    await using daemon = await startDaemon();
    const { address, token } = transport(daemon);
    using client = await openClient(address, token);
    const { call } = client;
    const files = { LICENSE: "Do as you like.\n" };
    const spec = await writeRepository(join(daemon.dir, "web.git"), await freePort(), [{ files }]);

    t.deepEqual((await call("ListApps", {}))["apps"], []);
    const refused = detailOf(await t.throwsAsync<ServiceError>(call("InstallApp", { spec })));
    t.like(refused, { code: status.FAILED_PRECONDITION, reason: "license_required" });
    t.is(refused.payload.case, "licenseRequired");

    t.is((await call("InstallApp", { spec, license_ack: true }))["state"], "STOPPED");
    t.is((await call("StartApp", { id: "web" }))["state"], "RUNNING");
    await call("RemoveApp", { id: "web" });
    const gone = detailOf(await t.throwsAsync<ServiceError>(call("GetApp", { id: "web" })));
    t.like(gone, { code: status.NOT_FOUND, reason: "not_found" });
  });
}

// Compressed calls do not use the fast path of plain ones.
const forms: Record<string, ClientOptions> = {
  plain: {},
  packed: { "grpc.default_compression_algorithm": compressionAlgorithms.gzip },
};

for (const [form, options] of Object.entries(forms)) {
  test(`a license that is longer than trailers allow is shown with its beginning (${form})`, async (t) => {
    await using daemon = await startDaemon();
    using client = await openClient(`unix:${daemon.socketPath}`, undefined, options);
    const text = "Do as you like. ".repeat(4096);
    const spec = join(daemon.dir, "package");
    await writePackage(spec, await freePort(), { files: { LICENSE: text } });

    const error = await t.throwsAsync<ServiceError>(client.call("InstallApp", { spec }));
    const refused = detailOf(error);
    t.like(refused, { code: status.FAILED_PRECONDITION, reason: "license_required" });
    const [license] = refused.payload.case === "licenseRequired" ? refused.payload.value.licenses : [];
    t.like(license, { name: "LICENSE", sha256: createHash("sha256").update(text).digest("hex") });
    t.is(license?.text, `${text.slice(0, 4095)}…`);
    // The default limit of clients of gRPC's C core and of Java.
    const headers = Object.entries(error.metadata.toHttp2Headers());
    t.true(headers.reduce((sum, [name, value]) => sum + name.length + String(value).length + 32, 0) < 8192);
  });
}

async function openClient(
  address: string,
  token: string | undefined,
  options?: ClientOptions,
): Promise<Disposable & { call: Call }> {
  const definition = await load("svc/v1/app.proto", {
    includeDirs: [join(root, "proto"), join(root, "node_modules/google-proto-files")],
    keepCase: true,
    defaults: true,
  });
  const { svc } = loadPackageDefinition(definition) as {
    svc: { v1: { AppService: ServiceClientConstructor } };
  };
  const client = new svc.v1.AppService(address, credentials.createInsecure(), options);
  const metadata = new Metadata();
  if (token !== undefined) metadata.set("authorization", `Bearer ${token}`);
  return {
    call: (name, request) => {
      const { promise, resolve, reject } = Promise.withResolvers<Record<string, unknown>>();
      const method = (client as unknown as Record<string, (...args: unknown[]) => void>)[name];
      method?.call(client, request, metadata, (error: unknown, answer: Record<string, unknown>) =>
        error === null ? resolve(answer) : reject(error),
      );
      return promise;
    },
    [Symbol.dispose]: () => client.close(),
  };
}

/** The code, and svc's detail in the `google.rpc.Status` of the trailers. */
function detailOf(error: ServiceError) {
  const [trailer] = error.metadata.get("grpc-status-details-bin");
  const trailers = new Headers({
    "grpc-status": String(error.code),
    "grpc-status-details-bin": Buffer.from(trailer!).toString("base64"),
  });
  const [detail] = findTrailerError(trailers)!.findDetails(ErrorDetailSchema);
  return { code: error.code, ...detail! };
}
