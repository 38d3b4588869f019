/** The checks of a request before it reaches a handler, and their order. */
import { connect as connectHttp2, type SecureClientSessionOptions } from "node:http2";
import { connect } from "node:net";
import { createClient } from "@connectrpc/connect";
import test from "ava";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { nextEvent } from "../../support/eventually.ts";
import { listenersUnderTest, rest, protocols, transportTo } from "./support/clients.ts";
import { openGateway, type TestGateway } from "./support/gateway.ts";
import { isRoot, needsRoot } from "./support/peer.ts";

/** Sends bytes unchanged and reads until the server closes. */
function raw(gateway: TestGateway, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(gateway.port, "127.0.0.1", () => socket.end(text));
    let answer = "";
    socket.on("data", (chunk) => (answer += chunk.toString()));
    socket.on("close", () => resolve(answer));
    socket.on("error", reject);
  });
}

function http2(
  gateway: TestGateway,
  headers: Record<string, string>,
  options: SecureClientSessionOptions = {},
): Promise<{ headers: Record<string, unknown>; text: string }> {
  return new Promise((resolve, reject) => {
    const session = connectHttp2(gateway.url, options);
    session.on("error", reject);
    const stream = session.request({ ":method": "POST", ...headers });
    let answer: Record<string, unknown> = {};
    let text = "";
    stream.on("response", (received) => (answer = received as Record<string, unknown>));
    stream.on("data", (chunk) => (text += String(chunk)));
    stream.on("error", reject);
    stream.on("close", () => {
      session.close();
      resolve({ headers: answer, text });
    });
    stream.end("{}");
  });
}

for (const path of [
  "//v1/status",
  "/v1//status",
  "/v1/./status",
  "/v1/../v1/status",
  "/v1/%2e%2e/status",
  "/svc.v1.AppService%2fStartApp",
  "/svc.v1.AppService//StartApp",
  "/%00",
  "/v1/status%zz",
]) {
  test(`the path ${path} is not canonical for any caller`, async (t) => {
    await using gateway = await openGateway();
    for (const token of ["", gateway.token]) t.is((await rest(gateway, path, { token })).status, 400);
  });
}

