/** The code generators, and the comparison of the contract with that of the last release. */
import { copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  CodeGeneratorRequestSchema,
  type FileDescriptorProto,
  FileDescriptorSetSchema,
} from "@bufbuild/protobuf/wkt";
import test from "ava";
import { findBreaks, lastRelease } from "../../.ci/breaking.ts";
import { plugin } from "../../src/codegen/protoc-gen-svc-rest.ts";
import { createProtoModule, describeProtos, runBuf } from "../server/rest/support/compile-protos.ts";

const root = join(import.meta.dirname, "../..");

const generatedNames = ["routes", "values", "methods", "calls", "services"] as const;
const options = ["target=ts", "import_extension=ts"];
type GeneratedName = (typeof generatedNames)[number];

/** A contract with one service that has `methods`, and always the same messages. */
const protosOf = (methods: string): Readonly<Record<string, string>> => ({
  "svc/v1/thing.proto": `syntax = "proto3";
      package svc.v1;
      import "google/api/annotations.proto";
      import "google/api/httpbody.proto";
      import "svc/v1/access.proto";
      import "svc/v1/rules.proto";
      service ThingService { ${methods} }
      message Thing {
        string id = 1;
        int32 number = 2;
        repeated string tags = 3 [(svc.v1.rules) = {items: {in: ["one", "two"]}}];
        Thing child = 4;
        google.api.HttpBody raw = 5;
        string status = 6 [(svc.v1.rules) = {in: ["on", "off"]}];
      }`,
});

/** Runs the generator as a plugin of buf, as `npm run gen` does. */
async function generate(methods: string): Promise<Record<GeneratedName, string>> {
  const module = await createProtoModule(protosOf(methods));
  const out = await mkdtemp(join(tmpdir(), "svc-generated-"));
  try {
    const local = [process.execPath, join(root, "src/codegen/protoc-gen-svc-rest.ts")];
    const plugin = { local, out, strategy: "all", opt: options };
    await writeFile(join(module, "buf.gen.yaml"), JSON.stringify({ version: "v2", plugins: [plugin] }));
    await runBuf(module, ["generate"]);
    const read = (name: string): Promise<string> => readFile(join(out, `svc/v1/${name}.ts`), "utf8");
    const texts = await Promise.all(generatedNames.map(async (name) => [name, await read(name)] as const));
    return Object.fromEntries(texts) as Record<GeneratedName, string>;
  } finally {
    await rm(module, { recursive: true });
    await rm(out, { recursive: true });
  }
}

const user = "option (svc.v1.access) = ACCESS_LEVEL_USER;";
const rpc = (rule: string, name = "Get", signature = "(Thing) returns (Thing)"): string =>
  `rpc ${name}${signature} { ${user} option (google.api.http) = {${rule}}; }`;

test("the generator writes each JSON call with its first binding, and every service", async (t) => {
  const { calls, services } = await generate(
    rpc('get: "/v1/things/{id}", additional_bindings {post: "/v1/things/{id}:get", body: "*"}') +
      rpc('put: "/v1/things/{id}", body: "*"', "Put") +
      rpc('put: "/v1/things/{id}/child", body: "child"', "PutChild") +
      rpc('get: "/v1/trees/{id=**}"', "GetTree") +
      rpc('get: "/v1/raw"', "GetRaw", "(Thing) returns (google.api.HttpBody)") +
      rpc('get: "/v1/all"', "WatchAll", "(Thing) returns (stream Thing)"),
  );
  const call = {
    service: "svc.v1.ThingService",
    method: "get",
    httpMethod: "GET",
    path: "/v1/things/{id}",
    body: "",
  };
  t.true(calls.includes(`get: ${JSON.stringify(call)},`));
  t.true(calls.includes(`put: ${JSON.stringify({ ...call, method: "put", httpMethod: "PUT", body: "*" })},`));
  t.notRegex(calls, /putChild|getTree|getRaw|watchAll/);
  t.notRegex(calls, /^import (?!type)/m, "has no imports at run time");
  t.regex(services, /services: readonly DescService\[\] = \[\s+ThingService,\s+\];/);
});

