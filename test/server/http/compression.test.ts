/** Messages may be compressed in both directions. */
import { request as requestHttp, type IncomingMessage } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectSocket } from "node:net";
import { gunzipSync, gzipSync } from "node:zlib";
import { create, fromBinary, fromJsonString, toBinary, toJsonString } from "@bufbuild/protobuf";
import test from "ava";
import { AppSchema, StartAppRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { openDoor } from "./support/door.ts";
import type { FakeHandlers } from "./support/fake-services.ts";
import { nextEvent } from "../../support/eventually.ts";

/** Large enough to be worth compressing. */
const name = "long ".repeat(1000);
const handlers: FakeHandlers = { app: { startApp: ({ id }) => ({ id, name }) } };
const request = create(StartAppRequestSchema, { id: "hello" });
const path = "/svc.v1.AppService/StartApp";

test("Connect: a compressed request is read, and its response is compressed if the client accepts it", async (t) => {
  await using door = await openDoor({ handlers });
  const answer = await fetch(`${door.url}${path}`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${door.token}`,
      "content-type": "application/json",
      "content-encoding": "gzip",
      "accept-encoding": "gzip",
    },
    body: gzipSync(toJsonString(StartAppRequestSchema, request)),
  });
  t.is(answer.headers.get("content-encoding"), "gzip");
  // fetch has decompressed it.
  const app = fromJsonString(AppSchema, await answer.text());
  t.deepEqual([app.id, app.name], ["hello", name]);
});

test("Connect over the socket: a response is not compressed because it stays on this host", async (t) => {
  await using door = await openDoor({ handlers });
  const headers = {
    authorization: `Bearer ${door.token}`,
    "content-type": "application/json",
    "accept-encoding": "gzip",
  };
  const sent = requestHttp({ socketPath: door.socketPath, method: "POST", path, headers });
  sent.end(toJsonString(StartAppRequestSchema, request));
  const [response] = (await nextEvent(sent, "response")) as [IncomingMessage];
  const chunks = (await response.toArray()) as Buffer[];
  t.is(response.headers["content-encoding"], undefined);
  t.is(fromJsonString(AppSchema, Buffer.concat(chunks).toString()).name, name);
});

for (const place of ["TCP", "the socket"]) {
  const isPacked = place === "TCP";
  const what = isPacked ? "compressed if the client accepts it" : "not packed: it stays on this machine";
  test(`gRPC over ${place}: a compressed request is read, and its response is ${what}`, async (t) => {
    await using door = await openDoor({ handlers });
    const session = isPacked
      ? connectHttp2(door.url)
      : connectHttp2("http://localhost", { createConnection: () => connectSocket(door.socketPath) });
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
      authorization: `Bearer ${door.token}`,
      "grpc-encoding": "gzip",
      "grpc-accept-encoding": "gzip",
    });
    const packed = gzipSync(toBinary(StartAppRequestSchema, request));
    const envelope = Buffer.alloc(5);
    envelope.writeUInt8(1, 0);
    envelope.writeUInt32BE(packed.length, 1);
    stream.end(Buffer.concat([envelope, packed]));
    let encoding: unknown;
    stream.on("response", (headers) => (encoding = headers["grpc-encoding"]));
    const chunks: Buffer[] = [];
    for await (const chunk of stream as AsyncIterable<Buffer>) chunks.push(chunk);
    session.close();
    const body = Buffer.concat(chunks);
    t.is(encoding, isPacked ? "gzip" : undefined);
    t.is(body.readUInt8(0), isPacked ? 1 : 0);
    const answer = body.subarray(5);
    const app = fromBinary(AppSchema, isPacked ? gunzipSync(answer) : answer);
    t.deepEqual([app.id, app.name], ["hello", name]);
  });
}
