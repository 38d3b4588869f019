/** The first packages that new users meet, and the checkout that runs them. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chown, copyFile, cp, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { parse } from "yaml";
import { missing } from "../../.ci/optional.ts";
import { pickPort } from "../../examples/try/addresses.ts";
import { createHelloRepository } from "../../examples/try/hello-repository.ts";
import { checkIndex } from "../../src/authoring/check.ts";
import { parseManifest } from "../packages/support/manifests.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { programs } from "../support/programs.ts";
import packageJson from "../../package.json" with { type: "json" };

// The first packages that new users meet: their manifests are valid, and hello works as described.

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

// `npm run svc` of a checkout: bundled once for each state of its sources.

const root = join(import.meta.dirname, "../..");
const run = promisify(execFile);

test("the CLI of a checkout is bundled once, and runs the bundle", async (t) => {
  const svc = (...args: string[]) =>
    run(process.execPath, [join(root, ".ci/svc.mjs"), ...args], {
      // Prints the loaded files.
      env: { ...process.env, NODE_DEBUG: "module" },
    });
  const bundles = async () => (await readdir(join(root, "node_modules/.cache/svc"))).sort();
  t.is((await svc("--version")).stdout, `${packageJson.version}\n`);
  const made = await bundles();
  const { stdout, stderr } = await svc("--version");
  t.is(stdout, `${packageJson.version}\n`);
  t.regex(stderr, /node_modules\/\.cache\/svc\/[0-9a-f]{16}\/svc\.cjs/);
  t.false(stderr.includes("src/main.ts"), "the sources are not loaded");
  t.deepEqual(await bundles(), made, "nothing is bundled again");
});

const printsAndExits =
  "console.log(process.argv[2]); if (process.argv[2] === 'daemon') process.exitCode = 7;";

/** A checkout with a tiny bundle. By default, its program prints an argument, and exits like a daemon that cannot start. */
async function checkoutOf(t: ExecutionContext, program = printsAndExits): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-checkout-"));
  t.teardown(() => rm(dir, { recursive: true }));
  for (const part of ["examples", ".ci", "src/daemon/paths.ts", "src/lib"])
    await cp(join(root, part), join(dir, part), { recursive: true });
  await mkdir(join(dir, "src/build"), { recursive: true });
  await mkdir(join(dir, "node_modules"));
  await writeFile(join(dir, "node_modules/.package-lock.json"), '{"packages":{}}');
  await writeFile(join(dir, "package-lock.json"), '{"packages":{}}');
  await writeFile(
    join(dir, "src/build/bundle.ts"),
    `import { mkdirSync, writeFileSync } from "node:fs";
     mkdirSync(process.argv[2] ?? "", { recursive: true });
     writeFileSync(process.argv[2] + "/svc.cjs", ${JSON.stringify(program)});`,
  );
  return dir;
}

test("a build of the bundle is announced, except to readers of JSON", async (t) => {
  const dir = await checkoutOf(t);
  const svc = (...args: string[]) => run(process.execPath, [join(dir, ".ci/svc.mjs"), ...args]);
  const first = await svc("ls");
  t.is(first.stdout, "ls\n");
  t.regex(first.stderr, /^Building svc .*\n$/);
  t.is((await svc("ls")).stderr, "", "nothing is bundled any more");
  await writeFile(join(dir, "src/other.ts"), "");
  t.is((await svc("ls", "--json")).stderr, "");
});

test("npm start prints its progress on standard error", async (t) => {
  const dir = await checkoutOf(t);
  const failed = await t.throwsAsync<Error & { stderr: string; stdout: string }>(
    run(process.execPath, [join(dir, "examples/try.ts")]),
  );
  t.regex(
    failed.stderr,
    /^Building svc .*\nStarting the daemon …\ndaemon\nThe daemon ended with exit code 7; /m,
  );
  t.notRegex(failed.stdout, /Building|Starting/);
});

(process.getuid?.() === 0 ? test : test.skip)(
  "npm start says at once that the user has no account",
  async (t) => {
    const dir = await checkoutOf(t);
    const uid = 3_912_345;
    await chown(dir, uid, uid);
    const asked = [`--reuid=${uid}`, `--regid=${uid}`, "--clear-groups", process.execPath];
    const failed = await t.throwsAsync<Error & { stderr: string; stdout: string }>(
      run("setpriv", [...asked, join(dir, "examples/try.ts")]),
    );
    t.is(
      failed.stderr,
      `Your user ID ${uid} has no account on this machine; start svc as a user with an entry in /etc/passwd, or create the account with: sudo useradd --uid ${uid} NAME\n`,
    );
    t.deepEqual(await readdir(dir).then((names) => names.includes(".svc")), false);
  },
);

/** A daemon that stops at SIGTERM with exit code 3. */
const stopsWith3 = `
  if (process.argv[2] === "daemon") {
    process.on("SIGTERM", () => process.exit(3));
    setTimeout(() => process.exit(9), 300_000);
    require("node:fs").writeFileSync("daemon.pid", String(process.pid));
  }`;

