import { createFileRegistry, fromBinary, type FileRegistry } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema, type FileDescriptorSet } from "@bufbuild/protobuf/wkt";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { fixtureEnvironment } from "../../../support/fixture-environment.ts";

const root = join(import.meta.dirname, "../../../..");
const imports = {
  "google/api": ["annotations", "http", "httpbody", "field_behavior"].map(
    (name) => `google/api/${name}.proto`,
  ),
  "svc/v1": ["access", "rules"].map((name) => `svc/v1/${name}.proto`),
};

/** Creates a buf module in a directory, with the given protos and those that they may import. */
export async function createProtoModule(files: Readonly<Record<string, string>>): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "svc-protos-"));
  const put = async (path: string, write: (target: string) => Promise<void>): Promise<void> => {
    await mkdir(dirname(join(directory, path)), { recursive: true });
    await write(join(directory, path));
  };
  for (const path of imports["google/api"]) {
    await put(path, (target) => cp(join(root, "node_modules/google-proto-files", path), target));
  }
  for (const path of imports["svc/v1"]) await put(path, (target) => cp(join(root, "proto", path), target));
  for (const [path, text] of Object.entries(files)) await put(path, (target) => writeFile(target, text));
  return directory;
}

/** Runs buf in `directory`. */
export async function runBuf(directory: string, args: readonly string[]): Promise<Buffer> {
  const buf = join(root, "node_modules/.bin/buf");
  const bounds = { encoding: "buffer", maxBuffer: 64 * 1024 * 1024 } as const;
  const options = { cwd: directory, env: fixtureEnvironment, ...bounds };
  return (await promisify(execFile)(buf, args, options)).stdout;
}

/** Compiles protos to a registry of descriptors. */
export async function compileProtos(files: Readonly<Record<string, string>>): Promise<FileRegistry> {
  return createFileRegistry(await describeProtos(files));
}

/** Compiles protos to the descriptor set that buf writes. */
export async function describeProtos(files: Readonly<Record<string, string>>): Promise<FileDescriptorSet> {
  const directory = await createProtoModule(files);
  try {
    const bytes = await runBuf(directory, ["build", "--as-file-descriptor-set", "--output", "-"]);
    return fromBinary(FileDescriptorSetSchema, bytes);
  } finally {
    await rm(directory, { recursive: true });
  }
}
