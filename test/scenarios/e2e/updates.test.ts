/** Available updates of packages and images, and installable packages, through the contract and the CLI. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chown, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { CredentialService } from "../../../gen/svc/v1/credential_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { SourceService } from "../../../gen/svc/v1/source_pb.ts";
import { type SvcRun, runSvc } from "../../cli/support/run-svc.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { startDaemon } from "../../support/daemon.ts";
import type { ImageContents } from "../../support/docker-images.ts";
import { registryUser } from "../../support/docker-registry.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { keepInMemory } from "../../support/in-memory.ts";
import { addVersion, freePort, writeFiles, writePackage, writeRepository } from "../../support/packages.ts";
import { main } from "../../support/svc-main.ts";

keepInMemory();

const emptyDaemon = sharedDaemon();

test("an available update is shown everywhere until the app is upgraded", async (t) => {
  const daemon = await emptyDaemon();
  const svc = (...args: string[]): Promise<SvcRun> => runSvc([...args, "--socket", daemon.socketPath]);
  const apps = daemon.client(AppService);
  const status = daemon.client(DaemonService);
  const port = await freePort();
  const repository = join(daemon.dir, "web.git");
  await apps.installApp({ spec: await writeRepository(repository, port, [{ version: "1.0.0" }]) });
  await writePackage(join(daemon.dir, "plain"), port, { id: "plain" });
  await apps.installApp({ spec: join(daemon.dir, "plain"), portAuto: true });
  const none = await svc("outdated");
  t.deepEqual([none.exitCode, none.stdout], [0, ""]);
  t.regex(none.stderr, /^No updates found\.$/m);

  await addVersion(repository, port, { version: "1.1.0" });
  const { updates } = await apps.listUpdates({});
  t.like(updates, [
    { id: "plain", version: "1.0.0", outdatedImages: [] },
    { id: "web", version: "v1.0.0", availableVersion: "v1.1.0" },
  ]);
  t.is(updates[0]?.availableVersion, undefined, "its manifest has the same version");
  t.is((await apps.getApp({ id: "web" })).availableVersion, "v1.1.0");
  t.is((await status.getStatus({})).apps?.outdated, 1);
  const outdated = await svc("outdated");
  t.regex(outdated.stdout, /^ID +VERSION +AVAILABLE +IMAGES\nweb +v1\.0\.0 +v1\.1\.0\n$/);
  t.regex(outdated.stderr, /Install it: svc upgrade web/);
  t.regex((await svc("ls")).stderr, /Updates are available for web: svc outdated/);
  t.regex((await svc("status")).stdout, /^Updates: +1 available; list them with: svc outdated$/m);
  t.is((await svc("ls", "--outdated", "-q")).stdout, "web\n");

  t.is((await apps.upgradeApp({ id: "web" })).to, "v1.1.0");
  t.is((await apps.getApp({ id: "web" })).availableVersion, undefined);
  t.is((await status.getStatus({})).apps?.outdated, 0);

  await writePackage(join(daemon.dir, "plain"), port, { id: "plain", version: "1.2.0" });
  await apps.listUpdates({});
  t.is((await apps.getApp({ id: "plain" })).availableVersion, "1.2.0");
  t.is((await apps.upgradeApp({ id: "plain" })).to, "1.2.0");
  t.is((await apps.getApp({ id: "plain" })).availableVersion, undefined);

  await rm(repository, { recursive: true });
  const { updates: last } = await apps.listUpdates({});
  t.regex(last.find(({ id }) => id === "web")?.problem ?? "", /web\.git/);
  const { stderr } = await svc("outdated");
  t.regex(stderr, /warning: could not check web: /);
  t.notRegex(stderr, /Nothing newer/);
});

test("a git repository without a manifest is cloned, gets one, and is installed", async (t) => {
  const daemon = await emptyDaemon();
  const repository = join(daemon.dir, "plain.git");
  await writeRepository(repository, await freePort(), [{ files: { Procfile: "web: node server.mjs\n" } }]);
  const git = promisify(execFile);
  const identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
  await git("git", ["-C", repository, "rm", "--quiet", "svc.yaml"]);
  await git("git", ["-C", repository, ...identity, "commit", "--quiet", "--message", "no manifest"]);
  await git("git", ["-C", repository, "tag", "--delete", "v1.0.0"]);
  await git("git", ["-C", repository, "checkout", "--quiet", "--orphan", "empty"]);
  await git("git", ["-C", repository, "rm", "--quiet", "-r", "--force", "."]);
  await git("git", [
    "-C",
    repository,
    ...identity,
    "commit",
    "--quiet",
    "--allow-empty",
    "--message",
    "empty",
  ]);
  await git("git", ["-C", repository, "checkout", "--quiet", "main"]);
  const here = join(daemon.dir, "here");
  await mkdir(here);
  const svc = async (...more: string[]) => {
    const words = [main, "install", `file://${repository}`, "--socket", daemon.socketPath, ...more];
    const options = { cwd: here, env: { ...process.env, HOME: daemon.dir } };
    return git(process.execPath, words, options).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      (error: unknown) => error as { code: number; stdout: string; stderr: string },
    );
  };
  // Nobody can answer a question, and the command does not confirm it.
  await eventually(async () => {
    const { code, stderr } = await svc();
    assert.match(stderr, /is not a package: it has no svc\.yaml;/);
    assert.equal(code, 2, stderr);
  }, 60_000);
  t.deepEqual(await readdir(here), []);
  // A repository without a possible manifest leaves nothing.
  const empty = await svc("--yes", "--branch", "empty");
  t.not(empty.code, 0);
  t.regex(empty.stderr, /contains no file that svc can create a package from/);
  t.deepEqual(await readdir(here), []);
  if (process.getuid?.() === 0) {
    await chown(here, 65_534, 65_534);
    const { code, stderr } = await svc("--yes");
    t.is(code, 2, stderr);
    t.regex(stderr, /belongs to another user: run the command as that user/);
    t.deepEqual(await readdir(here), []);
    await chown(here, 0, 0);
  }
  const installed = await svc("--yes");
  t.is(installed.code, 0, installed.stderr);
  t.regex(installed.stdout, /^Installed plain /);
  const dir = join(here, "plain");
  const next = `Upgrades read ${dir}, not the repository. To upgrade: git -C ${dir} pull, then run svc upgrade\n`;
  t.true(installed.stderr.includes(next), installed.stderr);
  const again = await svc("--yes", "--branch", "main");
  const checkout = `git -C ${dir} checkout main && svc install ${dir} --yes\n`;
  t.true(again.stderr.endsWith(`install that: ${checkout}`), again.stderr);
  t.regex(await readFile(join(here, "plain/svc.yaml"), "utf8"), /exec: \[node, server\.mjs\]/);
});

test("only the requested app of another system's store is cloned, and its manifest is shown before it is installed", async (t) => {
  const daemon = await emptyDaemon();
  const store = join(daemon.dir, "tipi");
  const files = {
    "apps/wiki/config.json": `{"id":"wiki","name":"A Wiki","short_desc":"Pages","port":8123,"tipi_version":1}`,
    "apps/wiki/docker-compose.json": `{"services":[{"name":"wiki","image":"example/wiki:3","isMain":true,"internalPort":80}]}`,
    "apps/other/config.json": `{"id":"other","name":"Other","tipi_version":1}`,
  };
  for (const [path, text] of Object.entries(files)) {
    await mkdir(join(store, dirname(path)), { recursive: true });
    await writeFile(join(store, path), text);
  }
  const run = promisify(execFile);
  const git = ["-C", store, "-c", "user.name=t", "-c", "user.email=t@example.org"];
  for (const words of [
    ["init", "--quiet"],
    ["add", "--all"],
    ["commit", "--quiet", "--message", "apps"],
  ])
    await run("git", [...git, ...words]);
  const here = join(daemon.dir, "here");
  await mkdir(here);
  const svc = async (...words: string[]) =>
    run(process.execPath, [main, ...words, "--socket", daemon.socketPath], {
      cwd: here,
      env: { ...process.env, HOME: daemon.dir },
    }).catch((error: unknown) => error as { stdout: string; stderr: string });
  await svc("source", "add", "tipi", `file://${store}`);
  t.regex((await svc("search", "wiki", "--source", "tipi")).stdout, /^tipi\/wiki +A Wiki +compose +Pages$/m);
  t.regex(
    (await svc("install", "tipi/wiki")).stderr,
    /apps\/wiki of file:\S+ is not a package: it has no svc\.yaml;/,
  );
  t.deepEqual(await readdir(here), []);

  // It does not matter whether an engine here can run it.
  const { stderr } = await svc("install", "tipi/wiki", "--yes");

  t.regex(stderr, /id: wiki[^]*name: A Wiki[^]*compose:/, "the generated manifest is shown");
  t.notRegex(stderr, /filtering not recognized/);
  t.deepEqual(await readdir(here), ["wiki"]);
  t.deepEqual((await readdir(join(here, "wiki"))).toSorted(), [
    "config.json",
    "docker-compose.json",
    "svc.compose.yaml",
    "svc.yaml",
  ]);
  t.regex(await readFile(join(here, "wiki/svc.compose.yaml"), "utf8"), /\$\{PORT:-8123\}:80/);
});

test("an unreadable source is not added", async (t) => {
  const daemon = await emptyDaemon();
  const add = (url: string, ...flags: string[]): Promise<SvcRun> =>
    runSvc(["source", "add", "mistyped", url, ...flags, "--socket", daemon.socketPath]);
  const nowhere = join(daemon.dir, "nowhere");
  const { exitCode, stdout, stderr } = await add(nowhere);
  t.deepEqual([exitCode, stdout], [6, ""]);
  t.regex(stderr, /the source "mistyped" failed: there is no index\.yaml in .*nowhere/);
  t.regex(
    (await add("nowhere")).stderr,
    /"nowhere" is not .*, and is not a path; for a directory, use \.\/nowhere\n$/,
  );
  t.is((await add(`file://${nowhere}`, "--json")).exitCode, 6);
  const { sources } = await daemon.client(SourceService).listSources({});
  t.false(sources.some(({ name }) => name === "mistyped"));
});

test("an empty list says so", async (t) => {
  const daemon = await emptyDaemon();
  for (const [line, said] of [
    ["ports", "No app has a port.\n"],
    ["stacks", "No compose apps installed.\n"],
    ["stats", "No app is running.\n"],
  ] as const) {
    const { exitCode, stdout, stderr } = await runSvc([line, "--socket", daemon.socketPath]);
    t.deepEqual([exitCode, stdout, stderr], [0, "", said]);
  }
});

test("unknown and required settings of a package are reported with what to do", async (t) => {
  const daemon = await emptyDaemon();
  const install = (...flags: string[]): Promise<SvcRun> =>
    runSvc(["install", join(daemon.dir, "wanting"), ...flags, "--socket", daemon.socketPath]);
  const settings = "key: { type: string, env: KEY }\n  required: [key]";
  await writePackage(join(daemon.dir, "wanting"), await freePort(), { id: "wanting", settings });
  const lacking = await install();
  t.is(lacking.exitCode, 2);
  t.is(lacking.stderr, "svc: key is required; choose it: --set key=VALUE\n");
  t.regex(
    (await install("--set", "key=a", "--set", "kay=b")).stderr,
    /^svc: kay is not a setting of wanting; did you mean "key"\?\n$/,
  );
});

test("svc ls filters apps by state, runtime or owner", async (t) => {
  const daemon = await emptyDaemon();
  const svc = (...args: string[]): Promise<SvcRun> => runSvc([...args, "--socket", daemon.socketPath]);
  await writePackage(join(daemon.dir, "web"), await freePort());
  await daemon.client(AppService).installApp({ spec: join(daemon.dir, "web") });
  for (const filter of ["--state=stopped", "--runtime=process", `--owner=${process.getuid?.() ?? 0}`])
    t.is((await svc("ls", "-q", filter)).stdout, "web\n", filter);
  for (const filter of ["--state=running", "--runtime=docker", "--owner=4711", "--outdated"]) {
    const { exitCode, stdout, stderr } = await svc("ls", filter);
    t.deepEqual([exitCode, stdout], [0, ""], filter);
    t.regex(stderr, /No installed app matches/, filter);
  }
  for (const [filter, words] of [
    ["--state=runing", /unknown state "runing"; use one of: installing, stopped, starting, /],
    ["--runtime=doker", /unknown runtime "doker"; use one of: process, docker, compose, service$/m],
  ] as const) {
    const { exitCode, stderr } = await svc("ls", filter);
    t.is(exitCode, 2, filter);
    t.regex(stderr, words);
  }
  const json = await svc("ls", "--json", "--state", "running");
  t.deepEqual(JSON.parse(json.stdout), { apps: [], next_page_token: "" });
});

test("a search covers all sources, reports an unreadable one, and a card shows all details", async (t) => {
  const daemon = await emptyDaemon();
  const svc = (...args: string[]): Promise<SvcRun> => runSvc([...args, "--socket", daemon.socketPath]);
  const sources = daemon.client(SourceService);
  const own = join(daemon.dir, "own");
  await mkdir(join(own, "wiki"), { recursive: true });
  const details = "license: MIT, runtime: docker, permissions: [gpu], size: 512MiB, tags: [notes]";
  await writeFile(
    join(own, "index.yaml"),
    `packages: { wiki: { directory: wiki, name: A Wiki, summary: Pages for all., ${details} } }\nsvc: { version: v99.1.0, url: "https://svc.example/get" }\n`,
  );
  await sources.upsertSource({ name: "own", url: own });
  await sources.upsertSource({ name: "broken", url: join(daemon.dir, "nowhere") });

  const { packages, errors } = await sources.searchPackages({ query: "NOTES wiki" });
  t.like(packages, [
    { spec: "own/wiki", name: "A Wiki", license: "MIT", sizeBytes: 536_870_912n, tags: ["notes"] },
  ]);
  t.is(packages.length, 1);
  t.deepEqual(
    errors.map(({ source }) => source),
    ["broken"],
  );
  const found = await svc("search", "pages");
  t.regex(found.stdout, /^PACKAGE +NAME +RUNTIME +SUMMARY\nown\/wiki +A Wiki +docker +Pages for all\.\n$/);
  t.regex(found.stderr, /^warning: the source "broken" failed: there is no index\.yaml in \/.+\/nowhere$/m);
  const card = await svc("source", "show", "own/wiki");
  for (const line of [/License: +MIT/, /Size: +about 512 MiB/, /Permissions: +The app uses the GPUs/])
    t.regex(card.stdout, line);
  t.regex(card.stderr, /svc install own\/wiki/);
  t.is((await svc("source", "show", "own/nothing")).exitCode, 3);
  t.like((await daemon.client(AppService).listUpdates({})).svc, { version: "v99.1.0" });
  t.regex((await svc("outdated")).stderr, /^svc v99\.1\.0 is available: https:\/\/svc\.example\/get$/m);
  t.like(await errorOf(sources.searchPackages({ source: "other" })), { code: "InvalidArgument" });
});

test("an app from a source is up to date while the source lists its version, and no directory is named", async (t) => {
  const daemon = await emptyDaemon();
  const svc = (...args: string[]): Promise<SvcRun> => runSvc([...args, "--socket", daemon.socketPath]);
  await daemon.client(AppService).installApp({ spec: "svc/hello", portAuto: true });
  for (const named of ["hello", "--all"]) {
    const run = await svc("upgrade", named);
    t.like(run, { exitCode: 0 }, run.stderr);
    t.regex(run.stdout, /^hello is up to date at [\d.]+\n$/, named);
    t.notRegex(run.stderr, /not checked/, named);
  }
  const older = await svc("upgrade", "hello", "--version", "0.1.0");
  t.is(older.exitCode, 2);
  t.regex(older.stderr, /version: "0\.1\.0": the source "svc" has only version [\d.]+ of "hello"/);
  const { version } = await daemon.client(AppService).getApp({ id: "hello" });
  const same = await svc("upgrade", "hello", "--version", version);
  t.is(same.stdout, `hello is up to date at ${version}\n`);
  await daemon.client(AppService).removeApp({ id: "hello" });
});

test("an app whose directory is gone is not upgraded, and the error says so", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "gone");
  await writePackage(dir, await freePort(), { id: "gone" });
  await daemon.client(AppService).installApp({ spec: dir });
  await rm(dir, { recursive: true });
  const { exitCode, stderr } = await runSvc(["upgrade", "gone", "--socket", daemon.socketPath]);
  t.is(exitCode, 2);
  t.regex(stderr, /\/gone does not exist; app "gone" stays at 1\.0\.0\n$/);
  t.notRegex(stderr, /svc package init/);
});

test("built-in packages are known, and a source's packages override them", async (t) => {
  const daemon = await emptyDaemon();
  const svc = (...args: string[]): Promise<SvcRun> => runSvc([...args, "--socket", daemon.socketPath]);
  const sources = daemon.client(SourceService);
  const { sources: listed } = await sources.listSources({});
  t.like(
    listed.find(({ name }) => name === "svc"),
    { shipped: true, configured: false },
  );
  t.like(await errorOf(sources.removeSource({ name: "svc" })), { reason: "not_possible" });
  const { packages } = await sources.searchPackages({ source: "svc" });
  t.true(packages.length >= 15, `${packages.length} packages`);
  for (const { spec, summary, runtime, license } of packages)
    t.true(summary !== "" && runtime !== "" && license !== "", spec);
  // Both sources have the package, and the name is not ambiguous.
  const { origin } = await daemon.client(AppService).installApp({ spec: "hello", portAuto: true });
  t.is(origin?.source, "examples");
  const installed = await svc("install", "svc/hello", "--port-auto");
  t.is(installed.exitCode, 0, installed.stderr);
  // Another package with its name overrides it until it is removed.
  await sources.upsertSource({ name: "svc", url: join(daemon.dir, "nowhere") });
  t.is((await sources.searchPackages({ source: "svc" })).errors.length, 1);
  await sources.removeSource({ name: "svc" });
  t.true((await sources.searchPackages({ source: "svc" })).packages.length >= 15);
});

// `svc app image` and `svc app repull`, by a user without groups, with a registry that requires a password.

const nobody = 65_534;
const engineNow = sharedEngine();

dockerTest(
  `an image is current, then outdated, then pulled again, with the user's own credential${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    const registry = await engine.registry(registryUser);
    const tag = `${registry.host}/web:latest`;
    await engine.images.build(tag, { labels: { n: "1" } });
    await engine.images.push(tag, registryUser);
    await engine.images.remove(tag);
    await using daemon = await startDaemon({ config: engine.config });
    await using user = await daemon.as(nobody);
    const apps = user.client(AppService);
    const dir = join(daemon.dir, "package");
    await writeFiles(dir, {
      "svc.yaml": `id: web\nname: Web\nversion: "1"\nsummary: Sleeps.\ndocker: { image: "${tag}" }\n`,
    });
    const svc = async (...args: string[]): Promise<string> => {
      const argv = [`--reuid=${nobody}`, `--regid=${nobody}`, "--clear-groups", "--", process.execPath, main];
      const options = { env: { PATH: process.env["PATH"] ?? "", HOME: "/nonexistent" } };
      const socket = ["--socket", daemon.socketPath];
      const { stdout } = await promisify(execFile)("setpriv", [...argv, ...args, ...socket], options);
      return stdout;
    };
    t.like(await errorOf(apps.installApp({ spec: dir })), { code: "NotFound" }, "no password yet");

    await user.client(CredentialService).upsertCredential({
      name: "registry",
      kind: "registry",
      host: registry.host,
      username: registryUser.name,
      secret: registryUser.password,
    });
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "web" });
    t.regex(await svc("app", "image", "web", "--check"), /Freshness: +current/);
    t.is(await svc("app", "repull", "web"), "web already has the newest image\n");

    await engine.images.build(tag, { labels: { n: "2" } });
    await engine.images.push(tag, registryUser);
    // Pushed from another host: the engine here still has the old one under the name.
    await engine.images.remove(tag);
    t.regex(await svc("app", "image", "web", "--check"), /Freshness: +(outdated|unknown)/);
    const before = (await apps.getApp({ id: "web" })).startedAt;
    t.is(await svc("app", "repull", "web"), "web has a new image and was restarted with it\n");
    t.regex(await svc("app", "image", "web", "--check"), /Freshness: +current/);
    const after = await apps.getApp({ id: "web" });
    t.is(after.state, "RUNNING");
    t.notDeepEqual(after.startedAt, before);
    const labelled = async (label: string): Promise<string[]> => {
      const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
      const all = (await engine.request("GET", `/images/json?filters=${filters}`)).expect(200);
      return (all as { Id: string }[]).map(({ Id }) => Id);
    };
    t.deepEqual(await labelled("n=1"), [], "the previous image is gone");

    const [good = ""] = await labelled("n=2");
    await engine.images.tag(good, "test/kept:1");
    await engine.images.build(tag, { labels: { n: "3" }, cmd: ["/bin/sh", "-c", "exit 3"] });
    await engine.images.push(tag, registryUser);
    await engine.images.remove(tag);
    await engine.images.tag("test/kept:1", tag);
    await engine.images.remove("test/kept:1");
    const failure = await errorOf(apps.repullApp({ id: "web" }));
    t.like(failure, { reason: "start_failed" });
    t.regex(failure.message, /exited with code 3; it runs on its image before again/);
    t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
    t.deepEqual(await labelled("n=2"), [good]);
    t.deepEqual(await labelled("n=3"), [], "the image that failed to start is gone, too");
    await apps.removeApp({ id: "web" });
  },
);

composeTest(
  `a repull of a project removes the previous images, and returns to them if its services fail to start on the new ones${needsCompose}`,
  async (t) => {
    const engine = engineNow();
    const registry = await engine.registry();
    const tag = `${registry.host}/part:latest`;
    const push = async (contents: ImageContents): Promise<string> => {
      const id = await engine.images.build(tag, contents);
      await engine.images.push(tag);
      return id;
    };
    const first = await push({ labels: { part: "1" } });
    await using daemon = await startDaemon({ config: engine.config });
    const apps = daemon.client(AppService);
    const dir = join(daemon.dir, "package");
    await writeFiles(dir, {
      "svc.yaml": `id: parts\nname: Parts\nversion: "1"\ncompose: { file: compose.yaml }\n`,
      "compose.yaml": `services:\n  a: { image: "${tag}" }\n  b: { image: "${tag}" }\n`,
    });
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "parts" });
    const labelled = async (path: string, label: string): Promise<{ ImageID: string; State: string }[]> => {
      const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
      return (await engine.request("GET", `${path}filters=${filters}`)).expect(200) as [];
    };

    const good = await push({ labels: { part: "2" } });
    // Pushed from another host: the engine here still has the old one under the name.
    await engine.images.tag(first, tag);
    t.like(await apps.repullApp({ id: "parts" }), { changed: true, restarted: true });
    t.deepEqual(await labelled("/images/json?", "part=1"), []);
    t.is((await labelled("/containers/json?all=1&", "svc.app=parts")).length, 2);

    await push({ labels: { part: "3" }, cmd: ["/bin/sh", "-c", "exit 3"] });
    await engine.images.tag(good, tag);
    const failure = await errorOf(apps.repullApp({ id: "parts" }));
    t.like(failure, { reason: "start_failed" });
    t.regex(failure.message, /it runs on its images? before again/);
    t.is((await apps.getApp({ id: "parts" })).state, "RUNNING");
    const all = await labelled("/containers/json?all=1&", "svc.app=parts");
    t.deepEqual(
      all.map(({ ImageID, State }) => [ImageID, State]),
      [
        [good, "running"],
        [good, "running"],
      ],
    );
    await apps.removeApp({ id: "parts" });
  },
);

for (const [runtime, test, needs] of [
  ["docker", dockerTest, needsDocker],
  ["compose", composeTest, needsCompose],
] as const) {
  test(`an install of a ${runtime} app exits with 6 if a registry does not respond, with 3 without its image${needs}`, async (t) => {
    t.timeout(120_000);
    const engine = engineNow();
    const registry = await engine.registry();
    await using daemon = await startDaemon({ config: engine.config });
    const install = async (id: string, image: string): Promise<{ code?: unknown; stderr: string }> => {
      const dir = join(daemon.dir, id);
      const how = runtime === "docker" ? `docker: { image: "${image}" }` : "compose: { file: compose.yaml }";
      await writeFiles(dir, {
        "svc.yaml": `id: ${id}\nname: ${id}\nversion: "1"\n${how}\n`,
        ...(runtime === "compose" && { "compose.yaml": `services: { one: { image: "${image}" } }\n` }),
      });
      const argv = [main, "install", dir, "--socket", daemon.socketPath];
      return promisify(execFile)(process.execPath, argv).catch(
        (error: unknown) => error as { code: unknown; stderr: string },
      );
    };
    const silent = await install("silent", `127.0.0.1:${await freePort()}/away:1`);
    t.is(silent.code, 6, silent.stderr);
    const missing = await install("missing", `${registry.host}/nothing:1`);
    t.is(missing.code, 3, missing.stderr);
    t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
  });
}