for (const args of [
  ["start", "--ignore-scripts"],
  ["run", "svc", "--", "daemon"],
]) {
  test(`SIGTERM to npm ${args.slice(0, 2).join(" ")} stops the daemon and passes its exit code`, async (t) => {
    const dir = await checkoutOf(t, stopsWith3);
    await copyFile(join(root, "package.json"), join(dir, "package.json"));
    const npm = spawn("npm", args, { cwd: dir, stdio: "ignore" });
    const ended = once(npm, "exit");
    const pid = await eventually(async () => {
      const text = await readFile(join(dir, "daemon.pid"), "utf8");
      assert.ok(text);
      return Number(text);
    }, 60_000);
    npm.kill("SIGTERM");
    t.is((await ended)[0], 3);
    t.throws(() => process.kill(pid, 0), { code: "ESRCH" });
  });
}

test("the installation of a checkout's dependencies is announced on standard error", async (t) => {
  const dir = await checkoutOf(t);
  await rm(join(dir, "node_modules"), { recursive: true });
  const bin = join(dir, "bin");
  await mkdir(bin);
  await writeFile(join(bin, "npm"), "#!/bin/sh\nexit 3\n", { mode: 0o755 });
  const failed = await t.throwsAsync<Error & { stderr: string; stdout: string }>(
    run(process.execPath, [join(dir, ".ci/setup.mjs")], {
      env: { ...process.env, PATH: `${bin}:/usr/bin:/bin` },
    }),
  );
  t.regex(
    failed.stderr,
    /^Installing the dependencies of this clone \(none yet\): .*\nnpm ci failed: see above\.\n$/,
  );
  t.is(failed.stdout, "");
});

test("a checkout that was never started says what to do", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-checkout-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await mkdir(join(dir, ".ci"));
  await copyFile(join(root, ".ci/svc.mjs"), join(dir, ".ci/svc.mjs"));
  const failed = await t.throwsAsync<Error & { stderr: string; code: number }>(
    run(process.execPath, [join(dir, ".ci/svc.mjs"), "ls"]),
  );
  t.is(
    failed.stderr,
    `svc: the dependencies of this clone are not installed: run npm start in ${dir} first\n`,
  );
  t.is(failed.code, 1);
});

// The port of the daemon that `npm start` runs.

async function portFile(t: ExecutionContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-port-"));
  t.teardown(() => rm(dir, { recursive: true }));
  return join(dir, "port");
}

/** A program that listens on a port of the loopback address. */
async function occupy(port = 0): Promise<AsyncDisposable & { readonly port: number }> {
  const server = createServer().listen(port, "127.0.0.1");
  await once(server, "listening");
  const { port: bound } = server.address() as { port: number };
  return {
    port: bound,
    [Symbol.asyncDispose]: async () => {
      server.close();
      await nextEvent(server, "close");
    },
  };
}

test("the preferred port is used if it is free", async (t) => {
  const preferred = await freePort();
  t.is(await pickPort(preferred, await portFile(t)), preferred);
});

test("the port that replaces a taken one stays the same on the next start", async (t) => {
  const file = await portFile(t);
  const other = await occupy();
  const first = await pickPort(other.port, file);
  t.not(first, other.port);
  t.is(await pickPort(other.port, file), first);
  await other[Symbol.asyncDispose]();
  t.is(await pickPort(other.port, file), first, "the preferred port is free again");
});

test("another port is chosen if the one of the last start is taken", async (t) => {
  const file = await portFile(t);
  await using last = await occupy();
  await writeFile(file, `${last.port}\n`);
  const preferred = await freePort();
  t.is(await pickPort(preferred, file), preferred);
  t.is(await readFile(file, "utf8"), `${preferred}\n`);
});

for (const text of ["", "port", "-1", "65536", "80.5"]) {
  test(`a stored port "${text}" that is not valid is ignored`, async (t) => {
    const file = await portFile(t);
    await writeFile(file, text);
    const preferred = await freePort();
    t.is(await pickPort(preferred, file), preferred);
  });
}

// The list of missing programs that `npm start` prints.

test.serial("npm start looks for Docker at DOCKER_HOST, like the daemon", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-optional-"));
  const before = process.env["DOCKER_HOST"];
  const engine = createServer();
  try {
    const socket = join(dir, "engine.sock");
    process.env["DOCKER_HOST"] = `unix://${socket}`;
    t.deepEqual(await missing({ docker: "no containers." }), ["No Docker: no containers."]);
    await once(engine.listen(socket), "listening");
    t.deepEqual(await missing({ docker: "no containers." }), []);
  } finally {
    if (before === undefined) delete process.env["DOCKER_HOST"];
    else process.env["DOCKER_HOST"] = before;
    await new Promise((resolve) => engine.close(resolve));
    await rm(dir, { recursive: true, force: true });
  }
});
