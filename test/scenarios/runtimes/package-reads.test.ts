/** What is read of a package: a build context within limits, and no file outside of the package. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile, chmod, chown, open, stat, symlink, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import test, { type ExecutionContext } from "ava";
import { SvcError } from "../../../src/errors.ts";
import { createUserHelpers } from "../../../src/run-as/user-helpers.ts";
import type { AppRuntime } from "../../../src/runtimes/contract.ts";
import { chooseEntries } from "../../../src/packages/build-context/chosen-entries.ts";
import { openBuildContext } from "../../../src/runtimes/docker/build-context.ts";
import { readDockerfile } from "../../../src/runtimes/docker/dockerfile-source.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { sharedFixture } from "../../runtimes/support/container-tests.ts";
import { nobody } from "../../runtimes/support/docker-fixture.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import { programs } from "../../support/programs.ts";

// The daemon's reads of a build context are limited (docs/threat-model.md).

const allowedBytes = 256 * 1024;

interface Package {
  readonly repo: string;
  readonly open: (maxBytes?: number) => ReturnType<typeof openBuildContext>;
}

/** On a disk, creating many files soon after removing many takes longer than the test. */
const manyFilesDir = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

async function packageOf(t: ExecutionContext, parent = tmpdir()): Promise<Package> {
  const userHelpers = createUserHelpers({ helperPath: programs.userHelper });
  const root = await mkdtemp(join(parent, "svc-context-"));
  t.teardown(async () => {
    await userHelpers[Symbol.asyncDispose]();
    await rm(root, { recursive: true });
  });
  const repo = join(root, "repo");
  await mkdir(repo);
  await writeFile(join(repo, "Dockerfile"), "FROM scratch\n");
  const userHelper = await userHelpers.as(process.getuid?.() ?? 0);
  const source = { context: "repo", dockerfile: "Dockerfile" };
  return {
    repo,
    open: async (maxBytes) =>
      openBuildContext({
        ...{ userHelper, root, path: "repo", timeoutMs: 120_000 },
        chooseEntries: (choice) => Promise.resolve(chooseEntries(choice)),
        dockerfileText: await readDockerfile(userHelper, root, source),
        ...(maxBytes !== undefined && { maxBytes }),
      }),
  };
}

for (const file of ["Dockerfile", ".dockerignore"]) {
  test(`a ${file} above the size limit is not read`, async (t) => {
    const { repo, open } = await packageOf(t);
    const line = "# a comment\n";
    await writeFile(join(repo, file), line.repeat(allowedBytes / line.length + 1));
    await t.throwsAsync(open(), { message: /262144/ });
    await writeFile(join(repo, file), line.repeat(100));
    (await open()).archive.resume().destroy();
  });
}

test("a Dockerfile that is not UTF-8 is rejected, not changed", async (t) => {
  const { repo, open } = await packageOf(t);
  await writeFile(join(repo, "Dockerfile"), Buffer.from("FROM scratch\nENV NAME=J\xfcrgen\n", "latin1"));
  t.like(await t.throwsAsync(open()), {
    reason: "build_failed",
    message: 'the file "Dockerfile" is not UTF-8',
  });
});

test("a context of more than 100,000 entries is rejected before it is read", async (t) => {
  t.timeout(240_000);
  const { repo, open } = await packageOf(t, manyFilesDir);
  const make = `mkdir many && cd many && seq 99999 | xargs touch`;
  execFileSync("sh", ["-c", make], { cwd: repo });
  t.like(await t.throwsAsync(open()), { reason: "too_many" });
  // With the directory and the Dockerfile, one entry too many.
  await rm(join(repo, "many/1"));
  (await open()).archive.resume().destroy();
});

