/** Notices of the packages in a bundle: every license in full, and a bill of materials. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { thirdPartyFiles, writeThirdPartyFiles } from "../../src/build/third-party.ts";

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
