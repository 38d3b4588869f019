/**
 * The identity that the daemon assigns to a socket peer. Which client, host and scheme a request has behind
 * reverse proxies.
 */
import { stat } from "node:fs/promises";
import { request } from "node:http";
import { connect } from "node:net";
import test from "ava";
import { uidIn } from "../../../src/server/http/peer-uid.ts";
import { rest } from "./support/clients.ts";
import { openGateway } from "./support/gateway.ts";
import { callAs, isRoot, needsRoot } from "./support/peer.ts";
import { TrustedProxies, type Origin } from "../../../src/server/http/request-source.ts";

const rootTest = isRoot ? test : test.skip;
const nobody = 65534;

rootTest(`a peer's identity comes from the kernel, and it owns what it creates${needsRoot}`, async (t) => {
  await using gateway = await openGateway();
  const status = await callAs(nobody, gateway.socketPath, "/v1/status");
  t.like(status, {
    status: 200,
    json: { version: "peer", hostname: "65534", caller: { uid: nobody, user: "", root: false } },
  });
  const root = await callAs(0, gateway.socketPath, "/v1/status");
  t.like(root.json, { version: "peer", hostname: "0", caller: { uid: 0, root: true } });
});

rootTest(`a regular peer is denied root's methods before validation${needsRoot}`, async (t) => {
  await using gateway = await openGateway();
  for (const [method, path] of [
    ["POST", "/v1/processes/1/signal"],
    ["GET", "/v1/docker/containers"],
    ["GET", "/v1/token"],
    ["POST", "/v1/system/reboot"],
  ] as const) {
    const { status, json } = await callAs(nobody, gateway.socketPath, path, { method });
    t.is(status, 403, path);
    t.is(json["reason"], "root_required", path);
  }
  // Denied changes are audited; a denied read is not.
  t.deepEqual(
    gateway.audits.map(({ method, result, user }) => [method.split("/")[1], result, user.uid]),
    [
      ["SignalProcess", "permission_denied", nobody],
      ["RebootSystem", "permission_denied", nobody],
    ],
  );
});

rootTest(`a socket name that looks like an identity has no effect${needsRoot}`, async (t) => {
  await using gateway = await openGateway();
  const path = "/v1/docker/containers?x=;uid=0;";
  const headers = { forwarded: "for=;uid=0;", "x-svc-uid": "0" };
  for (const boundName of [";uid=0;", "x;uid=0;pid=1;socket=y", undefined]) {
    const call = { headers, ...(boundName !== undefined && { boundName }) };
    const { status, json } = await callAs(nobody, gateway.socketPath, path, call);
    t.is(status, 403, boundName);
    t.is(json["reason"], "root_required");
  }
});

rootTest(`a bearer token has no effect on the socket${needsRoot}`, async (t) => {
  await using gateway = await openGateway();
  const headers = { authorization: `Bearer ${gateway.token}` };
  const { json } = await callAs(nobody, gateway.socketPath, "/v1/status", { headers });
  t.like(json, { version: "peer", caller: { uid: nobody, root: false } });
});

rootTest(`only root's sudo headers have an effect, and only on the owner${needsRoot}`, async (t) => {
  await using gateway = await openGateway();
  const headers = { "x-svc-sudo-uid": "5", "x-svc-sudo-user": "games" };
  const root = await callAs(0, gateway.socketPath, "/v1/status", { headers });
  t.like(root.json, { hostname: "5", caller: { uid: 0, root: true } });
  const user = await callAs(nobody, gateway.socketPath, "/v1/status", {
    headers: { "x-svc-sudo-uid": "0", "x-svc-sudo-user": "root" },
  });
  t.like(user.json, { hostname: "65534", caller: { uid: nobody, root: false } });
  const tcp = await rest(gateway, "/v1/status", { headers });
  t.is(tcp.json.hostname, "0");
});

for (const value of ["-1", "4294967296", "4294967295", "4e9", "0x0", "00", "1,0", "1 0", "", "root", "+1"]) {
  rootTest(`a sudo uid of ${JSON.stringify(value)} is rejected${needsRoot}`, async (t) => {
    await using gateway = await openGateway();
    const { status, json } = await callAs(0, gateway.socketPath, "/v1/status", {
      headers: { "x-svc-sudo-uid": value },
    });
    t.is(status, 400, JSON.stringify(json));
    t.is(json["reason"], "invalid_request");
  });
}

