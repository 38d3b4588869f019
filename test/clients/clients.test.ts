/** Clients of others' making against a live daemon: grpc-js, and one that openapi-typescript generates. */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import {
  type ClientOptions,
  Metadata,
  type ServiceClientConstructor,
  type ServiceError,
  compressionAlgorithms,
  credentials,
  loadPackageDefinition,
  status,
} from "@grpc/grpc-js";
import { load } from "@grpc/proto-loader";
import test from "ava";
import createClient from "openapi-fetch";
import type { paths } from "../../gen/openapi.ts";
import { ErrorDetailSchema } from "../../gen/svc/v1/error_pb.ts";
import { type TestDaemon, startDaemon } from "../support/daemon.ts";
import { freePort, writePackage, writeRepository } from "../support/packages.ts";

// A client generated from proto/ with only @grpc/grpc-js, over TCP and the unix socket; errors are read from their
// rich details.

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

// A client generated by openapi-typescript with only openapi-fetch, against a live daemon.

test("a TypeScript client made from openapi.json installs, runs and removes an app", async (t) => {
  await using daemon = await startDaemon();
  const spec = await writeRepository(join(daemon.dir, "web.git"), await freePort(), [
    { files: { LICENSE: "Do as you like.\n" } },
  ]);
  const svc = createClient<paths>({
    baseUrl: `http://127.0.0.1:${daemon.port}`,
    headers: { authorization: `Bearer ${daemon.token}` },
    querySerializer: { array: { style: "form", explode: false } },
  });
  const params = { path: { id: "web" } };

  t.deepEqual((await svc.GET("/v1/apps")).data?.apps, []);

  const { error: unlicensed, response } = await svc.POST("/v1/apps", { body: { spec } });
  t.is(response.status, 409);
  t.is(unlicensed?.reason, "license_required");
  t.deepEqual(
    unlicensed?.license_required?.licenses.map(({ name, text }) => [name, text]),
    [["LICENSE", "Do as you like.\n"]],
  );

  const { data: installed } = await svc.POST("/v1/apps", { body: { spec, license_ack: true } });
  t.is(installed?.state, "STOPPED");
  t.is((await svc.POST("/v1/apps/{id}/start", { params })).data?.state, "RUNNING");
  const { data: stats } = await svc.GET("/v1/stats", { params: { query: { ids: ["web", "other"] } } });
  t.deepEqual(
    stats?.stats.map(({ id }) => id),
    ["web"],
  );

  const { data: settings } = await svc.PUT("/v1/apps/{id}/settings", {
    params,
    body: { values: { greeting: "moin" } },
  });
  t.is(settings?.values?.["greeting"], "moin");
  const { error: broken } = await svc.PUT("/v1/apps/{id}/settings", {
    params,
    body: { values: { colour: "red" } },
  });
  t.is(broken?.reason, "invalid_request");
  t.deepEqual(
    broken?.invalid_request?.violations.map(({ field }) => field),
    ["values.colour"],
  );

  t.truthy((await svc.DELETE("/v1/apps/{id}", { params })).data);
  t.is((await svc.GET("/v1/apps/{id}", { params })).error?.reason, "not_found");
});
