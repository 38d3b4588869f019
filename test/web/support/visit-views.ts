import { join } from "node:path";
import type { Page } from "playwright-core";
import type { TestDaemon } from "../../support/daemon.ts";
import { addressFor } from "./open-page.ts";

/**
 * Goes through every view of the page, whose daemon has `appCount` apps, `good` and `bad` among them.
 * @param look called with each view's name, once it shows what it has
 */
export async function visitViews(
  page: Page,
  daemon: TestDaemon,
  appCount: number,
  look: (view: string) => Promise<unknown>,
): Promise<void> {
  await page.goto(`http://127.0.0.1:${daemon.port}/`);
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  await look("sign-in");
  await page.goto("about:blank");
  await page.goto(await addressFor(daemon));
  await page.getByRole("progressbar").first().waitFor();
  await page.locator(".plot canvas").nth(3).waitFor();
  await look("overview");
  await page.evaluate("location.hash = '#/apps'");
  await page.getByText(`${appCount} apps`).waitFor();
  await look("apps");
  await page.evaluate("location.hash = '#/install'");
  await page.getByLabel("Package").waitFor();
  await look("install");
  for (const id of ["good", "bad"]) {
    await page.evaluate(`location.hash = "#/apps/${id}"`);
    await page.getByLabel("greeting", { exact: true }).waitFor();
    await page.locator(".log .line").first().waitFor();
    await page.locator(".plot canvas").nth(1).waitFor();
    await page.getByText("Make a copy, with its data").click();
    await look(`app-${id}`);
  }
}

/** Goes on through the views of the node, once {@link visitViews} has signed in. */
export async function visitNode(
  page: Page,
  daemon: TestDaemon,
  look: (view: string) => Promise<unknown>,
): Promise<void> {
  for (const [view, hash, shows] of [
    ["backups", "#/backups", "local"],
    ["app-backups", "#/backups/good", "By itself"],
    ["schedules", "#/schedules", "The week to come"],
    ["schedule-new", "#/schedules/new", "It would run"],
    ["schedule", "#/schedules/0/nightly", "Last runs"],
    ["files", `#/files${join(daemon.storeDir, "apps/good")}`, "data"],
    ["ports", "#/inventory/ports", "Process"],
    ["processes", "#/inventory/processes", "Command"],
    ["disk", "#/inventory/disk", "Together"],
    ["machine", "#/host", "Filesystems"],
    ["sources", "#/sources", "What opens private hosts"],
    ["access", "#/access", "Who did what"],
  ] as const) {
    await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
    await page.locator("main").getByText(shows).first().waitFor();
    await page.getByText("Loading …").first().waitFor({ state: "detached" });
    await look(view);
  }
}