rootTest(`a duplicate sudo uid is rejected${needsRoot}`, async (t) => {
  await using gateway = await openGateway();
  const { status } = await callAs(0, gateway.socketPath, "/v1/status", {
    headers: { "x-svc-sudo-uid": ["5", "0"] },
  });
  t.is(status, 400);
});

test("a system daemon's socket is open to all users, and a user daemon's only to its user", async (t) => {
  await using system = await openGateway();
  t.is((await stat(system.socketPath)).mode & 0o777, 0o666);
  await using own = await openGateway({ mode: "user" });
  t.is((await stat(own.socketPath)).mode & 0o777, 0o600);
});

rootTest(`in user mode the own uid is root, and other users are closed at accept${needsRoot}`, async (t) => {
  await using gateway = await openGateway({
    mode: "user",
    selfUid: nobody,
    // The file's mode would exclude them already; the kernel's identity must be sufficient.
    loadPeerUid: () => () => 5,
  });
  t.is((await callAs(0, gateway.socketPath, "/v1/status")).status, 0);

  for (const uid of [nobody, 0]) {
    await using own = await openGateway({
      mode: "user",
      selfUid: nobody,
      loadPeerUid: () => () => uid,
    });
    const headers = { "x-svc-sudo-uid": "5" };
    const { json } = await callAs(0, own.socketPath, "/v1/status", { headers });
    // A user daemon's owner cannot act for other users: only uid 0 may set the headers.
    t.like(json, { hostname: uid === 0 ? "5" : String(uid), caller: { uid, root: true } });
  }
});

test("without the kernel's identity nobody is served", async (t) => {
  let calls = 0;
  await using gateway = await openGateway({
    handlers: { daemon: { getStatus: () => ({ version: String(++calls) }) } },
    loadPeerUid: () => () => {
      throw new Error("no credentials");
    },
  });
  await t.throwsAsync(rest(gateway, "/v1/status", { listener: "unix" }), {
    message: /hang up|ECONNRESET|EPIPE/,
  });
  t.is(calls, 0);
});

test("an invalid uid is not an identity", (t) => {
  t.throws(() => uidIn(Uint32Array.of(1, 0xffffffff, 0)));
  t.is(uidIn(Uint32Array.of(1, 0xfffffffe, 0)), 0xfffffffe);
});

test("without the native call TCP is still served, with a warning", async (t) => {
  await using gateway = await openGateway({
    loadPeerUid: () => {
      throw new Error("no native module");
    },
  });
  t.is(gateway.socketPath, "");
  t.true(gateway.lines.some(({ level, message }) => level === "warn" && message.includes("unix socket")));
  t.is((await rest(gateway, "/v1/status")).status, 200);
});

test("many concurrent connections keep their own identity", async (t) => {
  await using gateway = await openGateway();
  const statuses = await Promise.all(
    Array.from(
      { length: 50 },
      (_unused, n) =>
        new Promise<string>((resolve, reject) => {
          const onUnix = n % 2 === 0;
          const socket = onUnix ? connect(gateway.socketPath) : connect(gateway.port, "127.0.0.1");
          const call = request({
            createConnection: () => socket,
            path: "/v1/status",
            headers: onUnix ? {} : { host: "localhost", authorization: `Bearer ${gateway.token}` },
          });
          call.on("error", reject);
          call.on("response", (response) => {
            let text = "";
            response.on("data", (chunk) => (text += String(chunk)));
            response.on("end", () => resolve((JSON.parse(text) as { version: string }).version));
          });
          call.end();
        }),
    ),
  );
  t.deepEqual(
    statuses,
    Array.from({ length: 50 }, (_unused, n) => (n % 2 === 0 ? "peer" : "primary")),
  );
});

// Which client, host and scheme a request has behind reverse proxies.

const proxies = new TrustedProxies(["127.0.0.1", "::1", "10.0.0.0/8", "2001:db8:1::/48"]);
const tcp = (address: string): Origin => ({ kind: "tcp", address });