test("names of more than 32 MiB are not stored", async (t) => {
  t.timeout(240_000);
  const { repo, open } = await packageOf(t);
  // More than 3,200 bytes of directories before each name.
  const deep = Array.from({ length: 16 }, () => "d".repeat(200)).join("/");
  const make = `mkdir -p ${deep} && cd ${deep} && seq 10500 | xargs touch`;
  execFileSync("sh", ["-c", make], { cwd: repo });
  await t.throwsAsync(open(), { message: /33554432 bytes of file names/ });
});

test("a context that grows above the limit fails while it is sent", async (t) => {
  const { repo, open } = await packageOf(t);
  await writeFile(join(repo, "large"), Buffer.alloc(1 << 20));
  const { archive } = await open(1 << 20);
  await t.throwsAsync(buffer(archive), { message: /more than 1048576 bytes/ });
  const whole = await open(2 << 20);
  t.true((await buffer(whole.archive)).length > 1 << 20);
});

// Files outside of a package that it names are not read by svc, compose or a container. They belong to the owner of the
// app, so the kernel would allow it; their access times reveal reads.

const fixtureNow = sharedFixture();
/** A container that gets a mount reads it before it exits. */
const look = 'command: ["/bin/sh", "-c", "cat /x /x/* /x/*/* /run/secrets/*; env; exit 0"]';
const shell = `image: "svc/shell:1", ${look}`;

/**
 * Asserts that neither a file nor a directory of it was read since its creation: reading updates an access time that is
 * older than the change.
 */
interface Canary {
  readonly dir: string;
  wasRead(): Promise<string[]>;
}

async function createCanary(parent: string): Promise<Canary> {
  const dir = await mkdtemp(join(parent, "outside-"));
  await mkdir(join(dir, "sub"));
  const files: Readonly<Record<string, string>> = {
    "plain.env": "CANARY=sung\n",
    "compose.yaml": `services: {other: {${shell}, labels: {canary: sung}}}\n`,
    Dockerfile: 'FROM svc/shell:1\nCMD ["/bin/true"]\n',
    "sub/secret": "sung\n",
  };
  for (const [name, content] of Object.entries(files)) await writeFile(join(dir, name), content);
  const paths = [dir, join(dir, "sub"), ...Object.keys(files).map((name) => join(dir, name))];
  for (const path of paths) {
    await chown(path, nobody, nobody);
    await chmod(path, 0o755);
    await utimes(path, new Date(0), new Date());
  }
  const wasRead = async (): Promise<string[]> => {
    const stats = await Promise.all(paths.map((path) => stat(path)));
    return paths.filter((_, at) => stats[at]!.atimeMs !== 0);
  };
  return { dir, wasRead };
}

interface Attempt {
  readonly runtime: AppRuntime;
  readonly app: RunnableApp;
  /** Whether it must be rejected; a path that leads out may also be ignored. */
  readonly isRefused: boolean;
}

