/**
 * `node gateway-server.ts SOCKET APPS`: the real request gateway, pipeline and views over apps that were never installed,
 * and a handler that reads files. Prints a line when it listens.
 */
import { open } from "node:fs/promises";
import { insertApp } from "../../src/apps/records/app-record.ts";
import { createPipeline } from "../../src/server/rpc/pipeline.ts";
import { userOf } from "../../src/server/rpc/user-context.ts";
import { Listeners } from "../../src/server/http/listeners.ts";
import { createViews, newApp, FakeStatusRuntime } from "../../test/support/many-apps.ts";
import { temporaryStore } from "../../test/store/support/temporary-store.ts";
import { fakeServices } from "../../test/server/http/support/fake-services.ts";

/** Fewer chunks cost less. */
const pieceBytes = 256 * 1024;
const [, , socketPath, apps] = process.argv;
if (socketPath === undefined) throw new Error("usage: gateway-server.ts SOCKET APPS");

await using temporary = await temporaryStore();
const { store } = temporary;
const ids = Array.from({ length: Number(apps) }, (_, index) => `idle-${index + 1}`);
await store.write(ids.map((id) => insertApp(newApp(id, 0))));
const views = createViews(store, new FakeStatusRuntime(), () => Promise.resolve("root"));
const log = { info: () => undefined, warn: console.error, error: console.error };

const pipeline = createPipeline({
  log,
  services: fakeServices({
    app: {
      listApps: (_request, context) => views.list(userOf(context), { limit: 1000, pageToken: "" }),
    },
    file: {
      async *readFile({ path }, { responseHeader }) {
        await using file = await open(path);
        responseHeader.set("content-length", String((await file.stat()).size));
        const pieces = file.createReadStream({
          highWaterMark: pieceBytes,
          autoClose: false,
        }) as AsyncIterable<Buffer>;
        for await (const data of pieces) yield { content: { data } };
      },
    },
  }),
});
const listeners = new Listeners({
  pipeline,
  tokens: { authenticate: () => null },
  mode: "system",
  selfUid: process.getuid?.() ?? 0,
  socketPath,
  log,
});
await listeners.start();
console.log("ready");
const { promise, resolve } = Promise.withResolvers<unknown>();
process.once("SIGTERM", resolve);
await promise;
await listeners.stop();