const clients: readonly [title: string, peer: string, headers: Record<string, string>, client: string][] = [
  ["a header of an untrusted peer", "192.0.2.1", { "x-forwarded-for": "203.0.113.9" }, "192.0.2.1"],
  ["no header", "127.0.0.1", {}, "127.0.0.1"],
  ["one address", "127.0.0.1", { "x-forwarded-for": "203.0.113.9" }, "203.0.113.9"],
  [
    "a forged entry before the proxy's",
    "127.0.0.1",
    { "x-forwarded-for": "1.2.3.4, 203.0.113.9" },
    "203.0.113.9",
  ],
  ["two proxies", "127.0.0.1", { "x-forwarded-for": "1.2.3.4, 203.0.113.9, 10.1.1.1" }, "203.0.113.9"],
  ["only proxies", "127.0.0.1", { "x-forwarded-for": "10.2.2.2, 10.1.1.1" }, "10.2.2.2"],
  ["a peer in a range", "10.9.9.9", { "x-forwarded-for": "203.0.113.9" }, "203.0.113.9"],
  ["a mapped IPv4 peer", "::ffff:127.0.0.1", { "x-forwarded-for": "203.0.113.9" }, "203.0.113.9"],
  ["an IPv6 peer and client", "2001:db8:1::5", { "x-forwarded-for": "2001:db8:2::9" }, "2001:db8:2::9"],
  ["an address with port", "127.0.0.1", { "x-forwarded-for": "203.0.113.9:4711" }, "203.0.113.9"],
  ["an IPv6 address with port", "127.0.0.1", { "x-forwarded-for": "[2001:db8::9]:4711" }, "2001:db8::9"],
  ["an address with zone", "127.0.0.1", { "x-forwarded-for": "fe80::1%eth0" }, "fe80::1"],
  ["a name", "127.0.0.1", { "x-forwarded-for": "203.0.113.9, unknown" }, "127.0.0.1"],
  ["an empty header", "127.0.0.1", { "x-forwarded-for": "" }, "127.0.0.1"],
  ["text", "127.0.0.1", { "x-forwarded-for": "<script>, 999.1.1.1" }, "127.0.0.1"],
  ["Forwarded", "127.0.0.1", { forwarded: 'for="[2001:db8::9]:80";proto=https' }, "2001:db8::9"],
  ["a Forwarded list", "127.0.0.1", { forwarded: "for=1.2.3.4, For=203.0.113.9;by=_x" }, "203.0.113.9"],
  ["an obfuscated Forwarded", "127.0.0.1", { forwarded: "for=_hidden" }, "127.0.0.1"],
  ["a broken Forwarded", "127.0.0.1", { forwarded: 'for="1.2.3.4, for=203.0.113.9' }, "127.0.0.1"],
  [
    "a client's Forwarded beside the proxy's header",
    "127.0.0.1",
    { forwarded: "for=1.2.3.4", "x-forwarded-for": "203.0.113.9" },
    "203.0.113.9",
  ],
  [
    "thousands of forged entries before the proxy's",
    "127.0.0.1",
    { "x-forwarded-for": `${"10.1.1.1, ".repeat(1_500)}203.0.113.9`, "x-forwarded-host": ",".repeat(15_000) },
    "203.0.113.9",
  ],
  [
    "entries of more than 64 proxies",
    "127.0.0.1",
    { "x-forwarded-for": `203.0.113.9, 10.2.2.2${", 10.1.1.1".repeat(63)}` },
    "10.2.2.2",
  ],
];
for (const [title, peer, headers, client] of clients) {
  test(`the client is ${client}: ${title}`, (t) => {
    t.deepEqual(proxies.sourceOf(tcp(peer), headers, "h").origin, tcp(client));
  });
}

const forwardedHosts: readonly [title: string, headers: Record<string, string>, host: string | undefined][] =
  [
    ["one proxy", { "x-forwarded-host": "a.example" }, "a.example"],
    ["an entry appended to a forged one", { "x-forwarded-host": "evil.example, a.example" }, "a.example"],
    [
      "two proxies that append",
      { "x-forwarded-for": "203.0.113.9, 10.1.1.1", "x-forwarded-host": "a.example, b.example" },
      "a.example",
    ],
    [
      "two proxies, and the nearest one overwrites",
      { "x-forwarded-for": "203.0.113.9, 10.1.1.1", "x-forwarded-host": "a.example" },
      "a.example",
    ],
    ["Forwarded", { forwarded: 'for=203.0.113.9;host="a.example:8443"' }, "a.example:8443"],
    ["no host", { "x-forwarded-for": "203.0.113.9" }, undefined],
  ];
