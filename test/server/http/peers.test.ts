/** The identity that the daemon assigns to a socket peer. */
import { stat } from "node:fs/promises";
import { request } from "node:http";
import { connect } from "node:net";
import test from "ava";
import { uidIn } from "../../../src/server/http/peer-uid.ts";
import { rest } from "./support/clients.ts";
import { openGateway } from "./support/gateway.ts";
import { callAs, isRoot, needsRoot } from "./support/peer.ts";

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