test("the generator writes routes, policies and value lists", async (t) => {
  const { routes, values, methods } = await generate(
    rpc('get: "/v1/things/{id}", additional_bindings {post: "/v1/things/{id}:get", body: "*"}') +
      'rpc Halt(Thing) returns (Thing) { option (svc.v1.access) = ACCESS_LEVEL_PRIMARY; option (svc.v1.capability) = "halt"; }',
  );
  t.regex(
    routes,
    /httpMethod: "GET",\s+template: \{"source":"\/v1\/things\/\{id\}","segments":\["v1","things","\*"\]/,
  );
  t.regex(
    routes,
    /httpMethod: "POST",[^]*"verb":"get"[^]*get method\(\) \{ return ThingService\.method\.get; \},\s+body: "\*"/,
  );
  t.regex(methods, /"svc\.v1\.ThingService\/Halt": \{"access":"PRIMARY","capability":"halt"\}/);
  t.regex(values, /export const ThingTags = \["one","two"\] as const;\nexport type ThingTag = /);
  t.regex(values, /export const ThingStatuses = \["on","off"\] as const;\nexport type ThingStatus = /);
});

const rejected: [name: string, methods: string, problem: RegExp][] = [
  [
    "a method without an access level",
    "rpc Get(Thing) returns (Thing);",
    /ThingService\.Get: option \(svc\.v1\.access\) is missing/,
  ],
  [
    "an unspecified access level",
    "rpc Get(Thing) returns (Thing) { option (svc.v1.access) = ACCESS_LEVEL_UNSPECIFIED; }",
    /Get: option \(svc\.v1\.access\) is missing/,
  ],
  [
    "a bad template",
    rpc('get: "/v1/{id"'),
    /ThingService\.Get: template "\/v1\/\{id", character 8: the variable is not closed/,
  ],
  [
    "a duplicate route",
    rpc('get: "/v1/a"') + rpc('get: "/v1/a"', "Other"),
    /Other: GET \/v1\/a matches the same requests as GET \/v1\/a of svc\.v1\.ThingService\.Get/,
  ],
  [
    "a conflicting route",
    rpc('get: "/v1/{id}/x"') + rpc('get: "/v1/{status=*}/x"', "Other"),
    /matches the same requests/,
  ],
  ["a variable that is not a field", rpc('get: "/v1/{name}"'), /"name" is not a field of svc\.v1\.Thing/],
  ["a nested variable that is not a field", rpc('get: "/v1/{child.name}"'), /"child\.name" is not a field/],
  ["a variable through a scalar", rpc('get: "/v1/{id.x}"'), /goes through "id", which is not a message/],
  ["a repeated variable", rpc('get: "/v1/{tags}"'), /"tags" is not a single value/],
  ["a message as a variable", rpc('get: "/v1/{child}"'), /"child" is not a single value/],
  ["a number of several segments", rpc('get: "/v1/{number=**}"'), /must be a string/],
  ["a body that is not a field", rpc('post: "/v1/a", body: "name"'), /body "name" is not a field/],
  [
    "a body that is a variable",
    rpc('post: "/v1/{id}", body: "id"'),
    /"id" is both the body and a path variable/,
  ],
  ["a body for GET", rpc('get: "/v1/a", body: "*"'), /GET requests cannot have a body/],
  [
    "a response_body that is not a field",
    rpc('get: "/v1/a", response_body: "name"'),
    /response_body "name" is not a field/,
  ],
  [
    "nested additional_bindings",
    rpc('get: "/v1/a", additional_bindings {get: "/v1/b", additional_bindings {get: "/v1/c"}}'),
    /cannot have additional_bindings/,
  ],
  [
    "a custom HTTP method that Node does not support",
    rpc('custom: {kind: "FETCH", path: "/v1/a"}'),
    /"FETCH" is not an HTTP method/,
  ],
  ["a binding without a path", rpc('body: "*"'), /has no path/],
  [
    "streams in both directions",
    rpc('post: "/v1/a", body: "raw"', "Get", "(stream Thing) returns (stream Thing)"),
    /both directions/,
  ],
  [
    "a stream of requests that are not raw bytes",
    rpc('post: "/v1/a", body: "*"', "Get", "(stream Thing) returns (Thing)"),
    /needs a google\.api\.HttpBody/,
  ],
];

for (const [name, methods, problem] of rejected) {
  test(`the generator rejects ${name}`, async (t) => {
    const { file: protoFile } = await describeProtos(protosOf(methods));
    const request = create(CodeGeneratorRequestSchema, {
      fileToGenerate: protoFile.map((file) => file.name),
      parameter: options.join(),
      protoFile,
    });
    // Runs in this process, because a plugin process takes long to load its compiler.
    t.throws(() => plugin.run(request), { message: problem });
  });
}

// Compares the contract with that of the last release. `proto/before-1.0.txt` lists the breaking changes since.

const descriptors = join(root, "gen/svc.binpb");

test("the list of breaking changes matches the contract exactly", async (t) => {
  t.deepEqual(await findBreaks(descriptors), { broken: [], stale: [] });
});

/** Breaking changes that are found after `change`. */
async function breaksOf(change: (file: FileDescriptorProto) => void): Promise<readonly string[]> {
  const files = fromBinary(FileDescriptorSetSchema, await readFile(descriptors));
  const app = files.file.find(({ name }) => name === "svc/v1/app.proto");
  if (app === undefined) throw new Error("app.proto is missing");
  change(app);
  const scratch = await mkdtemp(join(tmpdir(), "svc-breaking-"));
  try {
    const path = join(scratch, "svc.binpb");
    await writeFile(path, toBinary(FileDescriptorSetSchema, files));
    return (await findBreaks(path)).broken;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

const appOf = ({ messageType }: FileDescriptorProto) => messageType.find(({ name }) => name === "App");

test("a renamed field is a breaking change", async (t) => {
  const broken = await breaksOf((file) => {
    const id = appOf(file)?.field[0];
    if (id !== undefined) Object.assign(id, { name: "key", jsonName: "key" });
  });
  t.true(broken.length > 0);
  t.true(
    broken.every((line) => line.startsWith('svc/v1/app.proto: Field "1" ')),
    broken.join("\n"),
  );
});

test("a removed method is a breaking change", async (t) => {
  const broken = await breaksOf((file) => file.service[0]?.method.shift());
  t.deepEqual(broken, [
    'svc/v1/app.proto: Previously present RPC "ListApps" on service "AppService" was deleted.',
  ]);
});

test("a file that is not a descriptor set is an error", async (t) => {
  const scratch = await mkdtemp(join(tmpdir(), "svc-breaking-"));
  try {
    const path = join(scratch, "svc.binpb");
    await copyFile(join(root, "package.json"), path);
    await t.throwsAsync(findBreaks(path));
    t.true((await readFile(join(root, lastRelease))).length > 0);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
});
