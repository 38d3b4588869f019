/** Free ports for apps that are being made: what one was promised, the next does not get. */
import test from "ava";
import type { AppsContext } from "../../src/apps/apps-context.ts";
import { FreePorts } from "../../src/apps/free-ports.ts";
import { parseManifest } from "../packages/support/manifests.ts";

const options = {
  registry: { all: () => [] },
  ports: { listeners: () => Promise.resolve(new Map([[8080, []]])) },
} as unknown as AppsContext;

function manifest(bounds: string) {
  return parseManifest(`id: web
name: Web
version: "1"
process: { exec: [./server] }
settings: { properties: { port: { type: integer, default: 8080, ${bounds} env: PORT } } }
ports: [{ name: http, setting: port }]
`);
}

test("who is asked while an app is being made gets another port, and that one once the app is not made", async (t) => {
  const free = new FreePorts(options);
  const web = await manifest("");
  const [first, second] = await Promise.all([free.choose(web, {}), free.choose(web, {})]);
  t.deepEqual([first.settings["port"], second.settings["port"]], [8081, 8082]);
  t.deepEqual(first.notes, ["Port http is 8081, as 8080 is taken"]);
  first[Symbol.dispose]();
  t.is((await free.choose(web, {})).settings["port"], 8081);
});

test("a port stays within the bounds of its setting, and what somebody chose stays", async (t) => {
  const free = new FreePorts(options);
  const narrow = await manifest("minimum: 8079, maximum: 8080,");
  t.is((await free.choose(narrow, {})).settings["port"], 8079);
  t.is((await free.choose(narrow, {})).settings["port"], undefined, "there is none left");
  const chosen = { port: 8080 };
  t.deepEqual((await free.choose(await manifest(""), chosen, new Set(["port"]))).settings, chosen);
});
