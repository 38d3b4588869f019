/** The first packages that new users meet: their manifests are valid, and hello works as described. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { parse } from "yaml";
import { createHelloRepository } from "../../examples/try/hello-repository.ts";
import { checkIndex } from "../../src/authoring/check.ts";
import { parseManifest } from "../packages/support/manifests.ts";
import { freePort } from "../support/packages.ts";
import { programs } from "../support/programs.ts";
import { nextEvent } from "../support/eventually.ts";

const examples = join(import.meta.dirname, "../../examples");
const index = parse(await readFile(join(examples, "index.yaml"), "utf8")) as {
  packages: Record<string, Record<"directory" | "name" | "runtime", string> & { permissions?: string[] }>;
};

for (const [id, { directory, name, runtime, permissions = [] }] of Object.entries(index.packages)) {
  test(`${id} matches its entry in the index`, async (t) => {
    const manifest = await parseManifest(await readFile(join(examples, directory, "svc.yaml"), "utf8"));
    t.like(manifest, { id, name });
    const { kind }: { kind: string } = manifest.runtime;
    t.is(kind, runtime);
    t.deepEqual(manifest.permissions as readonly string[], permissions);
  });
}

test("svc finds nothing wrong with the index and its packages", async (t) => {
  const problems = await checkIndex(examples, programs.settingsThread);
  t.deepEqual(problems, []);
});

test("hello needs no license to be acknowledged, Node-RED does", async (t) => {
  t.false((await readdir(join(examples, "hello"))).includes("LICENSE"));
  t.true((await readdir(join(examples, "node-red"))).includes("LICENSE"));
});

test("Node-RED's version is the one that its lock file installs", async (t) => {
  const manifest = await parseManifest(await readFile(join(examples, "node-red/svc.yaml"), "utf8"));
  const lock = JSON.parse(await readFile(join(examples, "node-red/package-lock.json"), "utf8"));
  t.is(lock.packages["node_modules/node-red"].version, manifest.version);
});

test("hello greets, counts across restarts, and exits at once on a stop", async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), "svc-hello-"));
  t.teardown(() => rm(dataDir, { recursive: true }));
  const port = await freePort();
  const answers: string[] = [];
  for (let run = 0; run < 2; run += 1) {
    const hello = spawn(process.execPath, [join(examples, "hello/server.mjs")], {
      env: { PORT: String(port), GREETING: "Good morning", DATA_DIR: dataDir },
      stdio: ["ignore", "pipe", "inherit"],
    });
    t.teardown(() => hello.kill("SIGKILL"));
    const exit = once(hello, "exit");
    t.regex(String(await nextEvent(hello.stdout, "data")), /listens on http:\/\/127\.0\.0\.1:/);
    t.is((await fetch(`http://127.0.0.1:${port}/healthz`)).status, 200);
    t.is((await fetch(`http://127.0.0.1:${port}/other`)).status, 404);
    answers.push(await (await fetch(`http://127.0.0.1:${port}/`)).text());
    hello.kill("SIGTERM");
    t.deepEqual(await exit, [0, null]);
  }
  t.deepEqual(answers, [
    "Good morning! You are visitor 1. (hello 1.1.0)\n",
    "Good morning! You are visitor 2. (hello 1.1.0)\n",
  ]);
});

test("hello's repository has both releases, each with the manifest of its version", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-hello-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const repository = join(dir, "hello.git");
  await createHelloRepository(examples, repository);
  const git = async (...args: string[]) =>
    (await promisify(execFile)("git", [`--git-dir=${repository}`, ...args])).stdout.trim();

  t.is(await git("tag", "--list"), "v1.0.0\nv1.1.0");
  for (const tag of ["v1.0.0", "v1.1.0"]) {
    const manifest = await parseManifest(await git("show", `${tag}:svc.yaml`));
    t.is(`v${manifest.version}`, tag);
  }
  t.is(await git("rev-parse", "main"), await git("rev-parse", "v1.1.0^{commit}"));
  // A second call keeps what exists, including commits of the user.
  const before = await git("rev-parse", "main");
  await createHelloRepository(join(dir, "missing"), repository);
  t.is(await git("rev-parse", "main"), before);
});
