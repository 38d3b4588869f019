/** Installs, rejected or copied from another node, and the ID of an app, which its user chooses. */
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { type SvcRun, runSvc } from "../../cli/support/run-svc.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import {
  type TestDaemon,
  isRoot,
  needsRoot,
  protocolOf,
  protocols,
  startDaemon,
} from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { freePort, writePackage, writeRepository } from "../../support/packages.ts";
import { needsSsh, startSshServer } from "../../support/ssh-server.ts";

// Rejected installs: the same code, reason and payload over every protocol, and nothing left behind.

const emptyDaemon = sharedDaemon();

async function expectNothingLeft(t: ExecutionContext, daemon: TestDaemon): Promise<void> {
  t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
  t.deepEqual(await readdir(join(daemon.storeDir, "apps")), []);
  t.deepEqual(await readdir(join(daemon.storeDir, "run")), []);
}

test("the install of a compose project without a container engine says that the engine is missing", async (t) => {
  await using daemon = await startDaemon({ config: '[docker]\nsocket = "/nonexistent/docker.sock"' });
  const dir = join(daemon.dir, "package");
  await mkdir(dir);
  await writeFile(join(dir, "compose.yaml"), "services: { web: { image: example.org/web } }\n");
  await writeFile(
    join(dir, "svc.yaml"),
    'id: web\nname: Web\nversion: "1.0.0"\ncompose: { file: compose.yaml }\n',
  );
  const { message } = await errorOf(daemon.client(AppService).installApp({ spec: dir }));
  t.regex(
    message,
    /^the container engine at \/nonexistent\/docker\.sock cannot be reached: .*install or start Docker/,
  );
});

test("a license must be acknowledged", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService, protocolOf(import.meta.url));
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), { files: { "LICENSE.md": "Be kind.\n", COPYING: "Share.\n" } });
  const error = await errorOf(apps.installApp({ spec: dir }));
  t.like(error, { code: "FailedPrecondition", reason: "license_required" });
  t.deepEqual(
    error.payload.case === "licenseRequired" &&
      error.payload.value.licenses.map(({ name, text, sha256 }) => [name, text, sha256.length]),
    [
      ["COPYING", "Share.\n", 64],
      ["LICENSE.md", "Be kind.\n", 64],
    ],
  );
  await expectNothingLeft(t, daemon);
  t.is((await apps.installApp({ spec: dir, licenseAck: true })).state, "STOPPED");
});

test("an ID in two sources is ambiguous", async (t) => {
  await using daemon = await startDaemon({
    config: '[[sources]]\nname = "mine"\nurl = "./mine"\n[[sources]]\nname = "other"\nurl = "./other"\n',
  });
  for (const name of ["mine", "other"]) {
    await writePackage(join(daemon.dir, name, "web"), await freePort());
    await writeFile(
      join(daemon.dir, name, "index.yaml"),
      `packages:\n  web: { directory: web, name: Web of ${name}, summary: From ${name} }\n`,
    );
  }
  const apps = daemon.client(AppService, protocolOf(import.meta.url));
  const error = await errorOf(apps.installApp({ spec: "web" }));
  t.like(error, { code: "FailedPrecondition", reason: "ambiguous" });
  t.deepEqual(
    error.payload.case === "ambiguous" &&
      error.payload.value.candidates.map(({ spec, source }) => [spec, source]),
    [
      ["mine/web", "mine"],
      ["other/web", "other"],
    ],
  );
  await expectNothingLeft(t, daemon);
  t.is((await apps.installApp({ spec: "other/web" })).origin?.source, "other");
  t.is((await apps.installApp({ spec: "web", source: "mine" })).id, "web-2");
});

