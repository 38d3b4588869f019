/**
 * Root's packages get no files of the host: compose reads no file outside of the package, however it is named.
 * Each generation of compose, or the policy after it, rejects files that ask for too much. Compose reads copies:
 * the output has the same paths as in place, and other files of the host stay out of reach.
 */
import { mkdir, mkdtemp, rm, writeFile, chmod } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { createUserHelpers } from "../../../src/run-as/user-helpers.ts";
import type { Runtime } from "../../../src/packages/manifest/manifest.ts";
import { YamlThread } from "../../../src/packages/manifest/yaml-thread.ts";
import { ComposeCommand, type CommandRunner } from "../../../src/runtimes/compose/compose-command.ts";
import {
  ComposeProjects,
  type ComposeProjectsOptions,
} from "../../../src/runtimes/compose/compose-project.ts";
import { composeGenerations, type ComposeGeneration } from "../../support/compose-generations.ts";
import { isRoot, needsRoot } from "../../support/daemon.ts";
import { programs } from "../../support/programs.ts";
import { policyDirectory, nobody } from "../../runtimes/support/policy-app.ts";
import { stringify } from "yaml";
import { mapBounded } from "../../../src/lib/map-bounded.ts";
import { readResolved } from "../../../src/runtimes/compose/compose-document.ts";
import { type YamlReader, checkComposeSources } from "../../../src/runtimes/compose/compose-sources.ts";
import { excessiveFiles, policyVerdict } from "../../runtimes/support/compose-files.ts";
import { ProjectReads } from "../../../src/runtimes/compose/project-reads.ts";

/** Files of a package. @param outside a directory with `plain.env` and `compose.yaml` */
type PackageOf = (outside: string) => Readonly<Record<string, string | Buffer>>;

const secret = "sung";
const web = (more: string): string => `services:\n  web:\n    image: a\n    ${more}\n`;
/** A directory whose paths lead out of the package if compose resolves them from above. */
const deep = "d/d/d/d/d/d/d/d/d/d";
const above = (outside: string): string => `${"../".repeat(10)}${outside.slice(1)}`;
const labelled = 'services: {p: {image: a, labels: {x: "${CANARY:-}"}}}\n';

const packages: readonly [title: string, of: PackageOf][] = [
  ...["\u0085", "\u2028", "\u2029", "\r"].map((end): [string, PackageOf] => [
    `after a comment that ends with ${JSON.stringify(end)}`,
    (outside) => ({ "compose.yaml": web(`# a comment${end}    env_file: ${outside}/plain.env`) }),
  ]),
  [
    "in UTF-16",
    (outside) => ({
      "compose.yaml": Buffer.from(`\ufeff${web(`env_file: ${outside}/plain.env`)}`, "utf16le"),
    }),
  ],
  [
    "by an anchor on a key",
    (outside) => ({
      "own.env": "A=1\n",
      "compose.yaml": `x-a: &a own.env\nx-b: {&a ${outside}/plain.env : 1}\n${web("env_file: *a")}`,
    }),
  ],
  [
    "by an anchor inside of an alias",
    (outside) => ({
      "own.env": "A=1\n",
      "compose.yaml": `x-o: &o {f: &a own.env}\nx-b: &a ${outside}/plain.env\nx-c: *o\n${web("env_file: *a")}`,
    }),
  ],
  [
    "by an include with a key in capitals",
    (outside) => ({ "compose.yaml": `include: [{PATH: ${outside}/compose.yaml}]\n${web("init: true")}` }),
  ],
  [
    "by an include with an environment in capitals",
    (outside) => ({
      "part.yaml": labelled,
      "compose.yaml": `include: [{path: part.yaml, Env_File: ${outside}/plain.env}]\n${web("init: true")}`,
    }),
  ],
  [
    "by an include from another directory",
    (outside) => ({
      [`${deep}/part.yaml`]: `services: {p: {image: a, env_file: "${above(outside)}/plain.env"}}\n`,
      "compose.yaml": `include: [{path: ${deep}/part.yaml, project_directory: .}]\n${web("init: true")}`,
    }),
  ],
  [
    "by the second file of an include",
    (outside) => ({
      "first.yaml": "services: {}\n",
      [`${deep}/part.yaml`]: `services: {p: {image: a, env_file: "${above(outside)}/plain.env"}}\n`,
      "compose.yaml": `include: [{path: [first.yaml, ${deep}/part.yaml]}]\n${web("init: true")}`,
    }),
  ],
  [
    "by the environment of a nested include",
    (outside) => ({
      [`${deep}/part.yaml`]: "include: [q/part.yaml]\n",
      [`${deep}/q/part.yaml`]: `include: [{path: last.yaml, env_file: "${above(outside)}/plain.env"}]\n`,
      [`${deep}/q/last.yaml`]: labelled,
      "compose.yaml": `include: [${deep}/part.yaml]\n${web("init: true")}`,
    }),
  ],
  [
    "by a directory named ~",
    (outside) => {
      const below = `~${outside.slice(homedir().length)}`;
      return {
        [`${below}/part.yaml`]: "services: {p: {image: a, env_file: plain.env}}\n",
        [`${below}/plain.env`]: "A=1\n",
        "compose.yaml": `include: ["./${below}/part.yaml"]\n${web("init: true")}`,
      };
    },
  ],
];