test("a path without its slash matches nothing", async (t) => {
  await using gateway = await openGateway();
  for (const line of ["POST svc.v1.AppService/StartApp", "GET http://localhost/v1/status"]) {
    const answer = await raw(gateway, `${line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
    t.regex(answer, /^HTTP\/1\.1 400 /, line);
  }
  // Either nghttp2 and node reject such a :path, or the daemon does.
  const { headers } = await http2(gateway, {
    ":path": "svc.v1.AppService/StartApp",
    authorization: `Bearer ${gateway.token}`,
  }).catch(() => ({ headers: { ":status": 400 } }));
  t.is(headers[":status"], 400);
});

test("a star is not a path", async (t) => {
  await using gateway = await openGateway();
  const answer = await raw(gateway, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  t.regex(answer, /^HTTP\/1\.1 400 /);
});

test("paths are case-sensitive", async (t) => {
  await using gateway = await openGateway();
  const { status } = await rest(gateway, "/svc.v1.appservice/startapp", { method: "POST", body: "{}" });
  t.is(status, 404);
});

test("401 comes before 404, 405, 403, 415, 413 and 400", async (t) => {
  await using gateway = await openGateway();
  for (const [method, path, body] of [
    ["GET", "/v1/nothing", undefined],
    ["GET", "/nothing", undefined],
    ["PATCH", "/v1/apps", undefined],
    ["POST", "/v1/processes/1/signal", "{}"],
    ["POST", "/v1/apps", "not json"],
    ["POST", "/v1/apps", "x".repeat(2 * 1024 * 1024)],
    ["POST", "/svc.v1.AppService/StartApp", "{}"],
  ] as const) {
    const { status, json, headers } = await rest(gateway, path, {
      method,
      token: "",
      ...(body === undefined ? {} : { body }),
    });
    t.is(status, 401, path);
    if (path.startsWith("/v1")) {
      t.is(json.reason, "unauthenticated");
      t.truthy(headers["www-authenticate"]);
    } else {
      t.true(status === 401);
    }
  }
});

test("authenticated callers get 404, 405 and 415", async (t) => {
  await using gateway = await openGateway();
  t.is((await rest(gateway, "/v1/nothing")).status, 404);
  t.is((await rest(gateway, "/nothing")).status, 404);
  const verb = await rest(gateway, "/v1/apps", { method: "PATCH" });
  t.is(verb.status, 405);
  t.regex(String(verb.headers["allow"]), /POST/);
  const type = await rest(gateway, "/v1/apps", {
    method: "POST",
    body: "{}",
    headers: { "content-type": "text/plain" },
  });
  t.is(type.status, 415);
  t.is(
    (
      await rest(gateway, "/svc.v1.AppService/StartApp", {
        method: "POST",
        body: "id=x",
        headers: { "content-type": "application/x-www-form-urlencoded" },
      })
    ).status,
    415,
  );
});

for (const [name, header] of [
  ["no token", undefined],
  ["a wrong token", "Bearer svcp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"],
  ["a token that goes on", (token: string) => `Bearer ${token}x`],
  ["half a token", (token: string) => `Bearer ${token.slice(0, -1)}`],
  ["another scheme", (token: string) => `Basic ${token}`],
  ["two tokens", (token: string) => `Bearer ${token} ${token}`],
  ["an empty token", "Bearer "],
  ["a very long token", `Bearer ${"x".repeat(8000)}`],
] as const) {
  test(`${name} is not recognized, and no handler runs`, async (t) => {
    let calls = 0;
    await using gateway = await openGateway({
      handlers: { daemon: { getStatus: () => ({ version: String(++calls) }) } },
    });
    const authorization = typeof header === "function" ? header(gateway.token) : header;
    const headers = authorization === undefined ? {} : { authorization };
    t.is((await rest(gateway, "/v1/status", { token: "", headers })).status, 401);
    t.is(calls, 0);
  });
}

test("healthz and the API's description need no token and contain no data", async (t) => {
  await using gateway = await openGateway();
  const health = await rest(gateway, "/healthz", { token: "" });
  t.deepEqual([health.status, health.text], [200, '{"status":"ok"}']);
  const openapi = await rest(gateway, "/v1/openapi.json", { token: "" });
  t.deepEqual([openapi.status, openapi.json.openapi], [200, "3.1.0"]);
  const head = await rest(gateway, "/healthz", { token: "", method: "HEAD" });
  t.deepEqual([head.status, head.text], [200, ""]);
  t.is((await rest(gateway, "/healthz", { token: "", method: "POST" })).status, 401);
});

const hosts: [host: string, isAccepted: boolean][] = [
  ["localhost", true],
  ["LOCALHOST:8420", true],
  ["127.0.0.1:8420", true],
  ["127.8.9.1", true],
  ["[::1]:8420", true],
  ["node.example.com", true],
  ["NODE.Example.com.", true],
  ["node.example.com.:8443", true],
  ["node.example.com:", true],
  ["[fd00::7]", true],
  ["[FD00:0:0::7]:8420", true],
  ["[fd00::8]", false],
  ["[fd00::7", false],
  ["fd00::7", false],
  ["node.example.com..", false],
  ["node.example.com:80:80", false],
  [".", false],
  ["node.example.com:443", true],
  ["evil.example", false],
  ["localhost.evil.example", false],
  ["127.0.0.1.evil.example", false],
  ["evil.example:127.0.0.1", false],
  ["0.0.0.0", false],
  ["node.example.com.evil", false],
];
for (const [host, isAccepted] of hosts) {
  test(`TCP ${isAccepted ? "accepts" : "rejects"} the host ${host}`, async (t) => {
    await using gateway = await openGateway({ allowedHosts: ["node.example.com", "fd00::7"] });
    for (const path of ["/v1/status", "/healthz"]) {
      const { status, json } = await rest(gateway, path, { headers: { host } });
      t.is(status, isAccepted ? 200 : 403);
      if (!isAccepted) t.is(json.reason, "host_denied");
    }
    t.is((await rest(gateway, "/v1/status", { headers: { host }, listener: "unix" })).status, 200);
  });
}

for (const listener of listenersUnderTest) {
  for (const [origin, isAccepted] of [
    ["http://localhost:8420", true],
    ["https://localhost:8420", true],
    ["http://localhost:3000", false],
    ["http://localhost", false],
    ["http://evil.example", false],
    ["null", false],
    ["file://localhost:8420", false],
    ["", false],
  ] as const) {
    test(`${listener} ${isAccepted ? "accepts" : "rejects"} the origin "${origin}"`, async (t) => {
      await using gateway = await openGateway();
      const headers = { origin, host: "localhost:8420" };
      for (const path of ["/v1/status", "/svc.v1.DaemonService/GetStatus"]) {
        const { status } = await rest(gateway, path, {
          headers,
          listener,
          ...(path.startsWith("/svc") ? { method: "POST", body: "{}" } : {}),
        });
        t.is(status, isAccepted ? 200 : 403, path);
      }
    });
  }
}

for (const [origin, host, isAccepted] of [
  ["https://node.example.com", "node.example.com", true],
  ["https://node.example.com", "node.example.com:443", true],
  ["http://node.example.com", "node.example.com:80", true],
  ["https://node.example.com:8443", "node.example.com:8443", true],
  ["https://Node.Example.com.", "node.example.com", true],
  ["https://node.example.com:443", "node.example.com", true],
  ["https://node.example.com.evil.example", "node.example.com", false],
  ["https://node.example.com@evil.example", "node.example.com", false],
  ["https://node.example.com", "node.example.com:8443", false],
  ["https://node.example.com:8443", "node.example.com", false],
  ["http://node.example.com", "node.example.com:443", false],
] as const) {
  test(`behind a proxy, the origin ${origin} is ${isAccepted ? "accepted" : "rejected"} with the host ${host}`, async (t) => {
    await using gateway = await openGateway({ allowedHosts: ["node.example.com"] });
    const { status, json } = await rest(gateway, "/v1/status", { headers: { origin, host } });
    t.is(status, isAccepted ? 200 : 403);
    if (isAccepted) return;
    t.is(json.reason, "origin_denied");
    t.regex(
      String(json.error),
      /^the header Origin ".*" differs from Host ".*", and .*; a reverse proxy must pass Host unchanged/,
    );
  });
}

test("a rejected host is named with the setting that allows it", async (t) => {
  await using gateway = await openGateway({ allowedHosts: [] });
  const { json } = await rest(gateway, "/v1/status", { headers: { host: "Node.Example.com:8443" } });
  t.is(
    json.error,
    'the header Host "Node.Example.com:8443" is not allowed; set allowed_hosts = ["node.example.com"] under [api] in svc.toml, and restart svc',
  );
  const invalid = await rest(gateway, "/v1/status", { headers: { host: "a<b>" } });
  t.regex(
    String(invalid.json.error),
    /^the header Host "a<b>" is not a host name; set allowed_hosts = \["svc\.example\.org"\]/,
  );
});

test("HTTP/2 keeps the same order", async (t) => {
  await using gateway = await openGateway({ allowedHosts: [] });
  const authorization = `Bearer ${gateway.token}`;
  const path = "/svc.v1.DaemonService/GetStatus";
  const grpc = { "content-type": "application/grpc" };

  const stranger = await http2(gateway, { ":path": path, ...grpc });
  t.like(stranger.headers, { ":status": 200, "grpc-status": "16" });
  const rebound = await http2(gateway, { ":path": path, ":authority": "evil.example", ...grpc });
  t.like(rebound.headers, { ":status": 200, "grpc-status": "7" });
  const unknown = await http2(gateway, { ":path": "/svc.v1.Nope/Nope", authorization, ...grpc });
  t.like(unknown.headers, { ":status": 200, "grpc-status": "12" });
  const lost = await http2(gateway, {
    ":path": "/nothing",
    authorization,
    "content-type": "application/json",
  });
  t.is(lost.headers[":status"], 404);
  const strangerOnRest = await http2(gateway, { ":path": "/v1/nothing" });
  t.is(strangerOnRest.headers[":status"], 401);
});

test("a host that is not valid in a URL is accepted: gRPC's C library sends a socket's path", async (t) => {
  await using gateway = await openGateway();
  const headers = {
    ":path": "/svc.v1.DaemonService/GetStatus",
    "content-type": "application/json",
    authorization: `Bearer ${gateway.token}`,
  };
  const onSocket = { createConnection: () => connect(gateway.socketPath) };
  const named = await http2(gateway, { ...headers, ":authority": "tmp%2Fsvc.sock" }, onSocket);
  t.is(named.headers[":status"], 200);
  const badPort = await http2(gateway, { ...headers, ":authority": "localhost:99999" });
  t.is(badPort.headers[":status"], 200);
});

test("a client that waits for 100-continue is rejected at once", async (t) => {
  await using gateway = await openGateway();
  const answer = await raw(
    gateway,
    "POST /v1/apps HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
  );
  t.regex(answer, /^HTTP\/1\.1 401 /);
});

test("an unauthenticated upload is not read", async (t) => {
  await using gateway = await openGateway();
  const received = await new Promise<number>((resolve, reject) => {
    const socket = connect(gateway.port, "127.0.0.1");
    let sent = 0;
    socket.write(
      "PUT /v1/files/content?path=/tmp/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n",
    );
    const push = (): void => {
      while (socket.writable && socket.write(Buffer.alloc(65536))) sent += 65536;
    };
    socket.on("drain", push);
    socket.on("data", () => undefined);
    socket.on("close", () => resolve(sent));
    socket.on("error", () => undefined);
    setTimeout(() => reject(new Error("still open")), 10_000).unref();
    push();
  });
  t.true(received < 1_000_000_000, String(received));
});

// Ambiguous requests are rejected, and nothing after them is parsed as a request.

/** The complete response to `text` until the daemon closes the connection. */
async function answersTo(gateway: TestGateway, text: string): Promise<string> {
  const socket = connect(gateway.port, "127.0.0.1");
  let answer = "";
  socket.on("data", (chunk) => (answer += chunk.toString("latin1")));
  socket.write(text);
  await nextEvent(socket, "close");
  return answer;
}

const statuses = (answer: string): string[] => answer.match(/^HTTP\/1\.1 \d+/gm) ?? [];

for (const [name, headers, status] of [
  ["one of each", ["Host: localhost", "Authorization: Bearer TOKEN"], 200],
  ["two hosts", ["Host: localhost", "Authorization: Bearer TOKEN", "Host: localhost"], 400],
  [
    "two hosts of different case",
    ["HOST: localhost", "hosT: evil.example", "Authorization: Bearer TOKEN"],
    400,
  ],
  ["two tokens", ["Host: localhost", "Authorization: Bearer TOKEN", "authorization: Bearer x"], 400],
  [
    "two tokens, the right one last",
    ["Host: localhost", "Authorization: x", "AUTHORIZATION: Bearer TOKEN"],
    400,
  ],
] as const) {
  test(`HTTP/1.1 with ${name} is ${status}`, async (t) => {
    await using gateway = await openGateway();
    const lines = ["GET /v1/status HTTP/1.1", ...headers, "Connection: close", "", ""];
    const answer = await answersTo(gateway, lines.join("\r\n").replace("TOKEN", gateway.token));
    t.deepEqual(statuses(answer), [`HTTP/1.1 ${status}`]);
    if (status === 400) t.regex(answer, /"reason":"invalid_request"/);
  });
}

for (const [name, host, status] of [
  ["the same host twice", "AUTHORITY", 200],
  ["another host", "localhost", 400],
] as const) {
  test(`HTTP/2 with ${name} beside its authority is ${status}`, async (t) => {
    await using gateway = await openGateway();
    const session = connectHttp2(gateway.url);
    const authorization = `Bearer ${gateway.token}`;
    const authority = new URL(gateway.url).host;
    const stream = session.request({
      ":path": "/v1/status",
      ":authority": authority,
      host: host.replace("AUTHORITY", authority),
      authorization,
    });
    const [headers] = (await nextEvent(stream, "response")) as [Record<string, unknown>];
    t.is(headers[":status"], status);
    session.close();
  });
}

test("HTTP/1.0 with a transfer encoding is rejected, and the following bytes are not a request", async (t) => {
  await using gateway = await openGateway();
  const head = `Host: localhost\r\nAuthorization: Bearer ${gateway.token}\r\nConnection: keep-alive\r\n`;
  const answer = await answersTo(
    gateway,
    `POST /v1/apps/hello/start HTTP/1.0\r\n${head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n` +
      `GET /v1/status HTTP/1.1\r\n${head}\r\n`,
  );
  t.deepEqual(statuses(answer), ["HTTP/1.1 400"]);
});

// Headers that claim an identity, and requests that any page could send, over every protocol.

const rootTest = isRoot ? test : test.skip;
const headers = { "x-svc-sudo-uid": "5" };

for (const protocol of protocols) {
  test(`${protocol} on TCP: headers that claim an identity are ignored`, async (t) => {
    await using gateway = await openGateway();
    const client = createClient(DaemonService, transportTo(gateway, protocol, "TCP", { headers }));
    t.is((await client.getStatus({})).hostname, String(process.getuid?.()));
  });

  rootTest(
    `${protocol} on the socket: root's sudo headers set the owner, and nothing else${needsRoot}`,
    async (t) => {
      await using gateway = await openGateway();
      const client = createClient(DaemonService, transportTo(gateway, protocol, "unix", { headers }));
      const { hostname, caller } = await client.getStatus({});
      t.is(hostname, "5");
      t.like(caller, { uid: 0, root: true });
    },
  );
}

for (const path of ["/v1/apps/hello/start", "/svc.v1.AppService/StartApp"]) {
  for (const type of [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "",
  ]) {
    test(`POST ${path} as "${type}" is 415, and no handler runs`, async (t) => {
      let calls = 0;
      await using gateway = await openGateway({
        handlers: {
          app: {
            startApp: ({ id }) => {
              calls++;
              return { id };
            },
          },
        },
      });
      const answer = await rest(gateway, path, {
        method: "POST",
        body: '{"id":"hello"}',
        headers: { "content-type": type },
      });
      t.deepEqual([answer.status, calls], [415, 0]);
    });
  }
}

test("a GET request never reaches a changing method", async (t) => {
  await using gateway = await openGateway();
  const query = "?connect=v1&encoding=json&message=%7B%22id%22%3A%22hello%22%7D";
  const { status } = await rest(gateway, `/svc.v1.AppService/StartApp${query}`);
  t.is(status, 405);
});
