/** Programs of other engines, built from their modules once and stored in the checkout's cache. */
import { execFile } from "node:child_process";
import { access, copyFile, chmod, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const cacheDir = join(import.meta.dirname, "../../node_modules/.cache/svc-tools");
const buildTimeoutMs = 40 * 60_000;

interface Source {
  readonly module: string;
  readonly version: string;
  /** Packages beside it in its repository are separate modules here. */
  readonly withModules: (goMod: string) => string;
}

const kubernetes: Source = {
  module: "k8s.io/kubernetes",
  version: "v1.34.1",
  withModules: (goMod) => goMod.replaceAll(/=> \.\/staging\/src\/(\S+)/g, "=> $1 v0.34.1"),
};

/** The last one under a free software license, with one exception. */
const nomad: Source = {
  module: "github.com/hashicorp/nomad",
  version: "v1.6.1",
  withModules: (goMod) =>
    goMod.replace("=> ./api", "=> github.com/hashicorp/nomad/api v0.0.0-20230721134942-515895c7690c"),
};

const programs = {
  "kube-apiserver": { source: kubernetes, package: "./cmd/kube-apiserver" },
  // The version used for that one.
  etcd: { source: kubernetes, package: "go.etcd.io/etcd/server/v3" },
  nomad: { source: nomad, package: "." },
} as const;

export type EngineProgram = keyof typeof programs;

/** Its path. @throws Error with the end of Go's output if it cannot be built */
export async function engineProgram(name: EngineProgram): Promise<string> {
  const path = join(cacheDir, name);
  if (await exists(path)) return path;
  const { source, package: packagePath } = programs[name];
  console.log(`Building ${name} of ${source.module} ${source.version}; this takes minutes, once.`);
  await mkdir(cacheDir, { recursive: true });
  const directory = await sourcesOf(source);
  const goMod = join(cacheDir, `${name}.mod`);
  const goSum = join(cacheDir, `${name}.sum`);
  await writeFile(goMod, source.withModules(await readFile(join(directory, "go.mod"), "utf8")));
  await copyFile(join(directory, "go.sum"), goSum);
  // Like all of Go's cache it is read-only, and the other modules' checksums are added to it.
  await chmod(goSum, 0o644);
  const flags = ["-C", directory, "-mod=mod", `-modfile=${goMod}`, "-trimpath", "-ldflags=-s -w"];
  await go(["build", ...flags, "-o", `${path}.new`, packagePath]);
  await rename(`${path}.new`, path);
  await Promise.all([goMod, goSum].map((file) => rm(file, { force: true })));
  return path;
}

async function sourcesOf({ module, version }: Source): Promise<string> {
  const answer = await go(["mod", "download", "-json", `${module}@${version}`]);
  return (JSON.parse(answer) as { Dir: string }).Dir;
}

async function go(args: readonly string[]): Promise<string> {
  // The modules' own workspaces refer to their repositories.
  const env = { ...process.env, GOWORK: "off", GOFLAGS: "-buildvcs=false" };
  try {
    const { stdout } = await run("go", args, { env, timeout: buildTimeoutMs, maxBuffer: 2 ** 26 });
    return stdout;
  } catch (error) {
    const { stderr = "", message } = error as Error & { stderr?: string };
    throw new Error(stderr.trim().split("\n").slice(-5).join("\n") || message, { cause: error });
  }
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
