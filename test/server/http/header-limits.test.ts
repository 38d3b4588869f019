/** Limits of a request's headers, over both versions of HTTP. */
import { connect as connectHttp2, constants } from "node:http2";
import { connect } from "node:net";
import test from "ava";
import { openBadly, sessionStart } from "../../support/http2-frames.ts";
import { rest } from "./support/clients.ts";
import { openDoor, type Door } from "./support/door.ts";
import { nextEvent } from "../../support/eventually.ts";

const limits = { maxHeaderBytes: 2048, maxHeaderCount: 20 };

/** Empty headers. */
function many(count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_unused, n) => [`x-${n}`, "y"]));
}

/** The status of a `GET /v1/status` over HTTP/2, or the code of its stream's reset. */
async function getOverHttp2(
  door: Door,
  headers: Record<string, string>,
): Promise<{ status?: number; reset?: number }> {
  const session = connectHttp2(door.url);
  // Frames are counted from here on.
  await nextEvent(session, "remoteSettings");
  return new Promise((resolve) => {
    const authorization = `Bearer ${door.token}`;
    const stream = session.request({ ":path": "/v1/status", authorization, ...headers });
    stream.on("response", (received) => resolve({ status: Number(received[":status"]) }));
    stream.on("error", () => undefined);
    stream.on("close", () => {
      resolve({ reset: stream.rstCode });
      session.close();
    });
    stream.resume();
  });
}

test("HTTP/1.1: headers above the size limit are 431", async (t) => {
  await using door = await openDoor({ limits });
  t.is((await rest(door, "/v1/status", { headers: { "x-a": "y".repeat(1000) } })).status, 200);
  t.is((await rest(door, "/v1/status", { headers: { "x-a": "y".repeat(3000) } })).status, 431);
});

test("HTTP/1.1: headers above the count limit are 431", async (t) => {
  await using door = await openDoor({ limits });
  t.is((await rest(door, "/v1/status", { headers: many(10) })).status, 200);
  t.is((await rest(door, "/v1/status", { headers: many(30) })).status, 431);
});

for (const [name, headers] of [
  ["the bytes", { "x-a": "y".repeat(3000) }],
  ["the number", many(30)],
] as const) {
  test(`HTTP/2: a stream with headers above ${name} is reset`, async (t) => {
    await using door = await openDoor({ limits });
    t.deepEqual(await getOverHttp2(door, { "x-a": "y".repeat(1000), ...many(10) }), { status: 200 });
    t.deepEqual(await getOverHttp2(door, headers), { reset: constants.NGHTTP2_ENHANCE_YOUR_CALM });
  });
}

test("HTTP/2: a session that keeps sending invalid requests is closed", async (t) => {
  await using door = await openDoor({ limits: { headersTimeoutMs: 60_000 } });
  const socket = connect(door.port, "127.0.0.1");
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.on("error", () => undefined).resume();
  socket.write(sessionStart);
  let sent = 0;
  while (!socket.destroyed && sent < 2_000) {
    socket.write(openBadly(sent++));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  t.true(sent < 1_100, String(sent));
  await closed;
  t.is((await rest(door, "/v1/status")).status, 200);
});
