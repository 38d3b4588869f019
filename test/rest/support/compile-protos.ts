import { createFileRegistry, fromBinary, type FileRegistry } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema, type FileDescriptorSet } from "@bufbuild/protobuf/wkt";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { fixtureEnvironment } from "../../support/fixture-environment.ts";

const root = join(import.meta.dirname, "../../..");
const available = {
  "google/api": ["annotations", "http", "httpbody", "field_behavior"].map(
    (name) => `google/api/${name}.proto`,
  ),
  "svc/v1": ["access", "rules"].map((name) => `svc/v1/${name}.proto`),
};

/** A directory with the given protos and what they may import, as a module of its own. */
export async function createProtoModule(files: Readonly<Record<string, string>>): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "svc-protos-"));
  const put = async (path: string, write: (target: string) => Promise<void>): Promise<void> => {
    await mkdir(dirname(join(directory, path)), { recursive: true });
    await write(join(directory, path));
  };
  for (const path of available["google/api"]) {
    await put(path, (target) => cp(join(root, "node_modules/google-proto-files", path), target));
  }
  for (const path of available["svc/v1"]) await put(path, (target) => cp(join(root, "proto", path), target));
  for (const [path, text] of Object.entries(files)) await put(path, (target) => writeFile(target, text));
  return directory;
}

/** Runs buf in `directory`. */
export async function runBuf(directory: string, args: readonly string[]): Promise<Buffer> {
  const buf = join(root, "node_modules/.bin/buf");
  const bounds = { encoding: "buffer", maxBuffer: 64 * 1024 * 1024 } as const;
  // Generators are programs of the sources.
  const options = { cwd: directory, env: fixtureEnvironment, ...bounds };
  return (await promisify(execFile)(buf, args, options)).stdout;
}

/** Descriptors of the given protos. */
export async function compileProtos(files: Readonly<Record<string, string>>): Promise<FileRegistry> {
  return createFileRegistry(await describeProtos(files));
}

/** The same as buf has it. */
export async function describeProtos(files: Readonly<Record<string, string>>): Promise<FileDescriptorSet> {
  const directory = await createProtoModule(files);
  try {
    const bytes = await runBuf(directory, ["build", "--as-file-descriptor-set", "--output", "-"]);
    return fromBinary(FileDescriptorSetSchema, bytes);
  } finally {
    await rm(directory, { recursive: true });
  }
}
