/** Guessing tokens is slow, and affects nobody else. */
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { buffer } from "node:stream/consumers";
import { ConnectError, createClient } from "@connectrpc/connect";
import test from "ava";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { protocols, transportTo } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";
import { nextEvent } from "../../support/eventually.ts";

for (const protocol of protocols) {
  test(`${protocol}: many wrong tokens are slowed down, and the right one is always accepted`, async (t) => {
    await using door = await openDoor({ limits: { tokenFailureBudget: 3, tokenFailureRefillPerSec: 1 } });
    const codes: number[] = [];
    for (let n = 0; n < 6; n++) {
      const client = createClient(DaemonService, transportTo(door, protocol, "TCP", { token: "svcp_wrong" }));
      const error = await t.throwsAsync(client.getStatus({}), { instanceOf: ConnectError });
      codes.push(error.code);
    }
    // unauthenticated, then resource_exhausted
    t.deepEqual([codes[0], codes.at(-1)], [16, 8]);
    const { version } = await createClient(DaemonService, transportTo(door, protocol, "TCP")).getStatus({});
    t.is(version, "primary");
  });
}

const limits = { tokenFailureBudget: 1, tokenFailureRefillPerSec: 1 };

test("HTTP/1.1: above the budget a wrong token costs its connection", async (t) => {
  await using door = await openDoor({ limits });
  const socket = connect(door.port, "127.0.0.1");
  let answers = "";
  socket.on("data", (chunk: Buffer) => {
    answers += chunk.toString();
    // A request on a closing connection gets no response.
    if (answers.match(/HTTP\/1\.1 /g)?.length === 1) socket.write(request);
  });
  const request = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer svcp_wrong\r\n\r\n";
  socket.write(request);
  await nextEvent(socket, "close");
  t.deepEqual(
    Array.from(answers.matchAll(/HTTP\/1\.1 (\d+)/g), (match) => match[1]),
    ["401", "429"],
  );
});

test("HTTP/2: above the budget a wrong token costs its session", async (t) => {
  t.timeout(20_000);
  await using door = await openDoor({ limits });
  const session = connectHttp2(door.url);
  const closed = once(session, "close");
  const ask = async (): Promise<number> => {
    const stream = session.request({ ":path": "/v1/status", authorization: "Bearer svcp_wrong" });
    const [headers] = (await nextEvent(stream, "response")) as [Record<string, unknown>];
    await buffer(stream);
    return Number(headers[":status"]);
  };
  t.is(await ask(), 401);
  t.false(session.closed);
  t.is(await ask(), 429);
  await closed;
  t.true(session.destroyed);
});
