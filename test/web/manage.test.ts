/** Upgrade, copy and removal from the page: what they ask first, what they say, and what is left (T 65, 66). */
import { join } from "node:path";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { addVersion, freePort, writeRepository } from "../support/packages.ts";
import { browserTest, needsBrowser, openView, shareNode } from "./support/shared-node.ts";

const node = shareNode();

browserTest(
  `an app is upgraded, copied and removed, and each asks first for what it needs${needsBrowser}`,
  async (t) => {
    t.timeout(280_000);
    const { daemon, browser } = node;
    const [repository, port] = [join(daemon.dir, "repository"), await freePort()];
    const spec = await writeRepository(repository, port, [{ version: "1.0.0" }]);
    const apps = daemon.client(AppService);
    await apps.installApp({ spec, name: `<img src=x onerror=alert(1)>\u202egnp` });
    await apps.startApp({ id: "web" });
    await addVersion(repository, port, {
      version: "2.0.0",
      files: { LICENSE: "Be <i>kind</i>." },
      settings: "colour: { type: string, default: blue, env: COLOUR }",
    });
    const { page, complaints, asked } = await openView(browser, daemon, "#/apps/web");

    const upgrade = page.getByRole("button", { name: "Upgrade", exact: true });
    const [isRead, isLeft] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
    await page.getByText("Upgrade to another version").click();
    await page.route("**/svc.v1.AppService/GetAppSettings", async (route) => {
      isRead.resolve(undefined);
      await isLeft.promise;
      // Nobody may wait for it any more.
      await route.fulfill({ contentType: "application/proto", body: "" }).catch(() => undefined);
    });
    await upgrade.click();
    await isRead.promise;
    await page.evaluate("location.hash = '#/apps'");
    await page.getByText("1 app").waitFor();
    isLeft.resolve(undefined);
    await page.unrouteAll({ behavior: "wait" });
    // What would follow has been asked for by the time of an answer to this.
    await page.evaluate("fetch('/', { cache: 'no-store' }).then(() => undefined)");
    const upgrades = (): number => asked.filter((address) => address.endsWith("/UpgradeAppStream")).length;
    t.is(upgrades(), 0, "whoever has left upgrades nothing");

    await page.evaluate("location.hash = '#/apps/web'");
    await page.getByText("Upgrade to another version").click();
    await upgrade.click();
    await page.getByText("It asks you to accept this first").waitFor();
    t.like(
      await apps.getApp({ id: "web" }),
      { version: "v1.0.0", state: "RUNNING" },
      "nothing changes without a yes",
    );
    await page.getByText("LICENSE", { exact: true }).click();
    await page.getByText("Be <i>kind</i>.").waitFor();
    await page.getByLabel("Version").fill("v1.0.0");
    await page.getByRole("button", { name: "Accept and go on" }).click();
    await page.getByText("Upgraded from v1.0.0 to v2.0.0.").waitFor();
    await page.getByText("New setting colour, blue by default").waitFor();
    await page.locator('[data-state="RUNNING"]').first().waitFor();
    t.like(await apps.getApp({ id: "web" }), { version: "v2.0.0", state: "RUNNING" });
    await page.getByLabel("Version").fill("v9.9.9");
    await upgrade.click();
    await page.getByText("It stays at v2.0.0.").waitFor();
    await page.getByRole("alert").waitFor();
    t.like(await apps.getApp({ id: "web" }), { version: "v2.0.0", state: "RUNNING" });

    await page.getByText("Make a copy, with its data").click();
    await page.getByLabel("Name of the copy").fill("A copy");
    await page.getByRole("button", { name: "Copy", exact: true }).click();
    await page.getByText("A copy is there").waitFor();
    t.like(await apps.getApp({ id: "web-2" }), { name: "A copy", state: "STOPPED" });

    const dialog = page.getByRole("dialog");
    const remove = page.getByRole("button", { name: "Remove", exact: true });
    await remove.click();
    await dialog.getByText("Remove <img src=x onerror=alert(1)>\\u202egnp?").waitFor();
    await dialog.getByText("cannot be taken back").waitFor();
    await dialog.getByRole("button", { name: "Remove" }).click({ force: true });
    await dialog.getByLabel("To go on, type").fill("we");
    await page.keyboard.press("Enter");
    t.is(await dialog.count(), 1, "it still asks");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    t.is((await apps.listApps({})).apps.length, 2, "what was not typed was not removed");

    const [reached, answered] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
    await page.route("**/svc.v1.BackupService/CreateBackup", async (route) => {
      reached.resolve(undefined);
      await answered.promise;
      // Nobody may wait for it any more.
      await route.fulfill({ contentType: "application/proto", body: "" }).catch(() => undefined);
    });
    await remove.click();
    await dialog.getByLabel("Make a backup first").check();
    await dialog.getByLabel("To go on, type").fill("web");
    await page.keyboard.press("Enter");
    await reached.promise;
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await remove.click();
    answered.resolve(undefined);
    await page.unrouteAll({ behavior: "wait" });
    // What would follow has been asked for by the time of an answer to this.
    await page.evaluate("fetch('/', { cache: 'no-store' }).then(() => undefined)");
    await dialog.getByText(/go with it: \d/).waitFor();
    t.is(await dialog.count(), 1, "what ended late closes no other question");
    t.deepEqual(
      asked.filter((address) => address.endsWith("/RemoveApp")),
      [],
      "what was dismissed is not done",
    );
    t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
    await dialog.getByLabel("Make a backup first").uncheck();
    await dialog.getByLabel("To go on, type").fill("web");
    await page.keyboard.press("Enter");
    await page.getByText("1 app").waitFor();
    t.deepEqual(
      (await apps.listApps({})).apps.map(({ id }) => id),
      ["web-2"],
    );
    // What was about to be read may be gone by then.
    t.deepEqual(
      complaints.filter((text) => !/status of 404/.test(text)),
      [],
    );
  },
);
