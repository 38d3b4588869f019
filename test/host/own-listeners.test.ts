/** Whether a listener belongs to the app, from the kernel's tables. */
import test from "ava";
import type { HostThread } from "../../src/host/processes/host-thread.ts";
import { explainPortConflict } from "../../src/host/sockets/own-listeners.ts";
import type { HostSocket } from "../../src/host/processes/process-questions.ts";

const own = { pid: 10, name: "web", uid: 1, appId: "web" };
const stranger = { pid: 20, name: "nc", uid: 2 };

function socket(address: string, owner: HostSocket["owner"], extra: Partial<HostSocket> = {}): HostSocket {
  return { protocol: "tcp", address, port: 80, uid: owner?.uid ?? 0, ...(owner && { owner }), ...extra };
}

for (const [title, sockets, why] of [
  ["nothing listens", [], "no process of it listens on port 80"],
  ["only another port", [socket("0.0.0.0", own, { port: 81 })], "no process of it listens on port 80"],
  ["only datagrams", [socket("0.0.0.0", own, { protocol: "udp" })], "no process of it listens on port 80"],
  ["only another address", [socket("10.0.0.1", own)], "no process of it listens on port 80"],
  ["its own", [socket("0.0.0.0", own)], undefined],
  ["its own, over IPv6 for both", [socket("::", own)], undefined],
  ["a stranger's", [socket("127.0.0.1", stranger)], "port 80 is in use by process 20 (nc)"],
  [
    "another app's",
    [socket("127.0.0.1", { ...stranger, appId: "other" })],
    "port 80 is in use by process 20 (nc)",
  ],
  ["nobody's that can be seen", [socket("::", undefined)], "port 80 is in use by a process of root"],
  [
    "a user's that cannot be seen",
    [socket("::", undefined, { uid: 7 })],
    "port 80 is in use by a process of uid 7",
  ],
  [
    "a stranger's before its own, at the requested address",
    [socket("0.0.0.0", own), socket("127.0.0.1", stranger)],
    "port 80 is in use by process 20 (nc)",
  ],
  ["its own before a stranger's", [socket("127.0.0.1", own), socket("0.0.0.0", stranger)], undefined],
  [
    "both, who share it",
    [socket("0.0.0.0", own), socket("0.0.0.0", stranger)],
    "port 80 is in use by process 20 (nc)",
  ],
] as const) {
  test(title, async (t) => {
    const thread = { ask: async () => Promise.resolve(sockets) } as unknown as HostThread;
    t.is(await explainPortConflict(thread, "web", 80), why);
  });
}

test("unreadable tables do not count against the app", async (t) => {
  const thread = { ask: async () => Promise.reject(new Error("busy")) } as unknown as HostThread;
  t.is(await explainPortConflict(thread, "web", 80), undefined);
});
