/** Long operations on the page: they belong to the daemon, whatever happens to the page. */
import assert from "node:assert/strict";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { type Operation, OperationService } from "../../../gen/svc/v1/operation_pb.ts";
import { eventually } from "../../support/eventually.ts";
import { writeGated } from "../../support/gated-package.ts";
import { browserTest, needsBrowser, openView, shareNode } from "../../web/support/shared-node.ts";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { freePort, writePackage } from "../../support/packages.ts";

const node = shareNode();

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
    await page.getByText("1 app").waitFor();
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
