/** How many connections there may be: in all, and of one peer (T 16). */
import { Socket } from "node:net";
import { once } from "node:events";
import test from "ava";
import { ConnectionCaps } from "../../src/transport/connection-caps.ts";

function admitted(caps: ConnectionCaps, peers: readonly (string | undefined)[]): boolean[] {
  return peers.map((peer) => caps.admit(new Socket(), peer));
}

test("one peer has its share, and others have theirs", (t) => {
  const caps = new ConnectionCaps(10, 2);
  t.deepEqual(admitted(caps, ["a", "a", "a", "b", "b", "b"]), [true, true, false, true, true, false]);
  t.is(caps.size, 4);
});

test("root has no share of its own, but the bound of all is root's too", (t) => {
  const caps = new ConnectionCaps(3, 1);
  t.deepEqual(admitted(caps, [undefined, undefined, "a", "b", undefined]), [true, true, true, false, false]);
});

test("what closes makes room, for its peer too", async (t) => {
  const caps = new ConnectionCaps(1, 1);
  const socket = new Socket();
  t.true(caps.admit(socket, "a"));
  t.false(caps.admit(new Socket(), "a"));
  const closed = once(socket, "close");
  socket.destroy();
  await closed;
  t.is(caps.size, 0);
  t.true(caps.admit(new Socket(), "a"));
});
