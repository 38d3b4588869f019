/** Each response is counted once, and each attempted change is audited, however early the response is sent. */
import { connect as connectHttp2 } from "node:http2";
import { buffer } from "node:stream/consumers";
import test from "ava";
import { eventually } from "../../support/eventually.ts";
import { rest, type RestRequestOptions } from "./support/clients.ts";
import { openGateway, type TestGateway } from "./support/gateway.ts";

const startApp = "svc.v1.AppService/StartApp";
const uid = process.getuid?.() ?? 0;
const asJson = { method: "POST", body: "{}" } as const;
const evil = { origin: "http://evil.example" };
const stranger = { kind: "anonymous", uid: 2 ** 32 - 1, from: "127.0.0.1" };
const primary = { kind: "primary", uid, from: "127.0.0.1" };
const peer = { kind: "peer", uid, from: undefined };

interface Case {
  readonly path: string;
  readonly request: RestRequestOptions;
  /** The expected counter. */
  readonly counted: string;
  /** The audited caller; absent: no record. */
  readonly tried?: { kind: string; uid: number; from: string | undefined };
}

const cases: Readonly<Record<string, Case>> = {
  "no token on REST": {
    path: "/v1/apps/web/start",
    request: { ...asJson, token: "" },
    counted: `${startApp} unauthenticated`,
    tried: stranger,
  },
  "no token on Connect": {
    path: `/${startApp}`,
    request: { ...asJson, token: "" },
    counted: `${startApp} unauthenticated`,
    tried: stranger,
  },
  "no token and reading": {
    path: "/v1/apps",
    request: { token: "" },
    counted: "svc.v1.AppService/ListApps unauthenticated",
  },
  "no token and no such path": {
    path: "/v1/nothing",
    request: { token: "" },
    counted: "unknown unauthenticated",
  },
  "another host": {
    path: "/v1/apps/web/start",
    request: { ...asJson, headers: { host: "evil.example" } },
    counted: `${startApp} permission_denied`,
    tried: stranger,
  },
  "another origin": {
    path: "/v1/apps/web/start",
    request: { ...asJson, headers: evil },
    counted: `${startApp} permission_denied`,
    tried: stranger,
  },
  "another origin on the socket": {
    path: "/v1/apps/web/start",
    request: { ...asJson, headers: evil, listener: "unix" },
    counted: `${startApp} permission_denied`,
    tried: peer,
  },
  "a path that is not canonical": {
    path: "/v1//apps",
    request: {},
    counted: "unknown invalid_argument",
  },
  "no such path": { path: "/v1/nothing", request: {}, counted: "unknown not_found" },
  "no such path outside of REST": { path: "/nothing", request: {}, counted: "unknown not_found" },
  "a method that the path does not take": {
    path: "/v1/apps/web/start",
    request: { method: "PATCH" },
    counted: "unknown unimplemented",
  },
  "a body that is not JSON": {
    path: "/v1/apps/web/start",
    request: { method: "POST", body: "{" },
    counted: `${startApp} invalid_argument`,
    tried: primary,
  },
  "a body of another type": {
    path: "/v1/apps/web/start",
    request: { ...asJson, headers: { "content-type": "text/plain" } },
    counted: `${startApp} invalid_argument`,
    tried: primary,
  },
  "a body that is too large": {
    path: "/v1/apps/web/start",
    request: { method: "POST", body: JSON.stringify({ x: "x".repeat(1024 * 1024) }) },
    counted: `${startApp} resource_exhausted`,
    tried: primary,
  },
  "a type that Connect does not know": {
    path: `/${startApp}`,
    request: { ...asJson, headers: { "content-type": "text/plain" } },
    counted: `${startApp} invalid_argument`,
    tried: primary,
  },
  "a method that Connect does not take": {
    path: `/${startApp}`,
    request: { method: "PUT", body: "{}" },
    counted: `${startApp} unimplemented`,
    tried: primary,
  },
  "an invalid deadline": {
    path: `/${startApp}`,
    request: { ...asJson, headers: { "connect-timeout-ms": "soon" } },
    counted: `${startApp} invalid_argument`,
    tried: primary,
  },
  "rules that are broken": {
    path: "/v1/apps",
    request: asJson,
    counted: "svc.v1.AppService/InstallApp invalid_argument",
    tried: primary,
  },
  "a call that is done": {
    path: "/v1/apps/web/start",
    request: asJson,
    counted: `${startApp} ok`,
    tried: primary,
  },
  "a page": { path: "/v1/openapi.json", request: { token: "" }, counted: "unknown ok" },
  "a look at its health": { path: "/healthz", request: { token: "" }, counted: "unknown ok" },
};

/** Waits for the notes after the response; then asserts that no more arrive. */
async function untilCounted(gateway: TestGateway): Promise<void> {
  await eventually(() => {
    if (gateway.counts.length === 0) throw new Error("nothing was counted");
  });
  await new Promise((resolve) => setTimeout(resolve, 20));
}

