/**
 * `npm run check:clients`: clients generated from `openapi/openapi.json` and from `proto/` by third-party tools, and
 * used. Each client lists, installs, starts, sets, removes, and reads the reason of an error; all of them over TCP with
 * a token, one over the unix socket, too. A client without its toolchain is skipped with a message. Toolchains are
 * stored in node_modules/.cache and in Go's own cache.
 */
import { execFile } from "node:child_process";
import { cp, mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { missing } from "../../.ci/optional.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { freePort, writeRepository } from "../support/packages.ts";
import { pythonTools } from "../support/python-tools.ts";

const root = join(import.meta.dirname, "../..");
const openapi = join(root, "openapi/openapi.json");
const workDir = join(root, "node_modules/.cache/svc-clients");
const goModule = "svc.test/clients";

interface Client {
  name: string;
  needs: "python" | "go";
  /** Generates the client; resolves with the command that uses it. */
  make: () => Promise<{ command: string[]; cwd: string; env?: Readonly<Record<string, string>> }>;
}

const clients: Client[] = [
  { name: "Python, openapi-python-client", needs: "python", make: makePythonOpenapi },
  { name: "Python, grpcio over TCP and the unix socket", needs: "python", make: makePythonGrpc },
  { name: "Go, oapi-codegen", needs: "go", make: makeGoOpenapi },
  { name: "Go, connect-go over Connect and gRPC", needs: "go", make: makeGoConnect },
];

const counts = { passed: 0, failed: 0, skipped: 0 };
await mkdir(workDir, { recursive: true });
for (const { name, needs, make } of clients) {
  const [lack] = await missing({ [needs]: name });
  if (lack !== undefined) {
    counts.skipped++;
    console.log(`- ${name} (skipped: no ${needs})`);
    continue;
  }
  const startedAt = performance.now();
  try {
    const { command, cwd, env } = await make();
    await using daemon = await startDaemon();
    await execute(command, cwd, { ...env, ...(await environmentOf(daemon)) });
    counts.passed++;
    console.log(`✔ ${name} (${((performance.now() - startedAt) / 1000).toFixed(1)} s)`);
  } catch (error) {
    counts.failed++;
    console.log(`✘ ${name}: ${error instanceof Error ? error.message : String(error)}`);
  }
}
console.log(`check:clients: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exitCode = counts.failed === 0 ? 0 : 1;

async function environmentOf(daemon: TestDaemon): Promise<Record<string, string>> {
  const files = { LICENSE: "Do as you like.\n" };
  return {
    SVC_URL: `http://127.0.0.1:${daemon.port}`,
    SVC_TOKEN: daemon.token,
    SVC_SOCKET: daemon.socketPath,
    SVC_SPEC: await writeRepository(join(daemon.dir, "web.git"), await freePort(), [{ files }]),
  };
}

async function makePythonOpenapi(): ReturnType<Client["make"]> {
  const bin = await pythonTools(join(import.meta.dirname, "python/requirements.txt"));
  const dir = await emptyDir("python-openapi");
  const output = ["--output-path", join(dir, "svc_client"), "--meta", "none"];
  // It formats its output with ruff, which is installed beside it.
  const said = await execute(
    [join(bin, "openapi-python-client"), "generate", "--path", openapi, ...output],
    dir,
    {
      PATH: `${bin}:${process.env["PATH"] ?? ""}`,
    },
  );
  // It does not support responses of several lines, and omits such methods.
  const [warnings, ofLines] = [/WARNING/g, /Unsupported content_type application\/x-ndjson/g].map(
    (form) => said.match(form)?.length,
  );
  if (warnings !== ofLines) throw new Error(said);
  const script = join(import.meta.dirname, "python/openapi_client.py");
  return { command: [join(bin, "python"), script], cwd: dir, env: { PYTHONPATH: dir } };
}

async function makePythonGrpc(): ReturnType<Client["make"]> {
  const bin = await pythonTools(join(import.meta.dirname, "python/requirements.txt"));
  const dir = await emptyDir("python-grpc");
  const protos = join(root, "proto");
  const files = ["access", "app", "error", "operation", "rules"].map((name) => `svc/v1/${name}.proto`);
  const includes = [protos, join(root, "node_modules/google-proto-files")].map((path) => `-I${path}`);
  const outputs = [`--python_out=${dir}`, `--grpc_python_out=${dir}`];
  await execute([join(bin, "python"), "-m", "grpc_tools.protoc", ...includes, ...outputs, ...files], dir);
  const script = join(import.meta.dirname, "python/grpc_client.py");
  return { command: [join(bin, "python"), script], cwd: dir, env: { PYTHONPATH: dir } };
}

async function makeGoOpenapi(): ReturnType<Client["make"]> {
  const dir = await copyGoModule("go-openapi");
  await mkdir(join(dir, "gen/openapi"), { recursive: true });
  // Its own response types have the same names as the contract's messages by default.
  const options = ["-generate", "types,client", "-response-type-suffix", "HTTPResponse", "-package", "svc"];
  await execute(["go", "tool", "oapi-codegen", ...options, "-o", "gen/openapi/svc.go", openapi], dir);
  await execute(["go", "build", "-o", "client", "./openapi"], dir);
  return { command: [join(dir, "client")], cwd: dir };
}

async function makeGoConnect(): ReturnType<Client["make"]> {
  const dir = await copyGoModule("go-connect");
  const template = {
    version: "v2",
    inputs: [{ directory: root, paths: [join(root, "proto/svc")] }],
    managed: {
      enabled: true,
      disable: [{ file_option: "go_package", path: "google" }],
      override: [{ file_option: "go_package_prefix", value: `${goModule}/gen` }],
    },
    plugins: ["protoc-gen-go", "protoc-gen-connect-go"].map((plugin) => ({
      local: ["go", "tool", plugin],
      out: join(dir, "gen"),
      opt: "paths=source_relative",
    })),
  };
  await execute(
    [join(root, "node_modules/.bin/buf"), "generate", "--template", JSON.stringify(template)],
    dir,
  );
  await execute(["go", "build", "-o", "client", "./connect"], dir);
  return { command: [join(dir, "client")], cwd: dir };
}

/** The module is copied, so that no generated files are among the sources. */
async function copyGoModule(name: string): Promise<string> {
  const dir = await emptyDir(name);
  await cp(join(import.meta.dirname, "go"), dir, { recursive: true });
  return dir;
}

async function emptyDir(name: string): Promise<string> {
  const dir = join(workDir, name);
  await rm(dir, { recursive: true, force: true });
  await mkdir(dir);
  return dir;
}

/** @returns its output. @throws Error with the program's output if it fails or takes longer than ten minutes */
async function execute(
  [program = "", ...args]: readonly string[],
  cwd: string,
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const options = { cwd, env: { ...process.env, ...env }, timeout: 600_000, maxBuffer: 64 * 1024 * 1024 };
  try {
    const { stdout, stderr } = await promisify(execFile)(program, args, options);
    return stdout + stderr;
  } catch (error) {
    const { stdout = "", stderr = "", message } = error as Error & { stdout?: string; stderr?: string };
    throw new Error(`${stdout}${stderr}`.trim() || message, { cause: error });
  }
}
