/** Builds do not affect anything outside of their app, and their results also work in a copy. */
import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { systemDirs } from "../../../src/run-as/launch.ts";
import { startDaemon } from "../../support/daemon.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { eventually } from "../../support/eventually.ts";

const emptyDaemon = sharedDaemon();

const run = promisify(execFile);

interface Package {
  readonly exec: readonly string[];
  readonly build: readonly { exec: readonly string[]; working_dir?: string; env?: Record<string, string> }[];
  /** Further lines of the manifest. */
  readonly more?: string;
}

async function writeManifest(dir: string, { exec, build, more = "" }: Package): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o755 });
  const process = JSON.stringify({ exec, build });
  await writeFile(join(dir, "svc.yaml"), `id: web\nname: Web\nversion: "1"\nprocess: ${process}\n${more}\n`);
}

test("npm and git in a build find no project above the app", async (t) => {
  const daemon = await emptyDaemon();
  // The store is inside of another project, such as a checkout of svc.
  const project = `${JSON.stringify({ name: "above", version: "1.0.0" })}\n`;
  await writeFile(join(daemon.dir, "package.json"), project);
  await run("git", ["init", "--quiet", daemon.dir]);
  const dir = join(daemon.dir, "package");
  const npm = ["npm", "install", "--offline", "--no-audit", "--no-fund"];
  await writeManifest(dir, {
    exec: ["sleep", "3600"],
    build: [
      { exec: ["sh", "-c", "git rev-parse --show-toplevel > top 2>&1; ls -A > seen"] },
      { exec: [...npm, "../dep"], working_dir: "sub" },
      { exec: [...npm, "--global", "./dep"] },
    ],
  });
  for (const name of ["dep", "sub"]) await mkdir(join(dir, name), { mode: 0o755 });
  await writeFile(join(dir, "dep", "package.json"), `{ "name": "dep", "version": "1.0.0" }\n`);
  await writeFile(join(dir, "sub", "a-file"), "");
  const before = await readdir(daemon.dir);

  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  t.is(await readFile(join(daemon.dir, "package.json"), "utf8"), project, "the project's own file");
  t.deepEqual(await readdir(daemon.dir), before, "nothing was added to it");
  const repo = join(daemon.storeDir, "apps", "web", "repo");
  t.regex(await readFile(join(repo, "top"), "utf8"), /not a git repository/);
  t.true((await readdir(join(repo, "node_modules"))).includes("dep"));
  t.deepEqual(await readdir(join(repo, ".npm-global", "lib", "node_modules")), ["dep"]);
  await apps.removeApp({ id: "web" });
});

test("npm in a build uses the host's global settings, such as trusted certificates", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-npm-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await chmod(dir, 0o755);
  for (const name of ["bin", "etc"]) await mkdir(join(dir, name), { mode: 0o755 });
  await writeFile(join(dir, "bin/node"), `#!/bin/sh\nexec "${process.execPath}" "$@"\n`, { mode: 0o755 });
  await writeFile(join(dir, "etc/npmrc"), "cafile=/the/hosts.pem\n", { mode: 0o644 });
  const path = JSON.stringify([join(dir, "bin"), ...systemDirs]);
  await using daemon = await startDaemon({ config: `[apps]\npath = ${path}` });
  const spec = join(daemon.dir, "package");
  await writeManifest(spec, {
    exec: ["sleep", "3600"],
    build: [{ exec: ["sh", "-c", "npm config get cafile > cafile; npm config get prefix > prefix"] }],
  });
  await daemon.client(AppService).installApp({ spec });
  const repo = join(daemon.storeDir, "apps/web/repo");
  t.is(await readFile(join(repo, "cafile"), "utf8"), "/the/hosts.pem\n");
  t.is(await readFile(join(repo, "prefix"), "utf8"), `${repo}/.npm-global\n`);
});

