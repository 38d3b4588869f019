/** The bundle's precompiled parts equal what the libraries compute: validators, the page's contract, native code. */
import { glob, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { compileFunction } from "node:vm";
import {
  type DescEnum,
  type DescField,
  type DescFile,
  type DescMessage,
  type DescMethod,
  type MessageInitShape,
  create,
  createFileRegistry,
  toBinary,
} from "@bufbuild/protobuf";
import { base64Encode } from "@bufbuild/protobuf/wire";
import {
  type FieldDescriptorProtoSchema,
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
  FieldOptions_JSType,
  FileDescriptorProtoSchema,
  MethodOptions_IdempotencyLevel,
} from "@bufbuild/protobuf/wkt";
import type { ValidateFunction } from "ajv";
import test from "ava";
import { build } from "esbuild";
import { parse } from "yaml";
import { compiledSchema } from "../../src/build/compiled-schemas.ts";
import { leanContract } from "../../src/build/page-contract.ts";
import { compileSchema } from "../../src/packages/manifest/schema-problems.ts";
import { loadKoffi } from "../../src/sys/koffi.mjs";
import packageJson from "../../package.json" with { type: "json" };

// The page's compact contract equals what the library reads from the descriptors.

const root = fileURLToPath(new URL("../..", import.meta.url));
const wellKnown = "@bufbuild/protobuf/wkt";

/** The files that these modules describe, by name, as the page would see them. */
async function filesOfPage(modules: readonly string[]): Promise<Map<string, DescFile>> {
  const dir = await mkdtemp(join(tmpdir(), "svc-page-contract-test-"));
  try {
    const outfile = join(dir, "contract.mjs");
    const contents = modules.map((path, index) => `export * as m${index} from ${JSON.stringify(path)};`);
    await build({
      stdin: { contents: contents.join("\n"), resolveDir: root },
      ...{ outfile, bundle: true, format: "esm", platform: "node", logLevel: "silent" },
      plugins: [leanContract],
    });
    return filesIn((await import(pathToFileURL(outfile).href)) as object);
  } finally {
    await rm(dir, { recursive: true });
  }
}

function filesIn(modules: object): Map<string, DescFile> {
  const found = Object.values(modules)
    .flatMap((each: object) => Object.values(each) as unknown[])
    .filter((each): each is DescFile => (each as { kind?: unknown } | undefined)?.kind === "file");
  return new Map(found.map((file) => [file.proto.name, file]));
}

/** Everything that the library uses, with references to types by name. */
function describeFile({ proto, name, edition, messages, enums, services }: DescFile): unknown {
  return {
    ...{ proto: proto.name, package: proto.package, name, edition },
    messages: messages.map(describeMessage),
    enums: enums.map(describeEnum),
    services: services.map((service) => ({
      ...{ name: service.name, typeName: service.typeName, methods: service.methods.map(describeMethod) },
      byName: Object.keys(service.method),
    })),
  };
}

function describeMessage(message: DescMessage): object {
  const { name, typeName, parent, proto, fields, oneofs, members, nestedEnums, nestedMessages } = message;
  return {
    ...{ name, typeName, parent: parent?.typeName, protoName: proto.name, fields: fields.map(describeField) },
    byName: Object.keys(message.field),
    oneofs: oneofs.map((oneof) => [oneof.name, oneof.localName, oneof.fields.map((field) => field.name)]),
    members: members.map((member) => [member.kind, member.name]),
    enums: nestedEnums.map(describeEnum),
    messages: nestedMessages.map(describeMessage),
  };
}

function describeField(field: DescField): unknown {
  const { parent, proto, message, enum: named, oneof, ...rest } = field;
  const says = String(field);
  // Those of messages and lists have the name without a value.
  const { getDefaultValue } = field as { getDefaultValue?: () => unknown };
  const presets = getDefaultValue?.();
  const own = {
    parent: parent.typeName,
    message: message?.typeName,
    enum: named?.typeName,
    oneof: oneof?.name,
  };
  // Results of functions are included; the page does not use deprecation.
  const left = { toString: undefined, getDefaultValue: undefined, deprecated: undefined };
  return { ...rest, ...own, ...left, says, presets, protoName: proto.name };
}

function describeEnum({ name, typeName, parent, open, sharedPrefix, values, value }: DescEnum): unknown {
  return {
    ...{ name, typeName, parent: parent?.typeName, open, sharedPrefix },
    values: values.map((each) => [each.name, each.localName, each.number, each.jsonName]),
    byNumber: Object.entries(value).map(([number, each]) => [number, each.name]),
  };
}

function describeMethod({ name, localName, methodKind, input, output, idempotency }: DescMethod): unknown {
  return { name, localName, methodKind, input: input.typeName, output: output.typeName, idempotency };
}

test("each file of the contract and its dependencies reach the page as their descriptors define them", async (t) => {
  const paths = await Array.fromAsync(glob("gen/**/*_pb.ts", { cwd: root }));
  const modules = [...paths.map((path) => join(root, path)), wellKnown];
  const said = filesIn(await Promise.all(modules.map((path) => import(path))));
  const ofPage = await filesOfPage(modules);
  t.deepEqual([...ofPage.keys()].sort(), [...said.keys()].sort());
  t.true(said.has("svc/v1/app.proto") && said.has("google/protobuf/struct.proto"));
  let lean = 0;
  for (const [name, file] of said) {
    t.deepEqual(describeFile(ofPage.get(name) ?? file), describeFile(file), name);
    // Exists only with the descriptors.
    if (ofPage.get(name)?.proto.options === undefined) lean++;
    t.is(ofPage.get(name)?.extensions.length, file.extensions.length, name);
  }
  t.true(lean > 20, `${lean} are loaded without their descriptors`);
});

type FieldInit = MessageInitShape<typeof FieldDescriptorProtoSchema>;

/** A file with one message `All` and these fields, as a generator would write it. */
async function generated(
  dir: string,
  fields: readonly FieldInit[],
): Promise<{ path: string; file: DescFile }> {
  const entry: FieldInit[] = [
    { name: "key", number: 1, type: Type.SINT64, label: Label.OPTIONAL, jsonName: "key" },
    {
      name: "value",
      number: 2,
      type: Type.ENUM,
      label: Label.OPTIONAL,
      jsonName: "value",
      typeName: ".odd.All.Kind",
    },
  ];
  const proto = create(FileDescriptorProtoSchema, {
    ...{ name: "odd.proto", package: "odd", syntax: "proto3" },
    messageType: [
      {
        name: "All",
        field: fields.map((field) => ({ label: Label.OPTIONAL, ...field })),
        oneofDecl: [{ name: "which_one" }, { name: "_perhaps" }],
        nestedType: [{ name: "ByKeyEntry", field: entry, options: { mapEntry: true } }],
        enumType: [
          {
            name: "Kind",
            value: [
              { name: "KIND_UNKNOWN", number: 0 },
              { name: "KIND_BELOW", number: -1 },
              { name: "KIND_ALSO_BELOW", number: -1 },
              { name: "KIND_constructor", number: 7 },
            ],
            options: { allowAlias: true },
          },
        ],
      },
    ],
    service: [
      {
        name: "Odd",
        method: [
          { name: "Toss", inputType: ".odd.All", outputType: ".odd.All", clientStreaming: true },
          { name: "Catch", inputType: ".odd.All", outputType: ".odd.All", serverStreaming: true },
          {
            ...{ name: "Juggle", inputType: ".odd.All", outputType: ".odd.All" },
            ...{ clientStreaming: true, serverStreaming: true },
            options: { idempotencyLevel: MethodOptions_IdempotencyLevel.IDEMPOTENT },
          },
        ],
      },
    ],
  });
  const file = createFileRegistry(proto, () => undefined).getFile("odd.proto");
  if (file === undefined) throw new Error("it is not described");
  const described = base64Encode(toBinary(FileDescriptorProtoSchema, proto), "std_raw");
  const library = fileURLToPath(import.meta.resolve("@bufbuild/protobuf/codegenv2"));
  const path = join(dir, "odd_pb.ts");
  await writeFile(
    path,
    `import { fileDesc } from ${JSON.stringify(library)};\nexport const file_odd = /*@__PURE__*/\n  fileDesc("${described}");\n`,
  );
  return { path, file };
}

async function inTemporaryDir<T>(use: (dir: string) => Promise<T>): Promise<T> {
  const dir = await mkdtemp(join(tmpdir(), "svc-page-contract-test-"));
  try {
    return await use(dir);
  } finally {
    await rm(dir, { recursive: true });
  }
}

test("any contract reaches the page unchanged", async (t) => {
  const fields: FieldInit[] = [
    { name: "toString", number: 1, type: Type.STRING, jsonName: "toString" },
    { name: "renamed", number: 2, type: Type.BYTES, jsonName: "quite-other" },
    { name: "first_of", number: 3, type: Type.FIXED64, jsonName: "firstOf", oneofIndex: 0 },
    {
      name: "second_of",
      number: 4,
      type: Type.MESSAGE,
      typeName: ".odd.All",
      jsonName: "secondOf",
      oneofIndex: 0,
    },
    { name: "perhaps", number: 5, type: Type.BOOL, jsonName: "perhaps", oneofIndex: 1, proto3Optional: true },
    {
      name: "by_key",
      number: 6,
      type: Type.MESSAGE,
      typeName: ".odd.All.ByKeyEntry",
      jsonName: "byKey",
      label: Label.REPEATED,
    },
    { name: "numbers", number: 7, type: Type.DOUBLE, jsonName: "numbers", label: Label.REPEATED },
    {
      name: "kinds",
      number: 8,
      type: Type.ENUM,
      typeName: ".odd.All.Kind",
      jsonName: "kinds",
      label: Label.REPEATED,
    },
    {
      name: "more",
      number: 536870911,
      type: Type.MESSAGE,
      typeName: ".odd.All",
      jsonName: "more",
      label: Label.REPEATED,
    },
  ];
  await inTemporaryDir(async (dir) => {
    const { path, file } = await generated(dir, fields);
    const ofPage = (await filesOfPage([path])).get("odd.proto");
    t.truthy(ofPage);
    t.deepEqual(ofPage && describeFile(ofPage), describeFile(file));
    t.is(ofPage?.proto.options, undefined);
  });
});

for (const [what, options] of [
  ["numbers that are not packed", { packed: false }],
  ["numbers as text", { jstype: FieldOptions_JSType.JS_STRING }],
] as const) {
  test(`a build of the page rejects ${what}, which the page does not support`, async (t) => {
    await inTemporaryDir(async (dir) => {
      const numbers: FieldInit = {
        name: "numbers",
        number: 1,
        type: Type.INT64,
        jsonName: "numbers",
        options,
      };
      const { path } = await generated(dir, [{ ...numbers, label: Label.REPEATED }]);
      const error = await t.throwsAsync(filesOfPage([path]));
      t.regex(error.message, /numbers has an option that the page would not know of/);
    });
  });
}

// The bundle's precompiled validators return the same as ajv, and do not need its compiler.

const bundle = process.env["SVC_TEST_MAIN"];

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

const { cache } = createRequire(import.meta.url);

test("the native code is loaded without the package, which would read Node's binary", (t) => {
  const koffi = loadKoffi();
  t.is(koffi.version, packageJson.dependencies.koffi);
  t.is(koffi.load(null).func("int getpid()")(), process.pid);
  const loaded = Object.keys(cache).filter((file) => file.includes("koffi"));
  t.true(loaded.length > 0 && loaded.every((file) => file.endsWith("/koffi.node")), loaded.join(" "));
});
