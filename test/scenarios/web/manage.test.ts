/** Upgrade, copy, removal and long operations from the page: their questions, messages and results. */
import assert from "node:assert/strict";
import { mkdir, writeFile, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { toBinary } from "@bufbuild/protobuf";
import type { ExecutionContext } from "ava";
import { AppSchema, AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { type Operation, OperationService } from "../../../gen/svc/v1/operation_pb.ts";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { writeGated } from "../../support/gated-package.ts";
import { addVersion, freePort, writePackage, writeRepository } from "../../support/packages.ts";
import { expectAccessible } from "../../web/support/accessibility.ts";
import { leaveBeforePaint } from "../../web/support/leave-before-paint.ts";
import { browserTest, needsBrowser, openView, shareNode } from "../../web/support/shared-node.ts";

// Upgrade, copy and removal from the page: their questions, messages and results; alerts, operations in progress, and
// disk usage.

const node = shareNode();

/** Leaves the app's view while the checks before its upgrade are in progress. */
async function leaveAnUpgrade(t: ExecutionContext): Promise<void> {
  const { page, asked } = await openView(node.browser, node.daemon, "#/apps/web");
  const [isRead, isLeft] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
  await page.getByText("Upgrade or downgrade").click();
  await page.route("**/svc.v1.AppService/GetAppSettings", async (route) => {
    isRead.resolve(undefined);
    await isLeft.promise;
    // Nothing may wait for it any more.
    await route.fulfill({ contentType: "application/proto", body: "" }).catch(() => undefined);
  });
  await page.getByRole("button", { name: "Upgrade", exact: true }).click();
  await isRead.promise;
  await leaveBeforePaint(page, "#/apps");
  await page.getByText("1 app").waitFor();
  isLeft.resolve(undefined);
  await page.unrouteAll({ behavior: "wait" });
  // A follow-up request would have been sent before the response to this one.
  await page.evaluate("fetch('/', { cache: 'no-store' }).then(() => undefined)");
  t.deepEqual(
    asked.filter((address) => address.endsWith("/UpgradeApp")),
    [],
    "leaving the view upgrades nothing",
  );
  await page.context().close();
}

browserTest(
  `an app is upgraded, copied and removed, and each asks for its requirements first${needsBrowser}`,
  async (t) => {
    t.timeout(280_000);
    const { daemon, browser } = node;
    const [repository, port] = [join(daemon.dir, "repository"), await freePort()];
    const spec = await writeRepository(repository, port, [
      { version: "1.0.0", name: "<img src=x onerror=alert(1)>\u202egnp" },
    ]);
    const apps = daemon.client(AppService);
    await apps.installApp({ spec });
    await apps.startApp({ id: "web" });
    await addVersion(repository, port, {
      version: "2.0.0",
      files: { LICENSE: "Be <i>kind</i>." },
      settings: "colour: { type: string, default: blue, env: COLOUR }",
    });
    await leaveAnUpgrade(t);

    const { page, complaints, asked } = await openView(browser, daemon, "#/apps/web");
    const upgrade = page.getByRole("button", { name: "Upgrade", exact: true });
    await page
      .getByRole("heading", { name: "<img src=x onerror=alert(1)>\\u202egnp", exact: true })
      .waitFor();
    await page.getByText("Upgrade or downgrade").click();
    await page.setViewportSize({ width: 1200, height: 320 });
    await upgrade.click();
    await page.getByText("Consent required").waitFor();
    await eventually(async () => {
      const { y = 0, height = 0 } = (await page.getByRole("alert").boundingBox()) ?? {};
      // Layout has fractions of a pixel.
      assert.ok(y > 0 && Math.floor(y + height) <= 320, `the question is not visible: ${y}, ${height}`);
    });
    await page.setViewportSize({ width: 1200, height: 900 });
    t.like(
      await apps.getApp({ id: "web" }),
      { version: "v1.0.0", state: "RUNNING" },
      "nothing changes without a confirmation",
    );
    await page.getByText("LICENSE", { exact: true }).click();
    await page.getByText("Be <i>kind</i>.").waitFor();
    await page.getByLabel("Version").fill("v1.0.0");
    await page.getByRole("button", { name: "Accept and continue" }).click();
    await page.getByText("Upgraded from v1.0.0 to v2.0.0.").waitFor();
    await page.getByText("New setting colour, default blue").waitFor();
    await page.locator('[data-state="RUNNING"]').first().waitFor();
    t.like(await apps.getApp({ id: "web" }), { version: "v2.0.0", state: "RUNNING" });
    await page.getByRole("button", { name: "Roll back to v1.0.0" }).click();
    await page.getByText("Rolled back from v2.0.0 to v1.0.0.").waitFor();
    await page.getByRole("button", { name: "Upgrade to v2.0.0 again" }).waitFor();
    await page.getByText("Removed setting colour").waitFor();
    t.like(await apps.getApp({ id: "web" }), { version: "v1.0.0", state: "RUNNING" });
    await page.getByLabel("Version").fill("v9.9.9");
    await upgrade.click();
    await page.getByText("Version unchanged: v1.0.0.").waitFor();
    await page.getByRole("alert").waitFor();
    t.like(await apps.getApp({ id: "web" }), { version: "v1.0.0", state: "RUNNING" });

    await page.getByText("Copy with data").click();
    await page.getByLabel("Name of the copy").fill("A copy");
    await page.getByText("Use lower-case letters, digits and hyphens").waitFor();
    await page.getByLabel("Name of the copy").fill("web");
    await page.getByText("Another app has this name").waitFor();
    await page.getByLabel("Name of the copy").fill("web-copy");
    await page.getByRole("button", { name: "Copy", exact: true }).click();
    await page.getByText("Created web-copy").waitFor();
    t.like(await apps.getApp({ id: "web-copy" }), { name: "web-copy", state: "STOPPED" });

    const dialog = page.getByRole("dialog");
    const remove = page.getByRole("button", { name: "Remove", exact: true });
    await remove.click();
    await dialog.getByText("Remove <img src=x onerror=alert(1)>\\u202egnp?").waitFor();
    await dialog.getByText("This cannot be undone").waitFor();
    await dialog.getByRole("button", { name: "Remove" }).click({ force: true });
    await dialog.getByLabel("To confirm, type").fill("we");
    await page.keyboard.press("Enter");
    t.is(await dialog.count(), 1, "it still asks");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    t.is((await apps.listApps({})).apps.length, 2, "without the typed name nothing is removed");
    await remove.click();
    await dialog.getByLabel("To confirm, type").waitFor();
    // Like Escape, and as quickly as a key can follow: before the browser reports that it is closed.
    await page.evaluate(`(async () => {
      const dialog = document.querySelector("dialog");
      const remove = [...document.querySelectorAll("main button")].find((one) => one.textContent === "Remove");
      const isShut = new Promise((resolve) => dialog.addEventListener("close", resolve));
      dialog.requestClose();
      for (let turn = 0; turn < 20; turn++) await undefined;
      remove.click();
      await isShut;
    })()`);
    await dialog.getByLabel("To confirm, type").waitFor();
    t.is(await page.locator("dialog").count(), 1, "a new dialog right after it is answered");
    await page.keyboard.press("Escape");
    await page.locator("dialog").waitFor({ state: "detached" });

    const [reached, answered] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
    await page.route("**/svc.v1.BackupService/CreateBackup", async (route) => {
      reached.resolve(undefined);
      await answered.promise;
      // Nothing may wait for it any more.
      await route.fulfill({ contentType: "application/proto", body: "" }).catch(() => undefined);
    });
    await remove.click();
    await dialog.getByLabel("Back up first").check();
    await dialog.getByLabel("To confirm, type").fill("web");
    await page.keyboard.press("Enter");
    await reached.promise;
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await remove.click();
    answered.resolve(undefined);
    await page.unrouteAll({ behavior: "wait" });
    // A follow-up request would have been sent before the response to this one.
    await page.evaluate("fetch('/', { cache: 'no-store' }).then(() => undefined)");
    await dialog.getByText(/files, settings and volumes: \d/).waitFor();
    t.is(await dialog.count(), 1, "a late response closes no other dialog");
    t.deepEqual(
      asked.filter((address) => address.endsWith("/RemoveApp")),
      [],
      "a dismissed action is not done",
    );
    t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
    await dialog.getByLabel("Back up first").uncheck();
    await dialog.getByLabel("To confirm, type").fill("web");
    await page.keyboard.press("Enter");
    await page.getByText("1 app").waitFor();
    t.deepEqual(
      (await apps.listApps({})).apps.map(({ id }) => id),
      ["web-copy"],
    );
    // Content that was about to be read may be gone by then.
    t.deepEqual(
      complaints.filter((text) => !/status of 404/.test(text)),
      [],
    );
  },
);

browserTest(`an app that is removed while it is read does not come back${needsBrowser}`, async (t) => {
  t.timeout(120_000);
  const { daemon, browser } = node;
  const apps = daemon.client(AppService);
  const install = async (id: string): Promise<void> => {
    const spec = join(daemon.dir, id);
    await writePackage(spec, await freePort(), { id, name: id });
    await apps.installApp({ spec });
  };
  await install("gone");
  const { page } = await openView(browser, daemon, "#/apps");
  const gone = page.getByText("gone", { exact: true }).first();
  await gone.waitFor();
  const [isRead, isRemoved] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
  const body = Buffer.from(toBinary(AppSchema, await apps.getApp({ id: "gone" })));
  await page.route("**/svc.v1.AppService/GetApp", async (route) => {
    isRead.resolve(undefined);
    await isRemoved.promise;
    await route.fulfill({ contentType: "application/proto", body });
  });
  await apps.updateAppSettings({ id: "gone", values: { greeting: "Moin" } });
  await isRead.promise;
  await apps.removeApp({ id: "gone" });
  await gone.waitFor({ state: "detached" });
  isRemoved.resolve(undefined);
  await page.unrouteAll({ behavior: "wait" });
  // The page shows the next change after the late response.
  await install("later");
  await page.getByText("later", { exact: true }).first().waitFor();
  t.is(await gone.count(), 0);
  await apps.removeApp({ id: "later" });
});

browserTest(
  `alerts appear as they occur, and an operation in progress is canceled${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const [apps, schedules] = [daemon.client(AppService), daemon.client(ScheduleService)];
    const [repository, port] = [join(daemon.dir, "slow"), await freePort()];
    await apps.installApp({
      spec: await writeRepository(repository, port, [{ id: "slow", version: "1.0.0" }]),
    });
    const manifest = 'migrate: { exec: [sleep, "3600"] }';
    await addVersion(repository, port, { id: "slow", version: "2.0.0", manifest });
    await apps.listUpdates({});
    const { page, complaints } = await openView(browser, daemon, "#/");
    const attention = page.getByRole("region", { name: "Needs attention" }).getByRole("listitem");
    await attention
      .filter({ hasText: "Version v2.0.0 is available.", has: page.locator('a[href="#/apps/slow"]') })
      .waitFor();

    const loops = join(daemon.dir, "loops");
    await writePackage(loops, await freePort(), {
      id: "loops",
      files: { "server.mjs": "setTimeout(() => process.exit(3), 3_000);" },
    });
    await apps.installApp({ spec: loops });
    await apps.startApp({ id: "loops" });
    await attention
      .filter({
        hasText: "Crash loop: the program exited with code 3.",
        has: page.locator('a[href="#/apps/loops"]'),
      })
      .waitFor();
    await apps.stopApp({ id: "loops" });
    await attention.filter({ has: page.locator('a[href="#/apps/loops"]') }).waitFor({ state: "detached" });

    const go = join(daemon.dir, "go");
    const action = { type: "shell", command: `test -e ${go}` };
    await schedules.upsertSchedule({ id: "moody", trigger: "daily@03:07", action });
    await schedules.runSchedule({ id: "moody" });
    const moody = attention.filter({ hasText: "moody" });
    await moody.locator('[data-run="FAILED"]').waitFor();
    await writeFile(go, "");
    await schedules.runSchedule({ id: "moody" });
    await moody.waitFor({ state: "detached" });

    const upgrade = errorOf(apps.upgradeApp({ id: "slow" }));
    const underWay = page.getByRole("region", { name: "Operations", exact: true });
    const dialog = page.getByRole("dialog");
    await underWay.getByRole("button", { name: "Cancel" }).click();
    await dialog.getByText("Cancel this operation?").waitFor();
    await expectAccessible(t, page, "a question about what is under way");
    await dialog.getByRole("button", { name: "Go back" }).click();
    t.is((await apps.getApp({ id: "slow" })).state, "UPGRADING", "an open dialog is not an answer");
    await underWay.getByRole("button", { name: "Cancel" }).click();
    await dialog.getByRole("button", { name: "Cancel", exact: true }).click();
    t.like(await upgrade, { reason: "canceled" });
    await underWay.waitFor({ state: "detached" });
    t.like(await apps.getApp({ id: "slow" }), { version: "v1.0.0", state: "STOPPED", operation: undefined });
    t.deepEqual(complaints, []);
  },
);

browserTest(`the disk usage of an app is shown as bars that can be opened${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "roomy");
  await writePackage(dir, await freePort(), { id: "roomy" });
  const { directory } = await daemon.client(AppService).installApp({ spec: dir });
  const hostile = "<img src=x onerror=alert(1)>\u202egnp";
  await mkdir(join(directory, "data", hostile), { recursive: true });
  await writeFile(join(directory, "data", hostile, "large"), Buffer.alloc(300 * 1024, 1));
  const { page, complaints } = await openView(browser, daemon, "#/apps/roomy");
  await page.getByText("Show disk usage").click();
  await page.getByText("Data and logs").waitFor();
  const bars = page.locator(".usage");
  await bars.getByText("data", { exact: true }).click();
  const shown = bars.locator(".usage summary").filter({ hasText: "<img src=x onerror=alert(1)>\\u202egnp" });
  await shown.getByText(/^30\d KiB$/).waitFor();
  t.is(await page.locator("main img").count(), 0);
  await expectAccessible(t, page, "what takes the room of an app");
  await page.getByRole("link", { name: "Open folder" }).first().click();
  await page.getByRole("heading", { name: "data" }).waitFor();
  await page.getByText("Disk usage").click();
  await bars.locator("summary").filter({ hasText: "<img" }).waitFor();
  await expectAccessible(t, page, "what takes the room of a directory");
  t.deepEqual(complaints, []);
});

// Long operations on the page: they belong to the daemon, whatever happens to the page.

browserTest(
  `an install continues when its view is left or the page is reloaded${needsBrowser}`,
  async (t) => {
    t.timeout(120_000);
    const { daemon, browser } = node;
    const operations = daemon.client(OperationService);
    const running = async () => (await operations.listOperations({ state: "RUNNING" })).operations;
    const { spec, open } = await writeGated(t, daemon, "gated");
    const { page } = await openView(browser, daemon, "#/install");
    await page.getByLabel("Package", { exact: true }).fill(spec);
    await page.getByRole("button", { name: "Install", exact: true }).click();
    await page.getByText("one", { exact: false }).first().waitFor();

    await page.evaluate("location.hash = '#/apps'");
    await page.getByText(/^\d+ apps?$/).waitFor();
    t.is((await running()).length, 1, "the view was left");
    await page.reload();
    await page.context().close();
    t.is((await running()).length, 1, "the page was reloaded and closed");

    const { page: later } = await openView(browser, daemon, "#/apps/gated");
    const card = later.getByRole("region", { name: "Operations", exact: true });
    await card.getByText("install gated").waitFor();
    await open();
    await later.locator('[data-state="STOPPED"]').first().waitFor();
    await card.waitFor({ state: "detached" });
    t.is((await daemon.client(AppService).getApp({ id: "gated" })).state, "STOPPED");
  },
);

browserTest(`an operation is canceled from the page, which asks first${needsBrowser}`, async (t) => {
  t.timeout(120_000);
  const { daemon, browser } = node;
  const { spec } = await writeGated(t, daemon, "canceled");
  const { detached } = await daemon.client(AppService).installApp({ spec, detach: true });
  const { page } = await openView(browser, daemon, "#/overview");
  const card = page.getByRole("region", { name: "Operations", exact: true });
  await card.getByText("install canceled").waitFor();
  await page.getByRole("region", { name: "Apps", exact: true }).getByText("Installing").waitFor();
  t.is(
    await page
      .getByRole("main")
      .getByRole("button", { name: /^Cancel/ })
      .count(),
    1,
  );
  await card.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel", exact: true }).click();
  await eventually(async () => {
    const { state } = await daemon.client(OperationService).getOperation({ id: detached?.id ?? "" });
    assert.equal(state, "CANCELED");
  }, 20_000);
  await card.waitFor({ state: "detached" });
  t.false((await daemon.client(AppService).listApps({})).apps.some(({ id }) => id === "canceled"));
});

browserTest(
  `a restore of one file and the backup before a removal continue when their view is left${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
    const operations = daemon.client(OperationService);
    const [stopGate, dumpGate] = [join(daemon.dir, "stop-gate"), join(daemon.dir, "dump-gate")];
    const wait = (gate: string) => `until [ -e ${gate} ]; do sleep 0.05; done`;
    const dir = join(daemon.dir, "held");
    await writePackage(dir, await freePort(), {
      id: "held",
      manifest: `stop: { grace: 5m }\nbackup: { dump: { exec: ${JSON.stringify(["sh", "-c", wait(dumpGate)])} } }\n`,
      files: {
        "server.mjs": `import { existsSync } from "node:fs";
process.on("SIGTERM", () => setInterval(() => existsSync("${stopGate}") && process.exit(0), 50));
setInterval(() => undefined, 3_600_000);
`,
      },
    });
    const { directory } = await apps.installApp({ spec: dir });
    t.teardown(() => Promise.all([stopGate, dumpGate].map((gate) => writeFile(gate, ""))));
    await mkdir(join(directory, "data"), { recursive: true });
    const file = join(directory, "data/notes.txt");
    await writeFile(file, "first");
    await writeFile(dumpGate, "");
    await backups.createBackup({ appId: "held" });
    await rm(dumpGate);
    const [archive] = (await backups.listBackups({ appId: "held" })).backups;
    await writeFile(file, "second");
    await apps.startApp({ id: "held" });

    const newest = async (kind: string): Promise<Operation> => {
      const { operations: all } = await operations.listOperations({ appId: "held" });
      const found = all.find((operation) => operation.kind === kind);
      assert.ok(found);
      return found;
    };
    const isUnderWay = (kind: string) =>
      eventually(async () => {
        const { state, detached } = await newest(kind);
        assert.deepEqual({ state, detached }, { state: "RUNNING", detached: true });
      }, 60_000);
    const ends = (kind: string) =>
      eventually(async () => {
        const { state, error } = await newest(kind);
        assert.equal(state, "SUCCEEDED", error?.message);
      }, 60_000);
    const { page } = await openView(browser, daemon, `#/backups/held/local/${archive?.name ?? ""}/data`);
    const dialog = page.getByRole("dialog");
    await page
      .getByRole("row")
      .filter({ hasText: "notes.txt" })
      .getByRole("button", { name: "Restore" })
      .click();
    await dialog.getByRole("button", { name: "Restore" }).click();
    await dialog.waitFor({ state: "detached" });
    await isUnderWay("restore");
    await page.evaluate("location.hash = '#/apps'");
    await page.getByRole("heading", { name: "Apps" }).waitFor();
    await page.reload();
    await page.getByRole("heading", { name: "Apps" }).waitFor();
    t.is((await newest("restore")).state, "RUNNING", "the view was left");
    await writeFile(stopGate, "");
    await ends("restore");
    t.is(await readFile(file, "utf8"), "first");

    await page.evaluate("location.hash = '#/apps/held'");
    await page.locator('[data-state="RUNNING"]').first().waitFor();
    await page.getByRole("button", { name: "Remove", exact: true }).click();
    await dialog.getByLabel("Back up first").check();
    await dialog.getByLabel("To confirm, type").fill("held");
    await dialog.getByRole("button", { name: "Remove" }).click();
    await isUnderWay("backup");
    await page.evaluate("location.hash = '#/apps'");
    await page.getByRole("heading", { name: "Apps" }).waitFor();
    await page.reload();
    await page.getByRole("heading", { name: "Apps" }).waitFor();
    t.is((await newest("backup")).state, "RUNNING", "the view was left");
    await writeFile(dumpGate, "");
    await ends("backup");
    t.is((await backups.listBackups({ appId: "held" })).backups.length, 2);
    t.is((await apps.getApp({ id: "held" })).state, "RUNNING", "leaving the view removes nothing");

    await page.evaluate("location.hash = '#/apps/held'");
    await page.getByRole("button", { name: "Remove", exact: true }).click();
    await dialog.getByLabel("Back up first").check();
    await dialog.getByLabel("To confirm, type").fill("held");
    await dialog.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("heading", { name: "Apps" }).waitFor();
    t.false((await apps.listApps({})).apps.some(({ id }) => id === "held"));
    t.is((await backups.listBackups({ appId: "held" })).backups.length, 3);
  },
);