for (const [name, { path, request, counted, tried }] of Object.entries(cases)) {
  test(`${name} counts once`, async (t) => {
    await using gateway = await openGateway({ handlers: { app: { startApp: ({ id }) => ({ id }) } } });
    await rest(gateway, path, request);
    await untilCounted(gateway);
    t.deepEqual(gateway.counts, [counted]);
    t.deepEqual(
      gateway.audits.map(({ user }) => ({ kind: user.kind, uid: user.uid, from: user.address })),
      tried === undefined ? [] : [tried],
    );
    t.true(gateway.audits.every(({ requestId }) => requestId !== ""));
  });
}

for (const path of ["/v1/system/reboot", "/svc.v1.SystemService/RebootSystem"]) {
  test(`a denied POST ${path} counts once`, async (t) => {
    const nobody = 65_534;
    await using gateway = await openGateway({
      loadPeerUid: () => () => nobody,
    });
    const { status } = await rest(gateway, path, { ...asJson, listener: "unix" });
    t.is(status, 403);
    await untilCounted(gateway);
    t.deepEqual(gateway.counts, ["svc.v1.SystemService/RebootSystem permission_denied"]);
    t.deepEqual(
      gateway.audits.map(({ user, result, reason }) => [user.uid, result, reason]),
      [[nobody, "permission_denied", "root_required"]],
    );
  });
}

test("gRPC requests without a token, with an unknown method or with another content type count once", async (t) => {
  await using gateway = await openGateway();
  const session = connectHttp2(gateway.url);
  const call = async (path: string, headers: Record<string, string>) => {
    const stream = session.request({ ":method": "POST", ":path": path, te: "trailers", ...headers });
    stream.end();
    await buffer(stream);
    await untilCounted(gateway);
    return [gateway.counts.splice(0), gateway.audits.splice(0).map(({ protocolName }) => protocolName)];
  };
  const grpc = { "content-type": "application/grpc" };
  const known = { ...grpc, authorization: `Bearer ${gateway.token}` };
  t.deepEqual(await call(`/${startApp}`, grpc), [[`${startApp} unauthenticated`], ["grpc"]]);
  t.deepEqual(await call("/svc.v1.AppService/Nope", known), [["unknown unimplemented"], []]);
  t.deepEqual(await call(`/${startApp}`, { ...known, "content-type": "application/grpc+xml" }), [
    [`${startApp} invalid_argument`],
    ["grpc"],
  ]);
  session.close();
});

test("attempts of a throttled unknown caller are audited, too", async (t) => {
  await using gateway = await openGateway({ limits: { tokenFailureBudget: 1 } });
  for (let n = 0; n < 3; n++) await rest(gateway, "/v1/apps/web/start", { ...asJson, token: "" });
  await eventually(() => {
    if (gateway.counts.length < 3) throw new Error("not yet");
  });
  t.deepEqual(gateway.counts, [
    `${startApp} unauthenticated`,
    `${startApp} resource_exhausted`,
    `${startApp} resource_exhausted`,
  ]);
  t.deepEqual(
    gateway.audits.map(({ user, result }) => [user.kind, result]),
    [
      ["anonymous", "unauthenticated"],
      ["anonymous", "resource_exhausted"],
      ["anonymous", "resource_exhausted"],
    ],
  );
});

test("a request body whose client disconnects is a canceled call", async (t) => {
  await using gateway = await openGateway();
  const session = connectHttp2(gateway.url);
  const stream = session.request({
    ":method": "POST",
    ":path": "/v1/apps/web/start",
    "content-type": "application/json",
    authorization: `Bearer ${gateway.token}`,
  });
  stream.on("error", () => undefined);
  stream.write("{");
  await new Promise((resolve) => setTimeout(resolve, 50));
  stream.destroy(new Error("gone"));
  await untilCounted(gateway);
  t.deepEqual(gateway.counts, [`${startApp} canceled`]);
  session.close();
});

test("a stopping daemon counts the requests that it rejects", async (t) => {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  await using gateway = await openGateway({
    handlers: {
      app: {
        startApp: async ({ id }) => {
          await promise;
          return { id };
        },
      },
    },
  });
  const session = connectHttp2(gateway.url);
  const headers = { authorization: `Bearer ${gateway.token}`, "content-type": "application/json" };
  const post = () =>
    session.request({ ":method": "POST", ":path": "/v1/apps/web/start", ...headers }).end("{}");
  const first = post();
  await eventually(() => {
    if (gateway.pipeline.callsInFlight === 0) throw new Error("not yet");
  });
  const stopped = gateway.listeners.stop();
  const late = post();
  await buffer(late);
  t.deepEqual(gateway.counts, [`${startApp} unavailable`]);
  resolve(undefined);
  await buffer(first);
  session.close();
  await stopped;
  t.deepEqual(gateway.counts, [`${startApp} unavailable`, `${startApp} ok`]);
});
