/** The documented configurations of reverse proxies, run by the real programs in front of a real daemon. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import type { IncomingMessage } from "node:http";
import test from "ava";
import WebSocket from "ws";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { AuditService } from "../../../gen/svc/v1/audit_pb.ts";
import { SessionService } from "../../../gen/svc/v1/session_pb.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import {
  askProxy,
  hostName,
  missingProxy,
  proxyNames,
  startProxy,
  type ReverseProxy,
} from "../../support/reverse-proxies.ts";

const tls = { servername: hostName, rejectUnauthorized: false };
const origin = `https://${hostName}`;
const config = `[api.limits]\nstream_keep_alive_ms = 300\n`;

interface Behind {
  readonly daemon: TestDaemon;
  readonly proxy: ReverseProxy;
}

const shared: { daemon?: TestDaemon; readonly proxies: Map<string, Promise<ReverseProxy>> } = {
  proxies: new Map(),
};
test.before(async () => {
  shared.daemon = await startDaemon({
    api: [`allowed_hosts = ["${hostName}"]`, `trusted_proxies = ["127.0.0.1"]`],
    config,
  });
});
test.after.always(async () => {
  for (const proxy of shared.proxies.values())
    await (await proxy.catch(() => undefined))?.[Symbol.asyncDispose]();
  await shared.daemon?.[Symbol.asyncDispose]();
});

async function behind(name: string): Promise<Behind> {
  const { daemon, proxies } = shared;
  assert.ok(daemon !== undefined);
  const started = proxies.get(name) ?? startProxy(name, daemon.port);
  proxies.set(name, started);
  return { daemon, proxy: await started };
}

/** Opens a page session as the page does. */
async function openSession(
  { daemon, proxy }: Behind,
  headers: Record<string, string> = {},
  from?: string,
): Promise<{ answer: IncomingMessage; key: string; cookie: string }> {
  const { code } = await daemon.client(SessionService).issueSessionCode({});
  const answer = await askProxy(proxy.port, "/v1/sessions", {
    method: "POST",
    headers: { origin, authorization: `Bearer ${code}`, "content-type": "application/json", ...headers },
    body: JSON.stringify({ cookie: true }),
    ...(from !== undefined && { from }),
  });
  const body = await text(answer);
  assert.equal(answer.statusCode, 200, body);
  const cookie = answer.headers["set-cookie"]?.[0] ?? "";
  return { answer, key: String((JSON.parse(body) as { key?: string }).key), cookie };
}

for (const name of proxyNames) {
  const missing = missingProxy(name);
  const proxyTest = missing === undefined ? test : test.skip;
  const why = missing === undefined ? "" : ` (skipped: ${missing})`;

  proxyTest(`the page and its session work through ${name}, with a Secure cookie${why}`, async (t) => {
    const { daemon, proxy } = await behind(name);
    const page = await askProxy(proxy.port, "/");
    t.is(page.statusCode, 200);
    t.regex(await text(page), /<script/);

    const { key, cookie } = await openSession({ daemon, proxy });
    t.regex(cookie, /^__Host-svc_session=.*; Secure/);
    const headers = { authorization: `Session ${key}`, cookie: cookie.split(";")[0] ?? "" };
    const apps = await askProxy(proxy.port, "/v1/apps", { headers });
    t.is(apps.statusCode, 200, await text(apps));
    const elsewhere = await askProxy(proxy.port, "/v1/apps", {
      headers: { ...headers, origin: "https://evil.example" },
    });
    t.is(elsewhere.statusCode, 403, await text(elsewhere));
  });

  proxyTest(`the audit log has the address of the client behind ${name}${why}`, async (t) => {
    const { daemon, proxy } = await behind(name);
    const forged = { "x-forwarded-for": "203.0.113.9", forwarded: "for=203.0.113.9" };
    const { answer } = await openSession({ daemon, proxy }, forged, "127.0.0.2");
    const requestId = answer.headers["x-request-id"];
    await eventually(async () => {
      const { records } = await daemon.client(AuditService).listAudit({});
      const addresses = records
        .filter((record) => record.requestId === requestId)
        .map(({ address }) => address);
      assert.deepEqual(addresses, ["127.0.0.2"]);
    });
    t.pass();
  });

  proxyTest(`events and a console arrive at once through ${name}${why}`, async (t) => {
    const { daemon, proxy } = await behind(name);
    const headers = { authorization: `Bearer ${daemon.token}` };
    const events = await askProxy(proxy.port, "/v1/events?app_id=quiet", { headers });
    t.is(events.statusCode, 200);
    let received = "";
    events.on("data", (chunk: Buffer) => (received += chunk.toString())).on("error", () => undefined);
    await eventually(() => assert.match(received, /"begin".*\n\n\n/s));
    events.destroy();

    const id = `web-${name.toLowerCase()}`;
    const dir = `${daemon.dir}/${id}`;
    await writePackage(dir, await freePort(), { id, manifest: "console: { exec: [sh, -i] }\n" });
    const apps = daemon.client(AppService);
    await apps.installApp({ spec: dir });
    const { token } = await apps.issueConsoleToken({ appId: id, session: "attach" });
    const console = new WebSocket(
      `wss://127.0.0.1:${proxy.port}/v1/apps/${id}/console?session=attach&token=${token}`,
      { headers: { host: hostName, origin }, ...tls },
    );
    let shown = "";
    console.on("message", (data: Buffer, isBinary) => (shown += isBinary ? data.toString() : ""));
    await once(console, "open");
    console.send(Buffer.from("echo through-$((40+2))\n"));
    await eventually(() => assert.match(shown, /through-42/));
    console.terminate();
    t.pass();
  });

  proxyTest(`an upload and a path with an escaped slash pass through ${name}${why}`, async (t) => {
    const { daemon, proxy } = await behind(name);
    const path = `${daemon.dir}/uploaded-${name}`;
    const headers = { authorization: `Bearer ${daemon.token}`, "content-type": "application/octet-stream" };
    const size = 3_000_000;
    const upload = await askProxy(proxy.port, `/v1/files/content?path=${path}`, {
      ...{ method: "PUT", headers },
      body: "a".repeat(size),
    });
    t.is(upload.statusCode, 200, await text(upload));
    const escaped = await askProxy(proxy.port, "/v1/apps/no%2Fapp", { headers });
    const answer = await text(escaped);
    t.is(escaped.statusCode, 404, answer);
    t.regex(answer, /no\/app/);
  });
}
