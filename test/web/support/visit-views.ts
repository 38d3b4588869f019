import { join } from "node:path";
import type { Page } from "playwright-core";
import type { TestDaemon } from "../../support/daemon.ts";
import { addressFor, visit } from "./open-page.ts";

export interface Visited {
  readonly daemon: TestDaemon;
  /** How many apps there are. */
  readonly appCount: number;
  /** Ids of two of them: one runs, the other fails. */
  readonly apps: readonly [runs: string, fails: string];
}

/**
 * Goes through the views that come first.
 * @param look called with each view's name, once it shows what it has
 */
export async function visitViews(
  page: Page,
  { daemon, appCount, apps }: Visited,
  look: (view: string) => Promise<unknown>,
): Promise<void> {
  await visit(page, `http://127.0.0.1:${daemon.port}/`);
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  await look("sign-in");
  await page.goto("about:blank");
  await visit(page, await addressFor(daemon));
  await page.getByRole("progressbar").first().waitFor();
  await page.locator(".plot canvas").nth(3).waitFor();
  await page.getByRole("heading", { name: "Needs attention" }).waitFor();
  await look("overview");
  await page.evaluate("location.hash = '#/apps'");
  await page.getByText(`${appCount} apps`).waitFor();
  await look("apps");
  await page.evaluate("location.hash = '#/install'");
  await page.getByLabel("Package").waitFor();
  await page.getByText("Loading …").first().waitFor({ state: "detached" });
  await look("install");
  for (const [name, id] of [
    ["app", apps[0]],
    ["app-failed", apps[1]],
  ] as const) {
    await page.evaluate(`location.hash = "#/apps/${id}"`);
    await page.getByLabel("greeting", { exact: true }).waitFor();
    await page.locator(".log .line").first().waitFor();
    await page.locator(".plot canvas").nth(1).waitFor();
    await page.getByText("Make a copy, with its data").click();
    await page.getByText("Upgrade to another version").click();
    await page.getByText("See what takes the room").click();
    await page.getByText("What is right in it").first().waitFor();
    await look(name);
  }
}

/** Goes on through the views of the node, once {@link visitViews} has signed in. */
export async function visitNode(
  page: Page,
  { daemon, apps: [id] }: Visited,
  look: (view: string) => Promise<unknown>,
): Promise<void> {
  const directory = join(daemon.storeDir, "apps", id);
  for (const [view, hash, shows] of [
    ["backups", "#/backups", "local"],
    ["app-backups", `#/backups/${id}`, "Automatic backups"],
    ["schedules", "#/schedules", "The week to come"],
    ["schedule-new", "#/schedules/new", "It would run"],
    ["schedule", "#/schedules/0/nightly", "Last runs"],
    ["files", `#/files${directory}`, "data"],
    ["file", `#/files${directory}/repo/server.mjs`, "Edit"],
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
  await page.evaluate(`location.hash = "#/backups/${id}"`);
  await page.getByRole("rowheader").getByRole("link").first().click();
  await page.getByRole("button", { name: "Restore into the app" }).waitFor();
  await look("archive");
  await page.getByRole("button", { name: "Restore into the app" }).click();
  await page.getByRole("dialog").waitFor();
  await look("question");
  await page.keyboard.press("Escape");
}

/** And through those of the container engine, which has a container. */
export async function visitEngine(page: Page, look: (view: string) => Promise<unknown>): Promise<void> {
  for (const part of ["images", "volumes", "networks", "containers"]) {
    await page.evaluate(`location.hash = "#/inventory/${part}"`);
    await page.getByRole("table").waitFor();
    await look(part);
  }
  await page.getByRole("rowheader").getByRole("link").first().click();
  await page.getByRole("heading", { name: "Its last lines" }).waitFor();
  await page.getByRole("heading", { name: "What it takes now" }).waitFor();
  await look("container");
  await page.evaluate("location.hash = '#/inventory/images'");
  await page.getByRole("button", { name: "See what can be removed" }).click();
  await page.getByRole("dialog").waitFor();
  await look("plan");
  await page.keyboard.press("Escape");
}
