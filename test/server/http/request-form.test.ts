/** Ambiguous requests are rejected, and nothing after them is parsed as a request. */
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import test from "ava";
import { openDoor, type Door } from "./support/door.ts";
import { nextEvent } from "../../support/eventually.ts";

/** The complete response to `text` until the daemon closes the connection. */
async function answersTo(door: Door, text: string): Promise<string> {
  const socket = connect(door.port, "127.0.0.1");
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
    await using door = await openDoor();
    const lines = ["GET /v1/status HTTP/1.1", ...headers, "Connection: close", "", ""];
    const answer = await answersTo(door, lines.join("\r\n").replace("TOKEN", door.token));
    t.deepEqual(statuses(answer), [`HTTP/1.1 ${status}`]);
    if (status === 400) t.regex(answer, /"reason":"invalid_request"/);
  });
}

for (const [name, host, status] of [
  ["the same host twice", "AUTHORITY", 200],
  ["another host", "localhost", 400],
] as const) {
  test(`HTTP/2 with ${name} beside its authority is ${status}`, async (t) => {
    await using door = await openDoor();
    const session = connectHttp2(door.url);
    const authorization = `Bearer ${door.token}`;
    const authority = new URL(door.url).host;
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
  await using door = await openDoor();
  const head = `Host: localhost\r\nAuthorization: Bearer ${door.token}\r\nConnection: keep-alive\r\n`;
  const answer = await answersTo(
    door,
    `POST /v1/apps/hello/start HTTP/1.0\r\n${head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n` +
      `GET /v1/status HTTP/1.1\r\n${head}\r\n`,
  );
  t.deepEqual(statuses(answer), ["HTTP/1.1 400"]);
});
