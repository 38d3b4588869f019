/** The JSON of a cacheable response is written once; any other response is written for each request. */
import { create } from "@bufbuild/protobuf";
import test from "ava";
import { cacheable, isCacheable } from "../../../src/lib/freeze.ts";
import { createViews, newApp, ToldRuntime } from "../../support/many-apps.ts";
import { insertApp } from "../../../src/apps/records/app-record.ts";
import { temporaryStore } from "../../store/support/temporary-store.ts";
import { loadTestContract } from "./support/contract.ts";
import { startRestServer } from "./support/rest-server.ts";

const contract = await loadTestContract();

for (const [title, isCached] of [
  ["a cacheable response is written once", true],
  ["a response that is not cacheable is written for each request", false],
] as const) {
  test(title, async (t) => {
    await using server = await startRestServer("HTTP/1.1", contract.routes);
    // Bytes cannot be frozen, so changing them shows whether they are written again.
    const data = Buffer.from([1, 2, 3]);
    const response = create(contract.kinds, { data });
    if (isCached) cacheable(response);
    t.is(isCacheable(response), isCached);
    server.pipeline.respond = () => response;
    const readData = async (): Promise<string> =>
      (
        JSON.parse((await server.send({ method: "GET", path: "/v1/kinds" })).body.toString()) as {
          data: string;
        }
      ).data;
    t.is(await readData(), "AQID");
    data.fill(0);
    t.is(await readData(), isCached ? "AQID" : "AAAA");
  });
}

test("a list of apps and everything in it is cacheable, and a changed app creates a new list", async (t) => {
  await using temporary = await temporaryStore();
  const { store } = temporary;
  await store.write(["a", "b"].map((id) => insertApp(newApp(id, 0))));
  const runtime = new ToldRuntime();
  const views = createViews(store, runtime, () => Promise.resolve("root"));
  const root = { uid: 0, root: true, ownerUid: 0 };
  const list = () => views.list(root, { limit: 10, pageToken: "" });
  const first = await list();
  assertCacheable(t, first);
  t.is(await list(), first);
  runtime.tell("a", { state: "RUNNING", reason: "", health: "none", restarts: 1, lastLines: [] });
  const second = await list();
  t.not(second, first);
  t.not(second.apps[0], first.apps[0]);
  t.is(second.apps[1], first.apps[1]);
  assertCacheable(t, second);
});

function assertCacheable(t: { true: (value: boolean) => void }, value: unknown): void {
  if (typeof value !== "object" || value === null || ArrayBuffer.isView(value)) return;
  t.true(isCacheable(value));
  for (const held of Object.values(value)) assertCacheable(t, held);
}

test("an object that is cacheable already is not traversed again", (t) => {
  const held = Object.freeze({ open: { a: 1 } });
  cacheable({ held });
  t.false(isCacheable(held.open));
});
