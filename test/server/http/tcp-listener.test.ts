/** A TCP address that is in use at the start: the socket is served, and TCP follows once the address is free. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo, type Server } from "node:net";
import { join } from "node:path";
import test from "ava";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { collectLog, openDoor } from "./support/door.ts";
import { rest } from "./support/clients.ts";

async function takePort(): Promise<{
  readonly server: Server;
  readonly tcp: { host: string; port: number };
}> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, tcp: { host: "127.0.0.1", port: (server.address() as AddressInfo).port } };
}

test("a TCP address in use leaves the socket serving, and is reported with what to do", async (t) => {
  const { server, tcp } = await takePort();
  t.teardown(() => server.close());
  await using door = await openDoor({ tcp });
  t.is((await rest(door, "/v1/status", { listener: "unix" })).status, 200);
  t.is(door.listeners.addresses.tcp, undefined);
  const [status, socket] = door.listeners.statuses;
  t.like(status, { kind: "tcp", address: `127.0.0.1:${tcp.port}`, state: "FAILED" });
  t.regex(status?.reason ?? "", new RegExp(`EADDRINUSE.*svc listening ${tcp.port}`));
  t.like(socket, { kind: "socket", state: "LISTENING", reason: "" });
  t.true(
    door.lines.some(
      ({ level, message }) => level === "warn" && /failed to bind the TCP address/.test(message),
    ),
  );
});

test("a TCP address is bound once the program that holds it stops", async (t) => {
  const { server, tcp } = await takePort();
  await using door = await openDoor({ tcp, tcpRetryMs: { first: 20, longest: 50 } });
  server.close();
  await eventually(() => assert.equal(door.listeners.addresses.tcp?.port, tcp.port));
  t.like(door.listeners.statuses[0], { state: "LISTENING", reason: "" });
  t.is((await rest({ ...door, ...tcp, url: `http://127.0.0.1:${tcp.port}` }, "/healthz")).status, 200);
});

test("a stopped daemon does not take the TCP address later", async (t) => {
  const { server, tcp } = await takePort();
  {
    await using _door = await openDoor({ tcp, tcpRetryMs: { first: 20, longest: 20 } });
  }
  server.close();
  await nextEvent(server, "close");
  await new Promise((resolve) => setTimeout(resolve, 100));
  const again = createServer().listen(tcp.port, "127.0.0.1");
  await once(again, "listening");
  again.close();
  t.pass();
});

test("the start fails when neither the TCP address nor the socket can be bound", async (t) => {
  await using door = await openDoor();
  const { log, lines } = collectLog();
  const tcp = { host: "127.0.0.1", port: door.port };
  await t.throwsAsync(openDoor({ tcp, socketPath: join(door.directory, "svc.sock"), log }), {
    message: new RegExp(
      `cannot listen on 127.0.0.1:${door.port} \\(EADDRINUSE\\): .*; the unix socket cannot be bound either: another daemon`,
    ),
  });
  t.deepEqual(lines, [], "the error names all causes");
});
