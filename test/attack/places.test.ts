/** One user takes all the connections that there are, and all of loopback's (T 56). */
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { attackAs } from "./as-user.ts";

const attacker = 4001;
const other = 4002;

const requestHead =
  "POST /svc.v1.AppService/StartApp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{";

for (const [name, first] of [
  ["say nothing", ""],
  ["send half a request", requestHead],
] as const) {
  const test_ = isRoot ? test.serial : test.skip;
  test_(
    `root, tokens and other users get in beside 4,095 connections that ${name}${needsRoot}`,
    async (t) => {
      await using daemon = await startDaemon();
      const { socketPath: path, port } = daemon;
      const local = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"];
      await using flood = attackAs(attacker, "hold-connections.mjs", {
        targets: [
          { path, count: 1_023 },
          ...local.map((localAddress) => ({ host: "127.0.0.1", port, localAddress, count: 768 })),
        ],
        first,
      });
      t.is(await flood.said(), "held");
      await using door = await daemon.as(other);
      for (let round = 0; round < 3; round++) {
        for (const client of [
          daemon.client(DaemonService),
          daemon.tokenClient(DaemonService),
          door.client(DaemonService),
        ])
          t.not((await client.getStatus({})).version, "");
        await wait(100);
      }
    },
  );
}
