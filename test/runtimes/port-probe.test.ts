/** Health checks that the daemon makes itself, for services and containers of all users. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { PortProbe } from "../../src/runtimes/port-probe.ts";
import { eventually } from "../support/eventually.ts";

test("a package cannot make the daemon probe without a pause", async (t) => {
  let asked = 0;
  const server = createServer((socket) => {
    asked++;
    socket.on("error", () => undefined).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const spec = { tcp: { port }, intervalMs: 1, timeoutMs: 1_000, retries: 1, startPeriodMs: 0 };
  using probe = new PortProbe(spec, undefined, { onChange: () => undefined });
  await eventually(() => assert.equal(probe.health, "healthy"), 30_000);
  await wait(2_500);
  server.close();
  // Once per second; without a limit it would be thousands.
  t.true(asked <= 20, String(asked));
});

test("a lone surrogate in a path is requested as its replacement character, and does not stop the daemon", async (t) => {
  const asked: string[] = [];
  const server = createServer((socket) => {
    socket
      .on("error", () => undefined)
      .once("data", (head) => {
        asked.push(head.toString("latin1").split(" ", 2)[1] ?? "");
        socket.end("HTTP/1.1 200 OK\r\n\r\n");
      });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const http = { port, path: "/\ud800/ä" };
  const spec = { http, intervalMs: 1, timeoutMs: 10_000, retries: 1, startPeriodMs: 0 };
  using probe = new PortProbe(spec, undefined, { onChange: () => undefined });
  await eventually(() => assert.equal(probe.health, "healthy"), 30_000);
  server.close();
  t.is(asked[0], "/%EF%BF%BD/%C3%A4");
});
