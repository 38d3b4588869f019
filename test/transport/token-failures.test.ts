/** Guessing tokens is slow, and harms nobody else (T 12). */
import { ConnectError, createClient } from "@connectrpc/connect";
import test from "ava";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { protocols, transportTo } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";

for (const protocol of protocols) {
  test(`${protocol}: wrong tokens in a flood are slowed down, the right one always passes`, async (t) => {
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
