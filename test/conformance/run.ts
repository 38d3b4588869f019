/**
 * `npm run check:conformance`: Connect's conformance suite against svc's listeners and pipeline, over HTTP/1.1 and
 * cleartext HTTP/2. The suite is a Go program: built once by `go install`, with its own protocol buffers as the
 * contract. Arguments are passed to it, such as `--run 'Timeouts/**' --trace`.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { access, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { missing } from "../../.ci/optional.ts";

/** The newest version may not build through the module proxy. */
const suite = { module: "connectrpc.com/conformance", version: "v1.0.6" };

const root = join(import.meta.dirname, "../..");
const cache = join(root, "node_modules/.cache/conformance", suite.version);
const program = join(cache, "connectconformance");
const descriptors = join(cache, "conformance.binpb");

const [skipped] = await missing({ go: "skipped the conformance suite, which is a Go program." });
if (skipped === undefined) process.exitCode = await runSuite();
else console.log(skipped);

async function runSuite(): Promise<number> {
  if (!(await exists(program)) || !(await exists(descriptors))) await install();
  const child = spawn(
    program,
    [
      ...["--mode", "server", "--conf", join(import.meta.dirname, "config.yaml")],
      ...["--known-failing", `@${join(import.meta.dirname, "known-failing.txt")}`],
      ...process.argv.slice(2),
      ...["--", process.execPath, join(import.meta.dirname, "server.ts"), descriptors],
    ],
    { stdio: "inherit" },
  );
  const [code] = (await once(child, "exit")) as [number | null];
  return code ?? 1;
}

async function install(): Promise<void> {
  console.log(`Building ${suite.module} ${suite.version}; this takes minutes, once.`);
  await mkdir(cache, { recursive: true });
  const run = promisify(execFile);
  await run("go", ["install", `${suite.module}/cmd/connectconformance@${suite.version}`], {
    env: { ...process.env, GOBIN: cache },
  });
  const { stdout } = await run("go", ["mod", "download", "-json", `${suite.module}@${suite.version}`]);
  const { Dir: sources } = JSON.parse(stdout) as { Dir: string };
  await run(join(root, "node_modules/.bin/buf"), ["build", sources, "--output", descriptors]);
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