for (const [title, headers, host] of forwardedHosts) {
  test(`the forwarded host is ${host ?? "absent"}: ${title}`, (t) => {
    t.is(proxies.sourceOf(tcp("127.0.0.1"), headers, "h").forwardedHost, host);
    t.is(proxies.sourceOf(tcp("192.0.2.1"), headers, "h").forwardedHost, undefined);
    t.is(proxies.sourceOf({ kind: "peer", uid: 7 }, headers, "h").forwardedHost, undefined);
  });
}

test("a proxy that changes Host works if it is trusted and names the original host", async (t) => {
  await using gateway = await openGateway({
    allowedHosts: ["node.example.com"],
    trustedProxies: ["127.0.0.1"],
  });
  const ask = async (headers: Record<string, string>): Promise<[number, unknown]> => {
    const { status, json } = await rest(gateway, "/v1/status", {
      headers: { origin: "https://node.example.com:8443", ...headers },
    });
    return [status, json.error];
  };
  t.is((await ask({ "x-forwarded-host": "node.example.com:8443" }))[0], 200);
  const other = await ask({ "x-forwarded-host": "other.example" });
  t.deepEqual(other, [
    403,
    'the header X-Forwarded-Host "other.example" is not allowed; set allowed_hosts = ["other.example"] under [api] in svc.toml, and restart svc',
  ]);
  const rebound = await ask({ host: "evil.example", "x-forwarded-host": "node.example.com:8443" });
  t.regex(String(rebound[1]), /^the header Host "evil.example" is not allowed/);
});

test("the error behind an untrusted proxy that changes Host shows the setting to trust it", async (t) => {
  await using gateway = await openGateway({ allowedHosts: ["node.example.com"] });
  const headers = { origin: "https://node.example.com", "x-forwarded-host": "node.example.com" };
  const { status, json } = await rest(gateway, "/v1/status", { headers });
  t.is(status, 403);
  t.regex(String(json.error), /differs from Host "127\.0\.0\.1:\d+"/);
  t.regex(
    String(json.error),
    /set trusted_proxies = \["127\.0\.0\.1"\] under \[api\] in svc\.toml, and restart svc$/,
  );
});

test("a page without TLS cannot call a daemon that its proxy serves over https", async (t) => {
  await using gateway = await openGateway({
    allowedHosts: ["node.example.com"],
    trustedProxies: ["127.0.0.1"],
  });
  const headers = { host: "node.example.com", "x-forwarded-proto": "https" };
  const status = async (origin: string): Promise<number> =>
    (await rest(gateway, "/v1/status", { headers: { ...headers, origin } })).status;
  t.is(await status("https://node.example.com"), 200);
  t.is(await status("http://node.example.com"), 403);
});

test("wrong tokens of one client do not slow down other clients of its proxy", async (t) => {
  await using gateway = await openGateway({
    trustedProxies: ["127.0.0.1"],
    limits: { tokenFailureBudget: 3, tokenFailureRefillPerSec: 0.001 },
  });
  const status = async (client: string): Promise<number> =>
    (await rest(gateway, "/v1/status", { token: "wrong", headers: { "x-forwarded-for": client } })).status;
  for (let at = 0; at < 3; at++) t.is(await status("203.0.113.9"), 401);
  t.is(await status("203.0.113.9"), 429);
  t.is(await status("203.0.113.10"), 401);
});

test("a client cannot escape the limit on wrong tokens by a header", async (t) => {
  await using gateway = await openGateway({
    limits: { tokenFailureBudget: 3, tokenFailureRefillPerSec: 0.001 },
  });
  const statuses: number[] = [];
  for (let at = 0; at < 4; at++) {
    const headers = { "x-forwarded-for": `203.0.113.${at}` };
    statuses.push((await rest(gateway, "/v1/status", { token: "wrong", headers })).status);
  }
  t.deepEqual(statuses, [401, 401, 401, 429]);
});
