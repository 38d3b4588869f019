/** Backups on the page, and its catalog with sources and credentials. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService, UpsertBackupStorageRequestSchema } from "../../../gen/svc/v1/backup_pb.ts";
import { CredentialService } from "../../../gen/svc/v1/credential_pb.ts";
import { SourceService } from "../../../gen/svc/v1/source_pb.ts";
import { needsRoot } from "../../support/daemon.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { expectAccessible } from "../../web/support/accessibility.ts";
import { browserTest, needsBrowser, openView, shareNode, usersTest } from "../../web/support/shared-node.ts";

// Backups on the page: created, verified, browsed, restored and deleted.

const node = shareNode();

browserTest(`an app is backed up, broken and restored from the page${needsBrowser}`, async (t) => {
  t.timeout(240_000);
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  const { directory } = await daemon.client(AppService).installApp({ spec: dir });
  const data = join(directory, "data");
  await mkdir(data, { recursive: true });
  const hostile = "<img src=x onerror=alert(1)>";
  await writeFile(join(data, hostile), "hostile");
  await writeFile(join(data, "notes.txt"), "first");
  const backups = daemon.client(BackupService);

  const { page, complaints } = await openView(browser, daemon, "#/");
  await page.getByRole("link", { name: "Backups", exact: true }).click();
  await page.getByRole("region", { name: "Storages" }).getByText("local").waitFor();
  const row = page.getByRole("row").filter({ hasText: "Test web server" });
  await row.getByText("Never").first().waitFor();
  await expectAccessible(t, page, "backups");
  await page.getByRole("button", { name: "Test" }).click();
  await page.getByText("listing, writing, reading and deleting work").waitFor();
  await row.getByRole("link", { name: "Test web server" }).click();
  await page.getByText("No backups yet.").waitFor();
  await page.getByRole("button", { name: "Back up now" }).click();
  await page.getByText("Backup created.").waitFor();
  t.is(await page.getByRole("link", { name: "Open app" }).getAttribute("href"), "#/apps/web");
  // The daemon's phases "read" and "push".
  const steps = page.getByRole("region", { name: "Progress" }).getByRole("listitem");
  t.deepEqual(await steps.allInnerTexts(), ["[1/2] Read", "[2/2] Upload – local"]);
  const [archive] = (await backups.listBackups({ appId: "web" })).backups;
  await page.getByRole("rowheader").getByRole("link").click();
  await page.getByRole("heading", { name: /^Backup of / }).waitFor();
  await page.getByText(archive!.name, { exact: true }).waitFor();

  await page.getByRole("button", { name: "Verify" }).click();
  await page.getByText(/entries are intact/).waitFor();
  t.truthy(
    (await backups.getBackup({ appId: "web", storage: "local", name: archive!.name })).archive?.verifiedAt,
  );
  const found = page.getByRole("region", { name: "Files" }).getByRole("rowheader");
  t.deepEqual(
    await found.allInnerTexts(),
    ["repo", "data", "volumes/media"],
    "a volume is recognized by its name",
  );
  await page.getByRole("link", { name: "data" }).click();
  await page.getByRole("row").filter({ hasText: hostile }).waitFor();
  t.is(await page.locator("main img").count(), 0);
  await expectAccessible(t, page, "an archive");
  const notes = page.getByRole("row").filter({ hasText: "notes.txt" });
  const download = page.waitForEvent("download");
  await notes.getByRole("button", { name: "Download" }).click();
  t.is(await readFile(await (await download).path(), "utf8"), "first");

  await writeFile(join(data, "notes.txt"), "second");
  await writeFile(join(data, "later.txt"), "later");
  await notes.getByRole("button", { name: "Restore" }).click();
  await page
    .getByRole("dialog")
    .getByText(/current content at this path/)
    .waitFor();
  t.is(await readFile(join(data, "notes.txt"), "utf8"), "second", "an open dialog is not an answer");
  await page.getByRole("dialog").getByRole("button", { name: "Restore" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.getByText("Restored data/notes.txt.").waitFor();
  t.is(await readFile(join(data, "notes.txt"), "utf8"), "first");
  t.is(await readFile(join(data, "later.txt"), "utf8"), "later", "only one file");

  await page.getByRole("button", { name: "Restore app" }).click();
  await page
    .getByRole("dialog")
    .getByText(/Newer data is lost/)
    .waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Restore app" }).click();
  await page.getByText(/^Restored: \d+ entries/).waitFor();
  t.is(await page.getByRole("link", { name: "Open app" }).getAttribute("href"), "#/apps/web");
  // The page shows it without a reload.
  await page.locator(".facts > div").filter({ hasText: "Last test restore" }).locator("time").waitFor();
  await t.throwsAsync(readFile(join(data, "later.txt"), "utf8"), { code: "ENOENT" });

  await page.getByRole("button", { name: "Restore as new app" }).click();
  await page.getByLabel("New app name").fill("second-life");
  await page.getByRole("dialog").getByRole("button", { name: "Restore as new app" }).click();
  await page.getByRole("heading", { name: "second-life" }).waitFor();
  t.is((await daemon.client(AppService).listApps({})).apps.length, 2);

  await page.goBack();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.getByText("No backups yet.").waitFor();
  t.deepEqual((await backups.listBackups({ appId: "web" })).backups, []);
  t.deepEqual(complaints, []);
});

browserTest(
  `policies and storages are set on the page, which never shows a secret again${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const dir = join(daemon.dir, "kept");
    await writePackage(dir, await freePort(), { id: "kept" });
    await daemon.client(AppService).installApp({ spec: dir });
    const backups = daemon.client(BackupService);
    const { page, complaints } = await openView(browser, daemon, "#/backups/kept");
    const card = page.getByRole("region", { name: "Automatic backups" });
    await card.getByText(/Storages\s*local\s*Test restores\s*none/).waitFor();
    await page.getByRole("button", { name: "Change policy" }).click();
    t.false(await page.getByLabel("Use package defaults").isChecked(), "the user chooses");
    await page.getByLabel("Trigger", { exact: true }).fill("25:99");
    await page.getByLabel("Keep newest").fill("3");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("alert").filter({ hasText: "25:99" }).waitFor();
    await page.getByLabel("Trigger", { exact: true }).and(page.locator(":focus")).waitFor();
    t.is(await page.getByLabel("Keep newest").inputValue(), "3", "typed input stays");
    await page.getByLabel("Trigger", { exact: true }).fill("daily@02:30");
    await page.getByLabel("Test restore after each backup").check();
    await expectAccessible(t, page, "a policy");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("newest 3").waitFor();
    await card.getByText(/Storages\s*local\s*Test restores\s*after each backup/).waitFor();
    t.like(await backups.getBackupPolicy({ appId: "kept" }), {
      ...{ fromPackage: false, trigger: "daily@02:30", keep: 3, keepDaily: undefined },
    });

    await page.evaluate("location.hash = '#/backups'");
    await page.getByRole("button", { name: "Add storage" }).click();
    await page.getByLabel("Storage name").fill("shelf");
    await page.getByLabel("Location").selectOption({ label: "directory" });
    await page.getByLabel("Directory on this host").fill(join(daemon.dir, "shelf"));
    await page.getByRole("button", { name: "Save storage" }).click();
    const shelf = page.getByRole("row").filter({ hasText: "shelf" });
    await shelf.getByRole("button", { name: "Test" }).waitFor();

    await page.getByRole("button", { name: "Add storage" }).click();
    await page.getByLabel("Storage name").fill("shelf");
    const inPath = page.getByLabel("Path-style URLs");
    await page.getByLabel("Endpoint").fill("https://s3.eu-west-1.amazonaws.com");
    t.false(await inPath.isChecked(), "in the daemon's format");
    await page.getByLabel("Endpoint").fill("http://127.0.0.1:9");
    t.true(await inPath.isChecked());
    await page.getByLabel("Bucket", { exact: true }).fill("a-bucket");
    await page.getByLabel("Access key").fill("key-of-mine");
    await page.getByLabel("Secret key").fill("hush-hush");
    await page.getByRole("button", { name: "Save storage" }).click();
    await page.getByRole("alert").filter({ hasText: "Storage shelf already exists" }).waitFor();
    const listed = async () => (await backups.listBackupStorages({})).storages;
    t.is(
      (await listed()).find(({ name }) => name === "shelf")?.location.case,
      "local",
      "nothing is replaced",
    );
    await page.getByLabel("Storage name").fill("cloud");
    await expectAccessible(t, page, "a storage");
    await page.getByRole("button", { name: "Save storage" }).click();
    const cloud = page.getByRole("row").filter({ hasText: "a-bucket" });
    await cloud.getByRole("button", { name: "Change" }).click();
    t.is(await page.getByLabel("Secret key").inputValue(), "");
    t.is(await page.getByLabel("Bucket", { exact: true }).inputValue(), "a-bucket");
    t.false((await page.content()).includes("hush-hush"));
    await page.getByLabel("Prefix").fill("mine/");
    const sent = page.waitForRequest((request) => request.url().endsWith("/UpsertBackupStorage"));
    await page.getByRole("button", { name: "Save storage" }).click();
    const { location } = fromBinary(UpsertBackupStorageRequestSchema, (await sent).postDataBuffer()!);
    t.like(
      location.value,
      { prefix: "mine/", accessKey: undefined, secretKey: undefined, pathStyle: undefined },
      "unset fields are unchanged",
    );
    await page.getByRole("button", { name: "Add storage" }).waitFor();

    const [reached, answered] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
    await page.route("**/svc.v1.BackupService/UpsertBackupStorage", async (route) => {
      reached.resolve(undefined);
      await answered.promise;
      await route.continue();
    });
    await cloud.getByRole("button", { name: "Change" }).click();
    await page.getByLabel("Prefix").fill("late/");
    await page.getByRole("button", { name: "Save storage" }).click();
    await reached.promise;
    await page.getByRole("button", { name: "Discard changes" }).click();
    await shelf.getByRole("button", { name: "Change" }).click();
    const read = page.waitForResponse((response) => response.url().endsWith("/ListBackupStorages"));
    answered.resolve(undefined);
    await read;
    t.is(await page.getByLabel("Directory on this host").count(), 1, "a late response closes no other form");
    await page.getByRole("button", { name: "Discard changes" }).click();
    await page.unrouteAll({ behavior: "wait" });
    for (const row of [shelf, cloud]) {
      await row.getByRole("button", { name: "Remove" }).click();
      await page
        .getByRole("dialog")
        .getByText(/Its backups are not deleted/)
        .waitFor();
      await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
      await row.waitFor({ state: "detached" });
    }
    t.deepEqual(
      (await listed()).map(({ name }) => name),
      ["local"],
    );
    t.deepEqual(
      complaints.filter((text) => !text.includes("status of 400")),
      [],
    );
  },
);