for (const { name, dirs, isClassic, missing } of composeGenerations) {
  const generationTest = isRoot && missing === "" ? test : test.skip;
  generationTest(
    `${name} reads no file outside of root's package${isRoot ? missing : needsRoot}`,
    async (t) => {
      t.timeout(600_000);
      using yaml = new YamlThread({ threadUrl: programs.settingsThread });
      await using userHelpers = createUserHelpers({
        ...{ helperPath: programs.userHelper, searchPath: dirs.join(":") },
      });
      const command = new ComposeCommand(userHelpers);
      const root = await userHelpers.as(0);
      for (const [title, of] of packages) {
        await using place = await policyDirectory();
        const outside = await mkdtemp(join(homedir(), "svc-outside-"));
        try {
          await writeFile(join(outside, "plain.env"), `CANARY=${secret}\n`);
          await writeFile(
            join(outside, "compose.yaml"),
            `services: {o: {image: a, labels: {x: ${secret}}}}\n`,
          );
          const repo = join(place.dir, "repo");
          for (const [path, content] of Object.entries(of(outside))) {
            await mkdir(dirname(join(repo, path)), { recursive: true });
            await writeFile(join(repo, path), content);
          }
          if (!isClassic) {
            const args = ["--file", join(repo, "compose.yaml"), "--project-directory", repo, "config"];
            const { stdout } = await command.run(root, args, { cwd: repo, timeoutMs: 60_000 });
            t.true(stdout.includes(secret), `compose reads it: ${title}`);
          }
          const app = place.app(0);
          const runtime = { kind: "compose", file: "compose.yaml", profiles: [], env: {} } satisfies Runtime;
          const projects = new ComposeProjects({
            ...{ userHelpers, yaml, command, events: { verify: () => Promise.resolve() } },
            ...{ images: { builtTag: () => "" }, engine: { socket: "/srv/docker.sock" } },
            ownership: { projectOf: (id: string) => `svc-${id}` },
            portRules: { unprivilegedPortStart: 1024, daemonPort: 0 },
            ...{ publishAddress: "127.0.0.1", usersPidsLimit: 100, maxUserProcesses: 1_000 },
            composeDir: join(place.dir, "../compose"),
          } as unknown as ComposeProjectsOptions);
          const resolving = projects.resolve({ ...app, uid: 0, manifest: { ...app.manifest, runtime } });
          await t.throwsAsync(resolving, { message: /^(?:compose|d\/).*\.yaml: / }, title);
        } finally {
          await rm(outside, { recursive: true });
        }
      }
    },
  );
}

// Each generation of compose, or the policy after it, rejects files that ask for too much.

const atOnce = 4;

/**
 * Compose v2 reads the text "0" as no value, for which svc has a default, keeps one of two mounts at the same
 * target, and ignores options of a network's addresses.
 */
