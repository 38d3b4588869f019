/** The bundle's precompiled validators return the same as ajv, and do not need its compiler. */
import { createRequire } from "node:module";
import { glob, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { compileFunction } from "node:vm";
import type { ValidateFunction } from "ajv";
import test from "ava";
import { parse } from "yaml";
import { compiledSchema } from "../../src/build/compiled-schemas.ts";
import { compileSchema } from "../../src/packages/manifest/schema-problems.ts";

const bundle = process.env["SVC_TEST_MAIN"];
const root = join(import.meta.dirname, "../..");

function load(code: string): ValidateFunction {
  const module: { exports: unknown } = { exports: {} };
  const run = compileFunction(code, ["module", "exports", "require"]) as (...args: unknown[]) => void;
  run(module, module.exports, createRequire(import.meta.url));
  return module.exports as ValidateFunction;
}

/** The document, and variants that violate one part of the schema each. */
function* variantsOf(document: object): Generator {
  yield document;
  for (const [key, value] of Object.entries(document)) {
    const rest = Object.fromEntries(Object.entries(document).filter(([other]) => other !== key));
    for (const other of [
      null,
      7,
      "no such thing",
      "",
      [],
      {},
      [value],
      { "x y": value },
      "\u{1f600}".repeat(50),
    ])
      yield { ...rest, [key]: other };
    yield { ...rest, [`${key}s`]: value as unknown };
    yield rest;
    if (typeof value !== "object" || value === null) continue;
    for (const variant of variantsOf(value as object))
      yield { ...rest, [key]: Array.isArray(value) ? Object.values(variant as object) : variant };
  }
}

for (const [kind, pattern] of [
  ["manifest", "examples/**/svc.yaml"],
  ["index", "examples/index.yaml"],
] as const) {
  test(`errors in a ${kind} are reported equally`, async (t) => {
    const schema = await readFile(join(root, `src/packages/manifest/${kind}.schema.json`), "utf8");
    const code = compiledSchema(schema);
    t.notRegex(code, /require\("ajv\/dist\/(?!runtime\/)/);
    const ofBundle = load(code);
    const ofSources = await compileSchema(JSON.parse(schema) as object);
    let [sound, broken] = [0, 0];
    for await (const file of glob(pattern, { cwd: root })) {
      const document = parse(await readFile(join(root, file), "utf8")) as object;
      for (const variant of variantsOf(document)) {
        const isSound = ofSources(variant);
        if (isSound) sound += 1;
        else broken += 1;
        t.is(ofBundle(variant), isSound, JSON.stringify(variant));
        t.is(JSON.stringify(ofBundle.errors), JSON.stringify(ofSources.errors), JSON.stringify(variant));
      }
    }
    t.true(sound > 0 && broken > 100, `${String(sound)} valid, ${String(broken)} invalid`);
  });
}

(bundle === undefined ? test.skip : test)(
  "the bundle holds manifests and indexes against them",
  async (t) => {
    const chunks = await readdir(join(bundle ?? "", "../chunks"));
    for (const kind of ["manifest", "index"])
      t.true(
        chunks.some((name) => name.startsWith(`${kind}.schema-`)),
        kind,
      );
  },
);
