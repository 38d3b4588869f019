/** The catalog as cards, its sources, and the credentials of private hosts. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { CredentialService } from "../../../gen/svc/v1/credential_pb.ts";
import { SourceService } from "../../../gen/svc/v1/source_pb.ts";
import { needsRoot } from "../../support/daemon.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { isForEverybody } from "../../web/support/for-everybody.ts";
import { browserTest, needsBrowser, openView, shareNode, usersTest } from "../../web/support/shared-node.ts";

const node = shareNode();

browserTest(
  `a source is added, searched and installed from, each with its card${needsBrowser}`,
  async (t) => {
    t.timeout(240_000);
    const { daemon, browser } = node;
    const index = join(daemon.dir, "index");
    await writePackage(join(index, "web"), await freePort());
    const hostile = "<img src=x onerror=alert(1)>";
    const packages = [
      "web: { directory: web, name: A web server, summary: Serves what it is given }",
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
    await isForEverybody(t, page, "sources");

    await page.evaluate("location.hash = '#/install'");
    const cards = page.getByRole("list", { name: "Catalog" }).getByRole("listitem");
    await cards.filter({ hasText: hostile }).waitFor();
    t.is(await page.locator("main img").count(), 0);
    await isForEverybody(t, page, "install");
    await page.getByLabel("Search packages").fill("GIVEN serves");
    await cards.filter({ hasText: hostile }).waitFor({ state: "detached" });
    await cards.filter({ hasText: "Serves what it is given" }).getByRole("button").click();
    await page.getByRole("heading", { name: "Test web server" }).waitFor();
    t.is((await daemon.client(AppService).getApp({ id: "web" })).origin?.source, "mine");

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
    await isForEverybody(t, page, "a choice");
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