const madeHarmless = new Set([
  "no limit of processes as text",
  "no limit of processes of a deployment",
  "two mounts in one place",
  "options of addresses",
]);

/**
 * Runs docker-compose 1.29 for all files in one process, because starting it takes fifteen times as long as resolving
 * one.
 */
const classicLoop = `
import contextlib, io, json, os, sys
from compose.cli import main
results = []
for call in json.load(sys.stdin):
    out, code = io.StringIO(), 0
    os.chdir(call["cwd"])
    sys.argv = ["docker-compose", *call["args"]]
    with contextlib.redirect_stdout(out):
        try:
            main.main()
        except SystemExit as end:
            code = end.code or 0
    results.append({"exitCode": code, "stdout": out.getvalue()})
json.dump(results, sys.stdout)
`;

async function resolveClassic(
  runner: CommandRunner,
  calls: readonly { readonly cwd: string; readonly args: readonly string[] }[],
  limits: { readonly timeoutMs: number; readonly maxOutputBytes: number },
): Promise<{ exitCode: number; stdout: string }[]> {
  const stdin = Buffer.from(JSON.stringify(calls.map(({ cwd, args }) => ({ cwd, args }))));
  const { stdout } = await runner.runCommand(["/usr/bin/python3", "-c", classicLoop], { ...limits, stdin });
  return JSON.parse(stdout) as { exitCode: number; stdout: string }[];
}

for (const { name, dirs, isClassic, missing } of composeGenerations) {
  const generationTest = isRoot && missing === "" ? test : test.skip;
  generationTest(
    `${name} resolves no file that asks for too much to one that is allowed${isRoot ? missing : needsRoot}`,
    async (t) => {
      t.timeout(600_000);
      await using place = await policyDirectory();
      using yaml = new YamlThread({ threadUrl: programs.settingsThread });
      await using userHelpers = createUserHelpers({
        ...{ helperPath: programs.userHelper, searchPath: dirs.join(":") },
      });
      const command = new ComposeCommand(userHelpers);
      t.is(await command.isClassic(), isClassic);
      const userHelper = await userHelpers.as(nobody);
      const files = await mapBounded(
        [...excessiveFiles(place.dir).entries()],
        atOnce,
        async ([at, { title, document }]) => {
          const cwd = join(place.dir, "repo", `file-${at}`);
          await mkdir(cwd);
          await chmod(cwd, 0o755);
          const file = join(cwd, "compose.yaml");
          await writeFile(file, stringify(document));
          const args = ["--file", file, "--project-name", "svc-web", "--project-directory", cwd, "config"];
          return { title, cwd, args };
        },
      );
      const limits = { timeoutMs: 120_000, maxOutputBytes: 16 * 1024 * 1024 };
      const resolved = isClassic
        ? await resolveClassic(userHelper, files, limits)
        : await mapBounded(files, atOnce, ({ cwd, args }) =>
            command.run(userHelper, args, { cwd, env: {}, ...limits }),
          );
      let judged = 0;
      const outcomes = await mapBounded([...resolved.entries()], atOnce, async ([at, output]) => {
        if (output.exitCode !== 0) return [];
        judged++;
        const readYaml: YamlReader = (text, bounds) => yaml.read(text, bounds, 0);
        const verdict = await readResolved(output.stdout, "compose.yaml", readYaml).then(
          (document) => policyVerdict(place, document, isClassic),
          (error: unknown) => String(error),
        );
        return verdict === "allowed" ? [files[at]!.title] : [];
      });
      const found = outcomes.flat().filter((title) => isClassic || !madeHarmless.has(title));
      t.deepEqual(found, []);
      // Most files are valid: the policy is what rejects them.
      t.true(judged > 60, `${judged}`);
    },
  );
}

// Compose reads copies.

type Files = Readonly<Record<string, string>>;

