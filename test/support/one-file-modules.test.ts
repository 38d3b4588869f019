import { glob, readFile } from "node:fs/promises";
import * as http from "node:http";
import { join } from "node:path";
import test from "ava";

const root = join(import.meta.dirname, "../..");
/** Must match one-file-modules.ts. */
const imports =
  /from "((?:@bufbuild\/protobuf|@connectrpc\/connect|@connectrpc\/connect-node)(?:\/[^"]*)?)"/g;

test("all imports of a package resolve to the same copy, bundled or not", async (t) => {
  const files = await Array.fromAsync(glob(["src/**/*.ts", "gen/**/*.ts", "test/**/*.ts"], { cwd: root }));
  const texts = await Promise.all(files.map((file) => readFile(join(root, file), "utf8")));
  const names = new Set(texts.flatMap((text) => [...text.matchAll(imports)].map(([, name = ""]) => name)));
  const isPutTogether = (name: string): boolean => import.meta.resolve(name).includes("/svc-test-modules/");
  t.true(names.has("@bufbuild/protobuf/wkt"));
  const expected = isPutTogether("ava");
  t.deepEqual(
    [...names].filter((name) => isPutTogether(name) !== expected),
    [],
  );
});

test("HTTP is Node's, except for its WebSocket client", (t) => {
  const { default: whole, ...imported } = http as Record<string, unknown>;
  const own: Record<string, unknown> = { ...process.getBuiltinModule("node:http") };
  for (const name of ["WebSocket", "CloseEvent", "MessageEvent"]) {
    Reflect.deleteProperty(own, name);
    Reflect.deleteProperty(imported, name);
  }
  t.is(whole, process.getBuiltinModule("node:http"));
  t.deepEqual(Object.keys(imported).sort(), Object.keys(own).sort());
  t.true(Object.entries(own).every(([name, value]) => imported[name] === value));
});
