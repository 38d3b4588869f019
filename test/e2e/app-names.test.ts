/** The name that a user chooses is the ID of the app. */
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { freePort, writePackage } from "../support/packages.ts";

const emptyDaemon = sharedDaemon();
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
  t.regex(installed.stdout, /^Installed blog 1\.0\.0 on port \d+\. Start it: svc app start blog\n$/);
  t.regex((await svc("app", "info", "blog")).stdout, /blog/);
  t.regex((await svc("app", "clone", "blog", "--name", "blog-test")).stdout, /^Cloned blog to blog-test /);
  const again = await svc("install", spec, "--name", "blog");
  t.like(again, { exitCode: 5, stderr: 'svc: name "blog" is taken; try "blog-2"\n' });
  const invalid = await svc("install", spec, "--name", "My Blog");
  t.is(invalid.exitCode, 2);
  t.regex(invalid.stderr, /name must be lower-case letters, digits and hyphens/);
});
