import { createRequire } from "node:module";
import test from "ava";
import packageJson from "../../package.json" with { type: "json" };
import { loadKoffi } from "../../src/sys/koffi.mjs";

const { cache } = createRequire(import.meta.url);

test("the native code is loaded without the package, which would read Node's binary", (t) => {
  const koffi = loadKoffi();
  t.is(koffi.version, packageJson.dependencies.koffi);
  t.is(koffi.load(null).func("int getpid()")(), process.pid);
  const loaded = Object.keys(cache).filter((file) => file.includes("koffi"));
  t.true(loaded.length > 0 && loaded.every((file) => file.endsWith("/koffi.node")), loaded.join(" "));
});