const main = `
services:
  web:
    image: "a:\${TAG}"
    build: ./context
    env_file: [web.env, conf/more.env]
    volumes: ["./data:/data", "./conf/web.conf:/etc/web.conf:ro", "../beside:/beside", "~/mine:/mine"]
    secrets: [key]
  api:
    extends: {file: base/base.yaml, service: base}
secrets:
  key: {file: ./keys/key}
`;
const files: Files = {
  ".env": "TAG=7\nFROM_DOTENV=yes\n",
  "web.env": "WEB=1\n",
  "conf/more.env": "MORE=2\n",
  "conf/web.conf": "",
  "context/Dockerfile": "FROM scratch\n",
  "base/base.yaml":
    "services: {base: {image: b, env_file: base.env, volumes: ['./inner:/inner'], environment: {V: '${FROM_DOTENV}'}}}\n",
  "base/base.env": "BASE=3\n",
  "keys/key": secret,
  "compose.yaml": main,
  "compose.override.yaml": "services: {web: {labels: {x: override}, volumes: ['./late:/late']}}\n",
};
/** Only compose 2 supports these. */
const laterFiles: Files = {
  ...files,
  "compose.yaml": `include: [part/part.yaml, {path: part/other.yaml, project_directory: moved, env_file: part/o.env}]\n${main}
configs:
  c: {file: ./conf/web.conf}
`,
  "compose.override.yaml":
    "services: {web: {label_file: conf/labels, env_file: [{path: missing.env, required: false}]}}\n",
  "conf/labels": "from=file\n",
  "part/part.yaml":
    "services: {part: {image: p, env_file: p.env, volumes: ['./p:/p'], build: {context: .}}}\n",
  "part/p.env": "P=${Q}\n",
  "part/.env": "Q=4\n",
  "part/other.yaml": "services: {other: {image: 'o:${OTHER}', volumes: ['./o:/o']}}\n",
  "part/o.env": "OTHER=5\n",
  "moved/x": "",
};

async function directory(t: ExecutionContext, parent: string, content: Files): Promise<string> {
  const dir = await mkdtemp(join(parent, "svc-reads-"));
  t.teardown(() => rm(dir, { recursive: true }));
  for (const [path, text] of Object.entries(content)) {
    await mkdir(dirname(join(dir, path)), { recursive: true });
    await writeFile(join(dir, path), text);
  }
  return dir;
}