for (const protocol of protocols) {
  test(`a long license is shown with its first 64 KiB, over gRPC with what fits in trailers (${protocol})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService, protocol);
    const dir = join(daemon.dir, "package");
    const text = "Do as you like. ".repeat(4096);
    const shown = protocol === "grpc" ? `${text.slice(0, 4095)}…` : text;
    await writePackage(dir, await freePort(), { files: { LICENSE: `${text}And more.\n` } });
    const calls: (Promise<unknown> | AsyncIterable<unknown>)[] = [apps.installApp({ spec: dir })];
    // REST has no route for svc's streams.
    if (protocol !== "rest") calls.push(apps.installAppStream({ spec: dir }));
    for (const call of calls) {
      const error = await errorOf(call);
      t.like(error, { code: "FailedPrecondition", reason: "license_required" });
      const [license] = error.payload.case === "licenseRequired" ? error.payload.value.licenses : [];
      t.is(license?.text, shown);
      t.is(license?.sha256.length, 64);
    }
    await expectNothingLeft(t, daemon);
  });
}

test("a failed build leaves nothing and shows its last lines", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const manifest = `id: broken
name: Broken
version: "1.0.0"
process:
  exec: [node, server.mjs]
  build:
    - exec: [sh, -c, "echo step one"]
    - exec: [sh, -c, "echo about to fail; echo on stderr >&2; exit 7"]
`;
  await writeFile(join(dir, "svc.yaml"), manifest);
  const error = await errorOf(
    daemon.client(AppService, protocolOf(import.meta.url)).installApp({ spec: dir }),
  );
  t.like(error, { code: "FailedPrecondition", reason: "build_failed" });
  t.true(error.payload.case === "commandFailed" && error.payload.value.exitCode === 7);
  t.true(error.payload.case === "commandFailed" && error.payload.value.lastLines.includes("about to fail"));
  await expectNothingLeft(t, daemon);
});

const bad: Readonly<Record<string, { request: object; reason: string; field?: string }>> = {
  "no spec": { request: {}, reason: "invalid_request", field: "spec" },
  "an over-long spec": { request: { spec: "x".repeat(2049) }, reason: "invalid_request", field: "spec" },
  "branch and tag": {
    request: { spec: "https://example.invalid/x.git", branch: "a", tag: "b" },
    reason: "invalid_request",
    field: "tag",
  },
  "an unknown id": { request: { spec: "nothing-of-that-name" }, reason: "not_found" },
  "a remote helper": { request: { spec: "ext::sh -c id" }, reason: "invalid_request", field: "spec" },
  "an option": { request: { spec: "--upload-pack=id" }, reason: "invalid_request", field: "spec" },
  "a missing directory": { request: { spec: "/nonexistent/package" }, reason: "no_manifest" },
};

for (const [name, { request, reason, field }] of Object.entries(bad)) {
  test(`${name} is rejected`, async (t) => {
    const daemon = await emptyDaemon();
    for (const protocol of protocols) {
      const error = await errorOf(daemon.client(AppService, protocol).installApp(request));
      t.is(error.reason, reason, `${protocol}: ${error.message}`);
      if (field !== undefined) {
        const fields =
          error.payload.case === "invalidRequest" ? error.payload.value.violations.map((v) => v.field) : [];
        t.true(fields.includes(field), `${protocol}: ${String(fields)}`);
      }
    }
    await expectNothingLeft(t, daemon);
  });
}

test("settings that the package rejects prevent its installation", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const error = await errorOf(
    daemon.client(AppService).installApp({ spec: dir, settings: { port: 70_000, nothing: 1 } }),
  );
  t.is(error.reason, "invalid_request");
  await expectNothingLeft(t, daemon);
});

test("branch and tag select the version of a package in a Git repository", async (t) => {
  const daemon = await emptyDaemon();
  const port = await freePort();
  const apps = daemon.client(AppService);
  const spec = await writeRepository(join(daemon.dir, "web.git"), port, [
    { version: "1.0.0" },
    { version: "1.2.0" },
    { version: "2.0.0-rc.1" },
  ]);
  t.is((await apps.installApp({ spec })).version, "v1.2.0", "the newest, and not a pre-release");
  t.is((await apps.installApp({ spec, tag: "v1.0.0" })).version, "v1.0.0");
  const tracked = await apps.installApp({ spec, branch: "main" });
  t.like(tracked.origin, { branch: "main", tag: "" });
  t.regex(tracked.version, /^[0-9a-f]{7,12}$/);
  t.like(await apps.upgradeApp({ id: tracked.id }), { upToDate: true });
  t.like(await apps.upgradeApp({ id: "web-2", version: "v1.2.0" }), { from: "v1.0.0", to: "v1.2.0" });
  t.deepEqual(
    (await apps.listApps({})).apps.map(({ id }) => id),
    ["web", "web-2", "web-3"],
  );
});

test("a package that needs systemd explains it on hosts without systemd", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await mkdir(dir);
  await writeFile(
    join(dir, "svc.yaml"),
    'id: box\nname: Box\nversion: "1"\nservice: { unit: box.service }\n',
  );
  await writeFile(join(dir, "box.service"), "[Service]\nExecStart=/bin/true\n");
  t.like(await errorOf(daemon.client(AppService).installApp({ spec: dir })), {
    code: "FailedPrecondition",
    reason: "not_possible",
  });
  await expectNothingLeft(t, daemon);
});

test("a package without settings has a null schema and rejects any value", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), {
    files: { "svc.yaml": 'id: plain\nname: Plain\nversion: "1"\nprocess: { exec: [node, server.mjs] }\n' },
  });
  for (const protocol of protocols) {
    const apps = daemon.client(AppService, protocol);
    const { id } = await apps.installApp({ spec: dir });
    const { schema, values } = await apps.getAppSettings({ id });
    t.is(schema?.kind.case, "nullValue", protocol);
    t.deepEqual(values, {}, protocol);
    t.is(
      (await errorOf(apps.updateAppSettings({ id, values: { a: 1 } }))).reason,
      "invalid_request",
      protocol,
    );
    // An app that does not run as a container has no image.
    t.deepEqual(
      { ...(await apps.getAppImage({ id })), $typeName: "" },
      { $typeName: "", services: [] } as never,
      protocol,
    );
    t.is((await errorOf(apps.repullApp({ id }))).reason, "pinned_image", protocol);
  }
});

test("a license that is a link must be acknowledged, too", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), { files: { "legal.txt": "Be kind.\n" } });
  await symlink("legal.txt", join(dir, "LICENSE"));
  t.is((await errorOf(daemon.client(AppService).installApp({ spec: dir }))).reason, "license_required");
  await expectNothingLeft(t, daemon);
});

// The name that a user chooses is the ID of the app.

const rootTest = isRoot ? test : test.skip;
const nobody = 65534;

const taken = (name: string, free: string) => ({
  code: "AlreadyExists",
  reason: "already_exists",
  message: `name "${name}" is taken; try "${free}"`,
});

async function daemonWithPackage() {
  const daemon = await emptyDaemon();
  const spec = join(daemon.dir, "package");
  await writePackage(spec, await freePort());
  return { daemon, spec, apps: daemon.client(AppService) };
}

test("an app that is installed with a name has it as its ID", async (t) => {
  const { spec, apps } = await daemonWithPackage();
  t.like(await apps.installApp({ spec, name: "blog" }), { id: "blog", name: "blog", packageId: "web" });
  t.is((await apps.getApp({ id: "blog" })).name, "blog");
});

test("an app that is installed without a name has the ID of its package, and further ones a number", async (t) => {
  const { spec, apps } = await daemonWithPackage();
  const installed = [await apps.installApp({ spec }), await apps.installApp({ spec })];
  const names = installed.map(({ id, name }) => [id, name]);
  t.deepEqual(names, [
    ["web", "Test web server"],
    ["web-2", "web-2"],
  ]);
});

test("a name that an app has as its ID is rejected with a free one", async (t) => {
  const { daemon, spec, apps } = await daemonWithPackage();
  await apps.installApp({ spec, name: "blog" });
  t.like(await errorOf(apps.installApp({ spec, name: "blog" })), taken("blog", "blog-2"));
  t.like(await errorOf(apps.cloneApp({ id: "blog", name: "blog" })), taken("blog", "blog-2"));
  const backups = daemon.client(BackupService);
  const { results } = await backups.createBackup({ appId: "blog", storages: ["local"] });
  const ref = { appId: "blog", storage: "local", name: results[0]?.name ?? "" };
  const restore = backups.restoreBackup({ ...ref, asNew: true, newName: "blog" });
  t.like(await errorOf(restore), taken("blog", "blog-2"));
  t.deepEqual(
    (await apps.listApps({})).apps.map(({ id }) => id),
    ["blog"],
  );
});

test("a clone and a restore as a new app have the name that is chosen as their ID", async (t) => {
  const { daemon, spec, apps } = await daemonWithPackage();
  await apps.installApp({ spec });
  t.like(await apps.cloneApp({ id: "web", name: "copy" }), { id: "copy", name: "copy" });
  t.like(await apps.cloneApp({ id: "web" }), { id: "web-2", name: "web-2" });
  const backups = daemon.client(BackupService);
  const { results } = await backups.createBackup({ appId: "web", storages: ["local"] });
  const ref = { appId: "web", storage: "local", name: results[0]?.name ?? "" };
  t.is((await backups.restoreBackup({ ...ref, asNew: true, newName: "old" })).appId, "old");
  t.like(await apps.getApp({ id: "old" }), { name: "old" });
});

test("an app is renamed, and its ID stays", async (t) => {
  const { daemon, spec, apps } = await daemonWithPackage();
  await apps.installApp({ spec });
  await apps.installApp({ spec, name: "blog" });
  t.like(await apps.renameApp({ id: "web", name: "Front page" }), { id: "web", name: "Front page" });
  t.like(await apps.getApp({ id: "web" }), { id: "web", name: "Front page" });
  // The same name again, and the app's own ID, are free for it.
  t.like(await apps.renameApp({ id: "web", name: "Front page" }), { name: "Front page" });
  t.like(await apps.renameApp({ id: "web", name: "web" }), { name: "web" });
  t.like(await errorOf(apps.renameApp({ id: "web", name: "blog" })), {
    reason: "already_exists",
    message: 'name "blog" is taken by app "blog"; choose another one',
  });
  for (const name of ["", " web", "web ", "two\nlines", "x".repeat(65)])
    t.like(await errorOf(apps.renameApp({ id: "web", name })), { reason: "invalid_request" }, name);
  t.like(await errorOf(apps.renameApp({ id: "nothing", name: "x" })), { reason: "not_found" });

  const svc = (...args: string[]) => runSvc(["--socket", daemon.socketPath, ...args]);
  t.is((await svc("rename", "web", "Home")).stdout, 'web is now named "Home". Its ID stays web.\n');
  t.regex((await svc("ls", "--columns", "id,name")).stdout, /^web +Home$/m);
});

test("two concurrent installs with one name create one app", async (t) => {
  const { spec, apps } = await daemonWithPackage();
  const results = await Promise.allSettled(
    [1, 2, 3].map(async () => apps.installApp({ spec, name: "blog" })),
  );
  t.is(results.filter(({ status }) => status === "fulfilled").length, 1);
  for (const result of results) {
    if (result.status === "rejected")
      t.like(await errorOf(Promise.reject(result.reason as Error)), { reason: "already_exists" });
  }
});

for (const name of ["My Blog", "-blog", "blog.v2", "b".repeat(65), "Ümlaut", "blog\n"]) {
  test(`the name ${JSON.stringify(name)} is not valid`, async (t) => {
    const { spec, apps } = await daemonWithPackage();
    const calls = [apps.installApp({ spec, name }), apps.cloneApp({ id: "web", name })];
    for (const call of calls) {
      t.like(await errorOf(call), { code: "InvalidArgument", reason: "invalid_request" });
    }
    t.deepEqual((await apps.listApps({})).apps, []);
  });
}

test("a name of 64 characters is valid", async (t) => {
  const { spec, apps } = await daemonWithPackage();
  const name = "7".repeat(64);
  t.is((await apps.installApp({ spec, name })).id, name);
  t.is((await apps.startApp({ id: name })).state, "RUNNING");
  const { message } = await errorOf(apps.installApp({ spec, name }));
  t.is(message, `name "${name}" is taken; choose another one`);
});

rootTest(
  `a name of another user's app is taken, and the suggestion reveals no number${needsRoot}`,
  async (t) => {
    const { daemon, spec, apps } = await daemonWithPackage();
    await using user = await daemon.as(nobody);
    for (const name of ["blog", "blog-2", "blog-3"]) await apps.installApp({ spec, name });
    const own = user.client(AppService);
    t.like(await errorOf(own.installApp({ spec, name: "blog" })), taken("blog", "blog-nobody"));
    t.is((await own.installApp({ spec, name: "blog-nobody" })).id, "blog-nobody");
  },
);

test("the CLI installs, shows and clones by name", async (t) => {
  const { daemon, spec } = await daemonWithPackage();
  const svc = (...args: string[]) => runSvc(["--socket", daemon.socketPath, ...args]);
  const installed = await svc("install", spec, "--name", "blog");
  t.regex(installed.stdout, /^Installed blog 1\.0\.0 on port \d+\. Start it: svc start blog\n$/);
  t.regex((await svc("app", "info", "blog")).stdout, /blog/);
  t.regex((await svc("app", "clone", "blog", "--name", "blog-test")).stdout, /^Cloned blog to blog-test /);
  const again = await svc("install", spec, "--name", "blog");
  t.like(again, { exitCode: 5, stderr: 'svc: name "blog" is taken; try "blog-2"\n' });
  const invalid = await svc("install", spec, "--name", "My Blog");
  t.is(invalid.exitCode, 2);
  t.regex(invalid.stderr, /name must be lower-case letters, digits and hyphens/);
});

// Copying an app with its data between two nodes: two daemons with their own stores.

const sshTest = needsSsh === "" ? test : test.skip;

sshTest(`an app is copied from one node to another, over ssh, with its data${needsSsh}`, async (t) => {
  await using here = await startDaemon();
  await using there = await startDaemon();
  await using server = await startSshServer();
  const home = await mkdtemp(join(tmpdir(), "svc-copy-"));
  t.teardown(() => rm(home, { recursive: true }));
  const svc = (...args: string[]): Promise<SvcRun> =>
    runSvc(args, { host: { home, uid: process.getuid?.() ?? 0, env: { SVC_SSH: server.ssh } } });
  await svc("node", "add", "near", `unix://${here.socketPath}`);
  await svc("node", "add", "attic", `ssh://root@127.0.0.1:${server.port}${there.socketPath}`);
  await svc("node", "use", "near");
  const dir = join(here.dir, "package");
  await writePackage(dir, await freePort());
  const apps = here.client(AppService);
  await apps.installApp({ spec: dir, settings: { greeting: "moin" } });
  await apps.startApp({ id: "web" });
  const written = await svc(
    "app",
    "shell",
    "web",
    "--",
    "sh",
    "-c",
    "echo precious > ../data/notes.txt || echo precious > data/notes.txt",
  );
  t.is(written.exitCode, 0, written.stderr);

  const plan = await svc("app", "copy", "web", "--to", "attic", "--dry-run");
  t.is(plan.exitCode, 0, plan.stderr);
  t.regex(plan.stdout, /^web would be copied to attic \(.* are free there\); its owner there is root$/m);
  t.deepEqual((await there.client(AppService).listApps({})).apps, []);

  const accepts = "--accept-permissions";
  const copied = await svc("app", "copy", "web", "--to", "attic", accepts);
  t.is(copied.exitCode, 0, copied.stderr);
  t.regex(copied.stdout, /^Copied web to attic as web \(.*\)\. Start it: svc -N attic start web$/m);
  t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
  t.is((await there.client(AppService).getApp({ id: "web" })).state, "STOPPED");
  t.is((await svc("-N", "attic", "file", "cat", "web:data/notes.txt")).stdout, "precious\n");
  const { values } = await there.client(AppService).getAppSettings({ id: "web" });
  t.is(values?.["greeting"], "moin");

  const again = await svc("app", "copy", "web", "--to", "attic", "--json", accepts);
  t.is(again.exitCode, 0, again.stderr);
  t.like(JSON.parse(again.stdout), { id: "web-2", node: "attic" });
  for (const daemon of [here, there]) {
    const { backups } = await daemon.client(BackupService).listBackups({});
    t.deepEqual(backups, [], "no archive is left");
  }
  t.regex(
    (await svc("app", "copy", "web", "--to", "near")).stderr,
    /web is already on near; .* svc clone web/,
  );
  t.regex(
    (await svc("app", "copy", "web", "--to", "nobody")).stderr,
    /no node "nobody"; list them with: svc node list/,
  );
  t.is((await svc("app", "copy", "nope", "--to", "attic")).exitCode, 3);

  await there.stop();
  const lost = await svc("app", "copy", "web", "--to", "attic");
  t.is(lost.exitCode, 6, lost.stderr);
  t.deepEqual((await here.client(BackupService).listBackups({})).backups, []);
  t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
});