for (const { above, isTaken } of [
  { above: ["**"], isTaken: true },
  { above: { packages: ["./store/**/repo/"] }, isTaken: true },
  { above: ["**", "!store/apps/web/repo"], isTaken: false },
  { above: ["packages/*"], isTaken: false },
]) {
  const workspaces = JSON.stringify(above);
  test(`a build below a project with the workspaces ${workspaces} ${isTaken ? "changes nothing there, and says why" : "has workspaces of its own"}`, async (t) => {
    const daemon = await emptyDaemon();
    const project = `{ "name": "above", "version": "1.0.0", "workspaces": ${workspaces} }\n`;
    await writeFile(join(daemon.dir, "package.json"), project);
    // npm ignores workspaces below a node_modules directory.
    const dir = join(daemon.dir, "package", "node_modules", "web");
    await writeManifest(dir, {
      exec: ["sleep", "3600"],
      build: [{ exec: ["npm", "install", "--offline", "--no-audit", "--no-fund"] }],
    });
    await mkdir(join(dir, "packages", "part"), { recursive: true });
    await writeFile(
      join(dir, "package.json"),
      '{ "name": "app", "version": "1.0.0", "workspaces": ["packages/*"] }',
    );
    await writeFile(join(dir, "packages", "part", "package.json"), '{ "name": "part", "version": "1.0.0" }');
    const before = await readdir(daemon.dir);

    const apps = daemon.client(AppService);
    const install = apps.installApp({ spec: dir });
    if (isTaken) {
      const { message } = await t.throwsAsync(install);
      const file = join(daemon.dir, "package.json");
      const hint =
        'includes the app as one of its workspaces; exclude the app there with "!store/apps/web/repo"';
      t.true(message.includes(`${file} ${hint}`), message);
    } else {
      await install;
      const repo = join(daemon.storeDir, "apps", "web", "repo");
      t.true((await readdir(join(repo, "node_modules"))).includes("part"), "its own workspace is linked");
      await apps.removeApp({ id: "web" });
    }
    t.deepEqual(await readdir(daemon.dir), before, "nothing was added to the project");
    t.is(await readFile(join(daemon.dir, "package.json"), "utf8"), project);
  });
}

const yarns = {
  "yarn 1": { program: createRequire(import.meta.url).resolve("yarn/bin/yarn.js"), options: ["--offline"] },
  "yarn 4": { program: createRequire(import.meta.url).resolve("@yarnpkg/cli-dist/bin/yarn.js"), options: [] },
};
const ofItsOwn = { workspaces: ["packages/*"] };

for (const { yarn, has, refuses } of [
  { yarn: "yarn 1", has: {}, refuses: true },
  { yarn: "yarn 1", has: ofItsOwn, refuses: false },
  { yarn: "yarn 4", has: {}, refuses: false },
  { yarn: "yarn 4", has: ofItsOwn, refuses: false },
] as const) {
  const what = `${"workspaces" in has ? "with" : "without"} workspaces of its own`;
  test(`${yarn} in a checkout ${what}, below a project that includes it, ${refuses ? "fails with the reason" : "stays in it"}`, async (t) => {
    const daemon = await emptyDaemon();
    const project = '{ "name": "above", "version": "1.0.0", "private": true, "workspaces": ["**"] }\n';
    await writeFile(join(daemon.dir, "package.json"), project);
    const dir = join(daemon.dir, "package", "node_modules", "web");
    const { program, options } = yarns[yarn];
    await writeManifest(dir, {
      exec: ["sleep", "3600"],
      build: [
        {
          exec: [process.execPath, program, "install", ...options],
          env: { YARN_ENABLE_NETWORK: "false", YARN_ENABLE_GLOBAL_CACHE: "false" },
        },
      ],
    });
    await mkdir(join(dir, "packages", "part"), { recursive: true });
    const app = { name: "app", version: "1.0.0", private: true, license: "MIT", ...has };
    await writeFile(join(dir, "package.json"), JSON.stringify(app));
    await writeFile(join(dir, "packages", "part", "package.json"), '{ "name": "part", "version": "1.0.0" }');
    const before = await readdir(daemon.dir);

    const apps = daemon.client(AppService);
    const install = apps.installApp({ spec: dir });
    if (refuses) {
      const { message } = await t.throwsAsync(install);
      t.true(
        message.includes(`${join(daemon.dir, "package.json")} includes the app as one of its workspaces`),
        message,
      );
    } else {
      await install;
      t.true((await readdir(join(daemon.storeDir, "apps", "web", "repo"))).includes("yarn.lock"));
      await apps.removeApp({ id: "web" });
    }
    t.deepEqual(await readdir(daemon.dir), before, "nothing was added to the project");
    t.is(await readFile(join(daemon.dir, "package.json"), "utf8"), project);
  });
}

