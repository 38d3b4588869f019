/** Native code of another processor is taken from the cache only where it is what the lock file says. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { bringNativePackage, nativePackageDir } from "../../src/build/native-package.ts";

test("native code that an earlier lock file brought is not taken", async (t) => {
  const root = await mkdtemp(join(tmpdir(), "svc-native-"));
  t.teardown(() => rm(root, { recursive: true }));
  const dir = join(root, nativePackageDir("other"));
  await mkdir(dir, { recursive: true });
  await writeFile(join(dir, "package.json"), '{"version":"1.0.0"}');
  await writeFile(join(root, "package.json"), "{}");
  // Nothing is asked of a registry.
  await writeFile(join(root, ".npmrc"), "offline=true\n");
  const lock = (version: string): Promise<void> =>
    writeFile(
      join(root, "package-lock.json"),
      JSON.stringify({
        packages: { "node_modules/@koromix/koffi-linux-other": { version, integrity: "sha512-none" } },
      }),
    );
  await lock("1.0.0");
  await bringNativePackage(root, "other");
  await lock("2.0.0");
  await t.throwsAsync(bringNativePackage(root, "other"), { message: /npm pack .*other@2\.0\.0/ });
  t.is(await readFile(join(dir, "package.json"), "utf8"), '{"version":"1.0.0"}');
});
