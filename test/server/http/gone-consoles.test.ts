/** Clients that request a console and disconnect before the response. */
import { once } from "node:events";
import { connect } from "node:net";
import test from "ava";
import { rest } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";
import { nextEvent } from "../../support/eventually.ts";

const upgrade =
  "GET /v1/apps/x/console?session=shell&token=unknown HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n" +
  "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

for (const place of ["unix", "TCP"]) {
  // An error of a socket without a listener would end the daemon, and this test's process.
  test(`${place}: a client that requests a console and disconnects affects nobody else`, async (t) => {
    await using door = await openDoor({ consoleTokens: { consume: () => undefined } });
    for (let round = 0; round < 50; round++) {
      const socket = connect(
        place === "unix" ? { path: door.socketPath } : { host: "127.0.0.1", port: door.port },
      );
      await once(socket, "connect");
      socket.write(upgrade, () => (place === "unix" ? socket.destroy() : socket.resetAndDestroy()));
      await nextEvent(socket, "close");
    }
    t.is((await rest(door, "/v1/status")).status, 200);
  });
}
