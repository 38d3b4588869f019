/** Compares the contract with that of the last release. `proto/before-1.0.txt` lists the breaking changes since. */
import { copyFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema, type FileDescriptorProto } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { findBreaks, lastRelease } from "../../.ci/breaking.ts";

const root = join(import.meta.dirname, "../..");
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