/** Everything to run one generation of compose as root. */
async function tools({ dirs }: ComposeGeneration) {
  await using resources = new AsyncDisposableStack();
  const yaml = resources.use(new YamlThread({ threadUrl: programs.settingsThread }));
  const userHelpers = resources.use(
    createUserHelpers({ helperPath: programs.userHelper, searchPath: dirs.join(":") }),
  );
  const command = new ComposeCommand(userHelpers);
  const readYaml: YamlReader = (text, bounds) => yaml.read(text, bounds, 0);
  const owned = resources.move();
  const config = (runner: CommandRunner, base: string, names: readonly string[], env = {}) =>
    command.run(
      runner,
      [...names.flatMap((name) => ["--file", join(base, name)]), "--project-directory", base, "config"],
      { cwd: base, env: { COMPOSE_PROJECT_NAME: "p", ...env }, timeoutMs: 60_000 },
    );
  return { userHelpers, readYaml, config, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

for (const generation of composeGenerations) {
  const { name, isClassic, missing } = generation;
  const generationTest = isRoot && missing === "" ? test : test.skip;
  const skipped = isRoot ? missing : needsRoot;

  generationTest(`${name} resolves copies to the same project as the package itself${skipped}`, async (t) => {
    t.timeout(120_000);
    await using on = await tools(generation);
    const root = await directory(t, tmpdir(), { "repo/x": "" });
    const repo = join(root, "repo");
    for (const [path, text] of Object.entries(isClassic ? files : laterFiles)) {
      await mkdir(dirname(join(repo, path)), { recursive: true });
      await writeFile(join(repo, path), text);
    }
    const names = ["compose.yaml", "compose.override.yaml"] as const;
    const helper = await on.userHelpers.as(0);
    const reads = new ProjectReads(helper);
    await checkComposeSources(reads, root, "repo", names, on.readYaml);
    await using isolated = await on.userHelpers.isolate(0, reads.copied);
    const inPlace = await on.config(helper, repo, names);
    t.is(inPlace.exitCode, 0, inPlace.stderr);
    const copied = await on.config(isolated, isolated.copyOf(repo), names);
    t.is(copied.exitCode, 0, copied.stderr);
    const expected = await readResolved(inPlace.stdout, "compose.yaml", on.readYaml);
    const actual = await readResolved(copied.stdout, "compose.yaml", on.readYaml, isolated.directory);
    t.deepEqual(actual, expected);
    const text = JSON.stringify(actual);
    for (const part of ["WEB", "MORE", "BASE", `${root}/beside`, `${repo}/data`, `${repo}/context`])
      t.true(text.includes(part), part);
    if (!isClassic) for (const part of ["o:5", `${repo}/moved/o`, '"P"']) t.true(text.includes(part), part);
  });

  generationTest(`${name} runs no code that variables of the package name${skipped}`, async (t) => {
    t.timeout(120_000);
    await using on = await tools(generation);
    const code = 'import sys; sys.stderr.write("code of the package")\n';
    await using isolated = await on.userHelpers.isolate(0, {
      files: new Map([
        ["/srv/app/compose.yaml", Buffer.from('version: "2.4"\nservices: {web: {image: a}}\n')],
        ["/srv/app/sitecustomize.py", Buffer.from(code)],
      ]),
      directories: [],
    });
    const env = { PYTHONPATH: ".", PYTHONHOME: "/nonexistent", LD_PRELOAD: "./preload.so" };
    const { exitCode, stderr } = await on.config(
      isolated,
      isolated.copyOf("/srv/app"),
      ["compose.yaml"],
      env,
    );
    t.is(exitCode, 0, stderr);
    t.notRegex(stderr, /code of the package|preload/);
  });

  generationTest(`${name} cannot read a file of the host that svc did not see${skipped}`, async (t) => {
    t.timeout(120_000);
    await using on = await tools(generation);
    const outside = await directory(t, homedir(), {
      "plain.env": `CANARY=${secret}\n`,
      "compose.yaml": `services: {o: {image: a, labels: {x: ${secret}}}}\n`,
      "profile.json": JSON.stringify({ x: secret }),
    });
    // As on a host where users may enter the homes of others.
    await chmod(join(outside, "plain.env"), 0o600);
    const service = (more: string): string => `services: {web: {image: a, ${more}}}\n`;
    const both = [
      service(`env_file: ${outside}/plain.env`),
      service(`env_file: [${outside}/plain.env]`),
      service(`extends: {file: ${outside}/compose.yaml, service: o}`),
    ];
    const later = [
      service(`label_file: ${outside}/plain.env`),
      `include: [${outside}/compose.yaml]\n`,
      `include: [{path: ${outside}/compose.yaml, project_directory: .}]\n`,
      `include: [{path: own.yaml, env_file: ${outside}/plain.env}]\n`,
    ];
    const classic = [service(`security_opt: ["seccomp:${outside}/profile.json"]`)];
    const root = "/srv/app";
    const helper = await on.userHelpers.as(0);
    for (const text of [...both, ...(isClassic ? classic : later)]) {
      const content = {
        "compose.yaml": `version: "2.4"\n${text}`,
        "own.yaml": 'services: {p: {image: a, labels: {x: "${CANARY}"}}}\n',
      };
      const inPlace = await directory(t, tmpdir(), content);
      t.is((await on.config(helper, inPlace, ["compose.yaml"])).exitCode, 0, `root can read it: ${text}`);
      await using isolated = await on.userHelpers.isolate(0, {
        files: new Map(Object.entries(content).map(([at, part]) => [join(root, at), Buffer.from(part)])),
        directories: [],
      });
      const { exitCode, stdout, stderr } = await on.config(isolated, isolated.copyOf(root), ["compose.yaml"]);
      t.not(exitCode, 0, text);
      t.regex(stderr, /[Pp]ermission denied|not found|no such file|Couldn't find/i, text);
      t.false((stdout + stderr).includes(secret), text);
    }
  });
}
