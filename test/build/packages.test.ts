/** Packages of others in a build: their licenses, and their native code. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile, readdir } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { bringNativePackage, nativePackageDir } from "../../src/build/native-package.ts";
import { thirdPartyFiles, writeThirdPartyFiles } from "../../src/build/third-party.ts";

// Notices of the packages in a bundle: every license in full, and a bill of materials.

const product = { name: "product", version: "9.8.7", license: "Apache-2.0" };
const packageOf = (name: string, more: object = {}): string =>
  JSON.stringify({ name, version: "1.2.3", license: "MIT", ...more });

/** @param files of a checkout */
async function write(
  t: ExecutionContext,
  files: Readonly<Record<string, string>>,
  bundled: readonly string[],
): Promise<{ readonly licenses: string; readonly bom: string }> {
  const root = await mkdtemp(join(tmpdir(), "svc-third-party-"));
  t.teardown(() => rm(root, { recursive: true }));
  for (const [name, text] of Object.entries({ LICENSE: "Of the product.", ...files })) {
    await mkdir(join(root, dirname(name)), { recursive: true });
    await writeFile(join(root, name), text);
  }
  const out = join(root, "out");
  await mkdir(out);
  await writeThirdPartyFiles(out, { root, files: bundled, product });
  const read = (name: string): Promise<string> => readFile(join(out, name), "utf8");
  t.is(await read("LICENSE"), "Of the product.");
  return { licenses: await read(thirdPartyFiles.licenses), bom: await read(thirdPartyFiles.bom) };
}

test("each package of a bundle is listed once, with its license and notices, whatever file of it is bundled", async (t) => {
  const files = {
    "node_modules/zeta/package.json": packageOf("zeta", { license: "ISC" }),
    "node_modules/zeta/LICENSE.md": "Zeta's terms.",
    "node_modules/zeta/NOTICE": "Zeta's notice.",
    "node_modules/zeta/licenses-of-others.txt": "no license",
    "node_modules/zeta/node_modules/@in/ner/package.json": packageOf("@in/ner", { version: "0.1.0" }),
    "node_modules/zeta/node_modules/@in/ner/copying": "The inner one's.",
    "node_modules/alpha/package.json": packageOf("alpha"),
    "node_modules/unused/package.json": packageOf("unused"),
  };
  const bundled = [
    "src/main.ts",
    "node_modules/zeta/lib/a.js",
    "node_modules/zeta/lib/b.js",
    "node_modules/zeta/node_modules/@in/ner/dist/c.js",
    "node_modules/alpha/index.js",
  ];
  const { licenses, bom } = await write(t, files, bundled);
  t.deepEqual(
    [...licenses.matchAll(/^=+\n(.*)\n=+$/gm)].map(([, title]) => title),
    ["alpha 1.2.3 (MIT)", "zeta 1.2.3 (ISC)", "@in/ner 0.1.0 (MIT)"],
  );
  for (const text of ["Declared license: MIT.", "Zeta's terms.", "Zeta's notice.", "The inner one's."])
    t.true(licenses.includes(text), text);
  t.false(licenses.includes("no license"));
  const { components, metadata } = JSON.parse(bom) as { components: unknown; metadata: unknown };
  t.like(metadata, {
    component: { name: "product", version: "9.8.7", licenses: [{ expression: "Apache-2.0" }] },
  });
  const [library, expression] = [{ type: "library" }, (name: string) => [{ expression: name }]];
  t.like(components, [
    { ...library, name: "alpha", licenses: expression("MIT"), purl: "pkg:npm/alpha@1.2.3" },
    { ...library, name: "zeta", licenses: expression("ISC"), purl: "pkg:npm/zeta@1.2.3" },
    { ...library, name: "@in/ner", licenses: expression("MIT"), purl: "pkg:npm/%40in/ner@0.1.0" },
  ]);
  // In any order of the bundler's files.
  t.deepEqual(await write(t, files, bundled.toReversed()), { licenses, bom });
});

test("a package without a license is not shipped", async (t) => {
  for (const license of [undefined, { type: "MIT" }])
    await t.throwsAsync(
      write(t, { "node_modules/a/package.json": packageOf("a", { license }) }, ["node_modules/a/a.js"]),
      { message: "a declares no license, so it cannot be distributed" },
    );
});

// Native code for another CPU architecture is accepted from the cache or npm only if it matches the lock file.

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
