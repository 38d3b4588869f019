/** The short version of `npm run check:fuzz`. */
import assert from "node:assert/strict";
import test from "ava";
import { startDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { Exchange } from "./exchange.ts";
import { fuzz } from "./fuzz.ts";

test("after 3,000 random requests the daemon still runs, and all its responses were declared", async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.log(`seed ${seed}`);
  const { answers, failures } = await fuzz({ count: 3_000, seed });
  t.deepEqual(failures, []);
  t.true([...answers.keys()].includes("REST 200"));
});

test("a compressed message of a call without a compression is not logged as a defect of svc", async (t) => {
  await using daemon = await startDaemon();
  using exchange = new Exchange({ socketPath: daemon.socketPath });
  const { text } = await exchange.send({
    ...{ kind: "mutated", protocol: "Connect", http: "1.1", method: "POST" },
    path: "/svc.v1.FileService/WriteFile",
    headers: { "content-type": "application/connect+json", "connect-protocol-version": "1" },
    body: Buffer.from([1, 0, 0, 0, 2, 0x7b, 0x7d]),
  });
  t.regex(text, /a message is compressed, but the request declares no compression/);
  // The line of the call follows that of a defect.
  await eventually(() =>
    assert.match(daemon.log(), /"method":"svc\.v1\.FileService\/WriteFile".*"result":"internal"/),
  );
  t.notRegex(daemon.log(), /unexpected error in/);
});