usersTest(`nobody sees another user's backups${needsBrowser}${needsRoot}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  await using ann = await daemon.as(65534);
  await using ben = await daemon.as(1);
  const dir = join(daemon.dir, "ofann");
  await writePackage(dir, await freePort(), { id: "ofann" });
  await ann.client(AppService).installApp({ spec: dir });
  await ann.client(BackupService).createBackup({ appId: "ofann" });
  const anns = await openView(browser, ann, "#/backups/ofann");
  await anns.page.getByRole("rowheader").getByRole("link").waitFor();
  const { page } = await openView(browser, ben, "#/backups");
  await page.getByText("No apps and no backups.").waitFor();
  t.is(await page.getByRole("button", { name: "Test" }).count(), 0);
  await page.evaluate("location.hash = '#/backups/ofann'");
  await page.getByText("App not found, or not visible to you, and no backups of it.").waitFor();
  t.is(await page.getByRole("rowheader").count(), 0);
  t.is(await page.getByRole("button", { name: "Back up now" }).count(), 0);
});

// The catalog as cards, its sources, and the credentials of private hosts.

browserTest(
  `a source is added, searched and installed from, each with its card${needsBrowser}`,
  async (t) => {
    t.timeout(240_000);
    const { daemon, browser } = node;
    const index = join(daemon.dir, "index");
    await writePackage(join(index, "listed"), await freePort(), { id: "listed" });
    const hostile = "<img src=x onerror=alert(1)>";
    const packages = [
      "listed: { directory: listed, name: A web server, summary: Serves what it is given }",
      `other: { directory: other, name: "${hostile}", summary: Does nothing of use }`,
    ];
    await writeFile(join(index, "index.yaml"), `packages:\n  ${packages.join("\n  ")}\n`);
    const { page, complaints } = await openView(browser, daemon, "#/");
    await page.getByRole("link", { name: "Sources", exact: true }).click();
    await page.getByText("Add or change source").click();
    await page.getByLabel("Source name").fill("Mine");
    await page.getByLabel("Address", { exact: true }).fill(index);
    await page.keyboard.press("Enter");
    await page.getByRole("alert").filter({ hasText: "lower-case" }).waitFor();
    t.is(await page.getByLabel("Address", { exact: true }).inputValue(), index, "typed input stays");
    await page.getByLabel("Source name").fill("mine");
    await page.keyboard.press("Enter");
    const row = page.getByRole("row").filter({ hasText: index });
    await row.waitFor();
    await expectAccessible(t, page, "sources");

    await page.evaluate("location.hash = '#/install'");
    const cards = page.getByRole("list", { name: "Catalog" }).getByRole("listitem");
    await cards.filter({ hasText: hostile }).waitFor();
    t.is(await page.locator("main img").count(), 0);
    await expectAccessible(t, page, "install");
    await page.getByLabel("Search packages").fill("GIVEN serves");
    await cards.filter({ hasText: hostile }).waitFor({ state: "detached" });
    await cards.filter({ hasText: "Serves what it is given" }).getByRole("button").click();
    // The heading is the app's ID if another app already has the package's name.
    await page.getByRole("heading", { name: /^(Test web server|listed)$/ }).waitFor();
    t.is((await daemon.client(AppService).getApp({ id: "listed" })).origin?.source, "mine");

    await page.evaluate("location.hash = '#/sources'");
    await row.getByRole("button", { name: "Remove" }).click();
    await page
      .getByRole("dialog")
      .getByText(/Installed apps stay/)
      .waitFor();
    t.true((await daemon.client(SourceService).listSources({})).sources.some(({ name }) => name === "mine"));
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await row.waitFor({ state: "detached" });
    // The browser logs the rejected request itself.
    t.deepEqual(
      complaints.filter((text) => !text.includes("status of 400")),
      [],
    );
  },
);

browserTest(
  `the user chooses between packages with the same ID, and typed input stays${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    for (const name of ["first", "second"]) {
      const index = join(daemon.dir, name);
      await writePackage(join(index, "twin"), await freePort(), { id: "twin" });
      const packages = `  twin: { directory: twin, name: A twin, summary: "Of the ${name} <b>source</b>" }\n`;
      await writeFile(join(index, "index.yaml"), `packages:\n${packages}`);
      await daemon.client(SourceService).upsertSource({ name, url: index });
    }
    const { page, complaints } = await openView(browser, daemon, "#/install");
    await page.getByLabel("Package", { exact: true }).fill("twin");
    await page.getByLabel("Name", { exact: true }).fill("my-twin");
    await page.getByRole("button", { name: "Install", exact: true }).click();
    const asked = page.getByRole("alert").filter({ hasText: "Choose one" });
    await asked.getByText("Of the second <b>source</b>").waitFor();
    t.deepEqual(
      (await daemon.client(AppService).listApps({})).apps.filter(({ packageId }) => packageId === "twin"),
      [],
    );
    await expectAccessible(t, page, "a choice");
    await asked.getByRole("button", { name: "second/twin" }).click();
    await page.getByRole("heading", { name: "my-twin" }).waitFor();
    t.is((await daemon.client(AppService).getApp({ id: "my-twin" })).origin?.source, "second");
    // The browser logs the question itself, because it is a rejected request.
    t.deepEqual(
      complaints.filter((text) => !/status of 4\d\d/.test(text)),
      [],
    );
  },
);