async function expectNothingRead(t: ExecutionContext, canary: Canary, attempt: Attempt): Promise<void> {
  const { runtime, app, isRefused } = attempt;
  const { engine } = fixtureNow();
  let refusal: SvcError | undefined;
  try {
    await runtime.prepare(app, {});
    await runtime.start(app);
    await runtime.stop(app);
  } catch (error) {
    if (!(error instanceof SvcError)) throw error;
    refusal = error;
  }
  t.deepEqual(await canary.wasRead(), [], "nothing was read");
  if (isRefused) {
    t.not(refusal, undefined, "it is rejected");
    const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${app.id}`] }));
    const made = await engine.request("GET", `/containers/json?all=1&filters=${filters}`);
    t.deepEqual(made.expect(200), [], "no container was created");
  }
  await runtime.remove(app);
}

type Case = [name: string, compose: (out: string) => string, more?: Readonly<Record<string, string>>];

const one = (more: string, rest = ""): string => `services:\n  web: {${shell}, ${more}}\n${rest}`;
const composeCases: Case[] = [
  ["an environment file", (out) => one(`env_file: [${out}/plain.env]`)],
  ["an environment file by dots", (out) => one(`env_file: ../../..${out}/plain.env`)],
  ["an environment file as an object", (out) => one(`env_file: {path: ${out}/plain.env}`)],
  [
    "an environment file that is merged in",
    (out) => `x-a: &a {env_file: ${out}/plain.env}\nservices:\n  web: {<<: *a, ${shell}}\n`,
  ],
  [
    "an environment file that is merged in twice",
    (out) =>
      `x-a: &a {env_file: ${out}/plain.env}\nx-b: &b {<<: *a}\nservices:\n  web: {<<: [*b], ${shell}}\n`,
  ],
  ["an environment file behind a link", () => one("env_file: link/plain.env")],
  [
    "an environment file of what is extended",
    () => one("extends: {file: base.yaml, service: base}"),
    { "base.yaml": "services: {base: {image: a, env_file: link/plain.env}}\n" },
  ],
  ["what is extended", (out) => one(`extends: {file: ${out}/compose.yaml, service: other}`)],
  ["what is extended behind a link", () => one("extends: {file: link/compose.yaml, service: other}")],
  ["labels", (out) => one(`label_file: ${out}/plain.env`)],
  ["what is included", (out) => `include: [${out}/compose.yaml]\n${one("init: true")}`],
  [
    "what is included with another environment",
    (out) => `include: [{path: part.yaml, env_file: ${out}/plain.env}]\n${one("init: true")}`,
    { "part.yaml": "services: {}\n" },
  ],
  [
    "what is included from another directory",
    (out) => `include: [{path: part.yaml, project_directory: ${out}}]\n${one("init: true")}`,
    { "part.yaml": "services: {p: {image: a, env_file: plain.env}}\n" },
  ],
  ["a secret", (out) => one("secrets: [s]", `secrets: {s: {file: ${out}/sub/secret}}\n`)],
  ["a secret behind a link", () => one("secrets: [s]", "secrets: {s: {file: link/sub/secret}}\n")],
  ["a config", (out) => one("init: true", `configs: {s: {file: ${out}/sub/secret}}\n`)],
  ["a mount", (out) => one(`volumes: ["${out}:/x"]`)],
  ["a mount to read", (out) => one(`volumes: ["${out}:/x:ro"]`)],
  ["a mount as an object", (out) => one(`volumes: [{type: bind, source: ${out}, target: /x}]`)],
  ["a mount by dots", (out) => one(`volumes: ["../../../../../../../..${out}:/x"]`)],
  ["a mount behind a link", () => one('volumes: ["./link:/x"]')],
  ["a mount far behind a link", () => one('volumes: ["./link/sub:/x:ro"]')],
  [
    "a mount by a variable of a file",
    () => one('volumes: ["${OUT}:/x"]'),
    { ".env": "OUT=../../../../../../../../tmp\n" },
  ],
  ["a mount by a variable's default", (out) => one(`volumes: ["\${NONE:-${out}}:/x"]`)],
  [
    "a mount of what is extended",
    () => one("extends: {file: base.yaml, service: base}"),
    { "base.yaml": 'services: {base: {image: a, volumes: ["./link:/x"]}}\n' },
  ],
  [
    "a volume that is a bind",
    (out) => one('volumes: ["v:/x"]', `volumes: {v: {driver_opts: {type: none, o: bind, device: ${out}}}}\n`),
  ],
  [
    "a volume that is a file system over it",
    (out) =>
      one(
        'volumes: ["v:/x"]',
        `volumes: {v: {driver_opts: {type: overlay, device: overlay, o: "lowerdir=${out}:${out}/sub"}}}\n`,
      ),
  ],
  ["a build", (out) => `services: {web: {build: ${out}}}\n`],
  ["a build behind a link", () => "services: {web: {build: ./link}}\n"],
  [
    "a build's other context",
    (out) => `services: {web: {build: {context: ., additional_contexts: {o: ${out}}}}}\n`,
  ],
  ["a build's file", (out) => `services: {web: {build: {context: ., dockerfile: ${out}/Dockerfile}}}\n`],
  [
    "a build's file behind a link",
    () => "services: {web: {build: {context: ., dockerfile: link/Dockerfile}}}\n",
  ],
];

for (const [at, [name, compose, more = {}]] of composeCases.entries()) {
  composeTest(`compose: ${name} outside of the package is not read${needsCompose}`, async (t) => {
    t.timeout(120_000);
    const fixture = fixtureNow();
    const canary = await createCanary(fixture.engine.dir);
    const app = await fixture.app(`out-${at}`, "compose: { file: compose.yaml }", {
      files: { "compose.yaml": compose(canary.dir), ...more },
    });
    await symlink(canary.dir, join(app.directory, "repo/link"));
    await expectNothingRead(t, canary, { runtime: fixture.compose, app, isRefused: true });
  });
}

composeTest(`compose: an environment file behind a link is not read${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const canary = await createCanary(fixture.engine.dir);
  const app = await fixture.app("out-env", "compose: { file: compose.yaml }", {
    files: { "compose.yaml": one('labels: {canary: "${CANARY:-}"}') },
  });
  await symlink(join(canary.dir, "plain.env"), join(app.directory, "repo/.env"));
  await expectNothingRead(t, canary, { runtime: fixture.compose, app, isRefused: true });
});

const dockerCases: [
  name: string,
  docker: (out: string) => string,
  isRefused: boolean,
  dockerfile?: string,
][] = [
  ["a mount", (out) => `image: svc/shell:1, mounts: [{source: ${out}, target: /x}]`, true],
  [
    "a mount to read",
    (out) => `image: svc/shell:1, mounts: [{source: ${out}/sub, target: /x, read_only: true}]`,
    true,
  ],
  [
    "a mount by slashes",
    (out) => `image: svc/shell:1, mounts: [{source: "//${out}//sub", target: /x}]`,
    true,
  ],
  ["a build behind a link", () => "build: {context: link}", true],
  ["a build's file behind a link", () => "build: {dockerfile: link/Dockerfile}", true],
  ["what a build copies behind a link", () => "build: {}", false, "FROM svc/shell:1\nCOPY . /y\n"],
];

for (const [at, [name, docker, isRefused, dockerfile]] of dockerCases.entries()) {
  dockerTest(`docker: ${name} outside of the package is not read${needsDocker}`, async (t) => {
    t.timeout(120_000);
    const fixture = fixtureNow();
    const canary = await createCanary(fixture.engine.dir);
    const manifest = `docker: { ${docker(canary.dir)}, ${look} }\npermissions: [host_mounts]`;
    const app = await fixture.app(`alone-${at}`, manifest, {
      files: dockerfile === undefined ? {} : { Dockerfile: dockerfile },
    });
    await symlink(canary.dir, join(app.directory, "repo/link"));
    await symlink(join(canary.dir, "plain.env"), join(app.directory, "repo/.dockerignore"));
    await expectNothingRead(t, canary, { runtime: fixture.runtime, app, isRefused });
  });
}

dockerTest(`reading the canary is detected, with and without a container${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const canary = await createCanary(fixture.engine.dir);
  t.deepEqual(await canary.wasRead(), []);
  await using file = await open(join(canary.dir, "plain.env"));
  await file.read();
  t.deepEqual(await canary.wasRead(), [join(canary.dir, "plain.env")]);
  // Root's app may mount it, and the same container reads it.
  const manifest = `docker: { image: svc/shell:1, mounts: [{source: ${canary.dir}, target: /x}], ${look} }\npermissions: [host_mounts]`;
  const app = await fixture.app("roots", manifest, { uid: 0 });
  await fixture.runtime.prepare(app, {});
  await fixture.runtime.start(app).catch(() => undefined);
  t.true((await canary.wasRead()).includes(join(canary.dir, "sub/secret")));
  await fixture.runtime.remove(app);
});