test("a step below a project that includes the checkout leaves no files that confine yarn", async (t) => {
  const daemon = await emptyDaemon();
  await writeFile(join(daemon.dir, "package.json"), '{ "name": "above", "workspaces": ["**"] }');
  const dir = join(daemon.dir, "package");
  await writeManifest(dir, { exec: ["sleep", "3600"], build: [{ exec: ["sh", "-c", "ls -A > seen"] }] });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  const repo = join(daemon.storeDir, "apps", "web", "repo");
  t.regex(await readFile(join(repo, "seen"), "utf8"), /^yarn\.lock$/m);
  t.deepEqual((await readdir(repo)).toSorted(), ["seen", "svc.yaml"]);
  await apps.removeApp({ id: "web" });
});

test("a build without npm leaves no files that confine npm", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writeManifest(dir, { exec: ["sleep", "3600"], build: [{ exec: ["touch", "built"] }] });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  const repo = join(daemon.storeDir, "apps", "web", "repo");
  t.deepEqual((await readdir(repo)).toSorted(), ["built", "svc.yaml"]);
  await apps.removeApp({ id: "web" });
});

const venv = ["python3", "-m", "venv", "--without-pip", "env"];
/** As pip writes the programs it installs: with the environment's path in their first line. */
const program = `printf '#!%s/env/bin/python\\nimport sys, time\\nprint(sys.prefix, flush=True)\\ntime.sleep(3600)\\n' "$PWD" > env/bin/app
chmod +x env/bin/app`;

test("a clone rebuilds virtual environments, and runs after its source is removed", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writeManifest(dir, {
    exec: ["${repo}/env/bin/app"],
    build: [{ exec: venv }, { exec: ["sh", "-c", program] }],
  });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.cloneApp({ id: "web" });
  await apps.removeApp({ id: "web" });
  t.is((await apps.startApp({ id: "web-2" })).state, "RUNNING");
  await eventually(async () => {
    const { lines } = await apps.getAppLogs({ id: "web-2" });
    const prefix = join(daemon.storeDir, "apps", "web-2", "repo", "env");
    if (!lines.some(({ text }) => text === prefix)) throw new Error(lines.map(({ text }) => text).join("\n"));
  }, 30_000);
  await apps.removeApp({ id: "web-2" });
});

for (const { says, more, builds, isRebuilt } of [
  { says: "nothing", more: "", builds: "a path", isRebuilt: false },
  { says: "nothing", more: "", builds: "a virtual environment", isRebuilt: true },
  { says: "rebuild", more: "clone: rebuild", builds: "a path", isRebuilt: true },
  { says: "copy", more: "clone: copy", builds: "a virtual environment", isRebuilt: false },
]) {
  test(`a clone with ${builds} and clone setting ${says} is ${isRebuilt ? "rebuilt" : "copied"}`, async (t) => {
    const daemon = await emptyDaemon();
    const dir = join(daemon.dir, "package");
    const makeVenv = builds === "a path" ? [] : [{ exec: venv }];
    const note = { exec: ["sh", "-c", "pwd > built-at; ls env/mark > found; mkdir -p env; touch env/mark"] };
    await writeManifest(dir, { exec: ["sleep", "3600"], build: [...makeVenv, note], more });
    const apps = daemon.client(AppService);
    await apps.installApp({ spec: dir });
    await apps.cloneApp({ id: "web" });
    const at = (id: string): string => join(daemon.storeDir, "apps", id, "repo");
    const builtAt = await readFile(join(at("web-2"), "built-at"), "utf8");
    t.is(builtAt, `${at(isRebuilt ? "web-2" : "web")}\n`);
    const found = await readFile(join(at("web-2"), "found"), "utf8");
    t.is(
      found,
      isRebuilt && builds === "a path" ? "env/mark\n" : "",
      "no environment is created over another",
    );
    for (const id of ["web", "web-2"]) await apps.removeApp({ id });
  });
}