usersTest(
  `a user stores credentials whose secrets are never shown, and cannot change sources${needsBrowser}${needsRoot}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    await using ann = await daemon.as(65534);
    const { page, complaints } = await openView(browser, ann, "#/sources");
    await page.getByText("No credentials: only public").waitFor();
    t.is(await page.getByText("Add a source").count(), 0);
    await page.getByText("Add or change credential").click();
    await page.getByLabel("Credential name").fill("forge");
    await page.getByLabel("Host", { exact: true }).fill("git.example.org");
    await page.getByLabel("User name").fill("ann");
    await page.getByLabel("Password or token").fill("hush-hush");
    await page.keyboard.press("Enter");
    await page.getByRole("rowheader", { name: "forge" }).waitFor();
    t.is(await page.getByLabel("Password or token").inputValue(), "", "a secret does not stay");
    t.false((await page.content()).includes("hush-hush"));
    t.like((await ann.client(CredentialService).listCredentials({})).credentials, [
      { name: "forge", host: "git.example.org", username: "ann", secret: "***" },
    ]);
    await page.getByRole("button", { name: "Remove" }).click();
    await page
      .getByRole("dialog")
      .getByText(/can no longer be used/)
      .waitFor();
    t.is((await ann.client(CredentialService).listCredentials({})).credentials.length, 1);
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await page.getByText("No credentials: only public").waitFor();
    t.deepEqual((await ann.client(CredentialService).listCredentials({})).credentials, []);
    t.deepEqual(complaints, []);
  },
);
