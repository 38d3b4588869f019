/** Headers that claim an identity, and requests that any page could send, over every protocol. */
import { createClient } from "@connectrpc/connect";
import test from "ava";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { protocols, rest, transportTo } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";
import { isRoot, needsRoot } from "./support/peer.ts";

const rootTest = isRoot ? test : test.skip;
const headers = { "x-svc-sudo-uid": "5" };

for (const protocol of protocols) {
  test(`${protocol} on TCP: headers that claim an identity are ignored`, async (t) => {
    await using door = await openDoor();
    const client = createClient(DaemonService, transportTo(door, protocol, "TCP", { headers }));
    t.is((await client.getStatus({})).hostname, String(process.getuid?.()));
  });

  rootTest(
    `${protocol} on the socket: root's sudo headers set the owner, and nothing else${needsRoot}`,
    async (t) => {
      await using door = await openDoor();
      const client = createClient(DaemonService, transportTo(door, protocol, "unix", { headers }));
      const { hostname, caller } = await client.getStatus({});
      t.is(hostname, "5");
      t.like(caller, { uid: 0, root: true });
    },
  );
}

for (const path of ["/v1/apps/hello/start", "/svc.v1.AppService/StartApp"]) {
  for (const type of [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "",
  ]) {
    test(`POST ${path} as "${type}" is 415, and no handler runs`, async (t) => {
      let calls = 0;
      await using door = await openDoor({
        handlers: {
          app: {
            startApp: ({ id }) => {
              calls++;
              return { id };
            },
          },
        },
      });
      const answer = await rest(door, path, {
        method: "POST",
        body: '{"id":"hello"}',
        headers: { "content-type": type },
      });
      t.deepEqual([answer.status, calls], [415, 0]);
    });
  }
}

test("a GET request never reaches a changing method", async (t) => {
  await using door = await openDoor();
  const query = "?connect=v1&encoding=json&message=%7B%22id%22%3A%22hello%22%7D";
  const { status } = await rest(door, `/svc.v1.AppService/StartApp${query}`);
  t.is(status, 405);
});
