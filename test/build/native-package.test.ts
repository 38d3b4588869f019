/** Native code for another CPU architecture is accepted from the cache or npm only if it matches the lock file. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { bringNativePackage, nativePackageDir } from "../../src/build/native-package.ts";

const run = promisify(execFile);
const name = "@koromix/koffi-linux-other";

interface Checkout {
  readonly root: string;
  readonly dir: string;
  readonly lock: (version: string, integrity?: string) => Promise<void>;
}

/** @param npmrc npm's configuration there */
async function checkout(t: ExecutionContext, npmrc: string): Promise<Checkout> {
  const root = await mkdtemp(join(tmpdir(), "svc-native-"));
  t.teardown(() => rm(root, { recursive: true }));
  const dir = join(root, nativePackageDir("other"));
  // Where npm looks for it: beside the nearest `node_modules` above.
  const project = dir.replace(/(?<=svc-native)\/.*/, "");
  await mkdir(project, { recursive: true });
  await writeFile(join(project, ".npmrc"), `${npmrc}\ncache=${join(root, "npm-cache")}\n`);
  return {
    root,
    dir,
    lock: (version, integrity = "sha512-none") =>
      writeFile(
        join(root, "package-lock.json"),
        JSON.stringify({ packages: { [`node_modules/${name}`]: { version, integrity } } }),
      ),
  };
}

test("native code of an earlier lock file is not used", async (t) => {
  // No registry is contacted.
  const { root, dir, lock } = await checkout(t, "offline=true");
  await mkdir(dir, { recursive: true });
  await writeFile(join(dir, "package.json"), '{"version":"1.0.0"}');
  await lock("1.0.0");
  await bringNativePackage(root, "other");
  await lock("2.0.0");
  await t.throwsAsync(bringNativePackage(root, "other"), {
    message: /npm pack .*other@2\.0\.0[^]*ENOTCACHED/,
  });
  t.is(await readFile(join(dir, "package.json"), "utf8"), '{"version":"1.0.0"}');
  await t.throwsAsync(bringNativePackage(root, "another"), {
    message: /svc does not support another$/,
  });
});

test("native code from a registry that differs from the lock file is not used", async (t) => {
  const registry = createServer();
  registry.listen(0, "127.0.0.1");
  await once(registry, "listening");
  t.teardown(() => registry.close());
  const url = `http://127.0.0.1:${(registry.address() as AddressInfo).port}/`;
  const { root, dir, lock } = await checkout(t, `registry=${url}\n@koromix:registry=${url}`);
  await mkdir(join(root, "made/package"), { recursive: true });
  const archive = join(root, "made/other.tgz");
  await writeFile(join(root, "made/package/package.json"), JSON.stringify({ name, version: "1.0.0" }));
  await writeFile(join(root, "made/package/koffi.node"), "native");
  await run("tar", ["--create", "--gzip", "--file", archive, "--directory", dirname(archive), "package"]);
  const content = await readFile(archive);
  const integrity = `sha512-${createHash("sha512").update(content).digest("base64")}`;
  const known = {
    name,
    "dist-tags": { latest: "1.0.0" },
    versions: { "1.0.0": { name, version: "1.0.0", dist: { integrity, tarball: `${url}other.tgz` } } },
  };
  registry.on("request", (request, response) =>
    response.end(request.url?.endsWith(".tgz") === true ? content : JSON.stringify(known)),
  );

  await lock("1.0.0", "sha512-of+another");
  await t.throwsAsync(bringNativePackage(root, "other"), {
    message: `${name} 1.0.0 does not match package-lock.json`,
  });
  t.deepEqual(await readdir(dirname(dir)), []);
  await lock("1.0.0", integrity);
  await bringNativePackage(root, "other");
  t.is(await readFile(join(dir, "koffi.node"), "utf8"), "native");
  t.deepEqual(await readdir(dirname(dir)), ["koffi-linux-other"]);
});
