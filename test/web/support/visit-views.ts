import { join } from "node:path";
import type { Page } from "playwright-core";
import type { TestDaemon } from "../../support/daemon.ts";
import { signIn, visit } from "./open-page.ts";

export interface Visited {
  readonly daemon: TestDaemon;
  /** The number of apps. */
  readonly appCount: number;
  /** IDs of two of them: one runs, the other has failed. */
  readonly apps: readonly [runs: string, fails: string];
}

/** Visits the first views. @param look called with each view's name once its content is shown */
export async function visitViews(
  page: Page,
  { daemon, appCount, apps }: Visited,
  look: (view: string) => Promise<unknown>,
): Promise<void> {
  await visit(page, `http://127.0.0.1:${daemon.port}/`);
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  await look("sign-in");
  await page.goto("about:blank");
  await signIn(page, daemon);
  await page.getByRole("progressbar").first().waitFor();
  await page.locator(".plot canvas").nth(3).waitFor();
  await page.getByRole("heading", { name: "Needs attention" }).waitFor();
  await look("overview");
  await page.evaluate("location.hash = '#/apps'");
  await page.getByText(`${appCount} apps`).waitFor();
  await look("apps");
  await page.evaluate("location.hash = '#/install'");
  await page.getByLabel("Package", { exact: true }).waitFor();
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
    await page.getByText("Copy with data").click();
    await page.getByText("Upgrade or downgrade").click();
    await page.getByText("Show disk usage").click();
    await page.getByText("Files in this folder").first().waitFor();
    await look(name);
  }
}

/** Visits the views of the node, after {@link visitViews} has signed in. */
export async function visitNode(
  page: Page,
  { daemon, apps: [id] }: Visited,
  look: (view: string) => Promise<unknown>,
): Promise<void> {
  const directory = join(daemon.storeDir, "apps", id);
  for (const [view, hash, shows] of [
    ["backups", "#/backups", "local"],
    ["app-backups", `#/backups/${id}`, "Automatic backups"],
    ["schedules", "#/schedules", "Next 7 days"],
    ["schedule-new", "#/schedules/new", "Next runs"],
    ["schedule", "#/schedules/0/nightly", "Last runs"],
    ["files", `#/files${directory}`, "data"],
    ["file", `#/files${directory}/repo/server.mjs`, "Edit"],
    ["ports", "#/inventory/ports", "Process"],
    ["processes", "#/inventory/processes", "Command"],
    ["disk", "#/inventory/disk", "Total"],
    ["machine", "#/host", "Filesystems"],
    ["sources", "#/sources", "Credentials for private hosts"],
    ["access", "#/access", "Audit log"],
  ] as const) {
    await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
    await page.locator("main").getByText(shows).first().waitFor();
    await page.getByText("Loading …").first().waitFor({ state: "detached" });
    await look(view);
  }
  await page.evaluate(`location.hash = "#/backups/${id}"`);
  await page.getByRole("rowheader").getByRole("link").first().click();
  await page.getByRole("button", { name: "Restore app" }).waitFor();
  await look("archive");
  await page.getByRole("button", { name: "Restore app" }).click();
  await page.getByRole("dialog").waitFor();
  await look("question");
  await page.keyboard.press("Escape");
}

/** Visits the views of the container engine, which has a container. */
export async function visitEngine(page: Page, look: (view: string) => Promise<unknown>): Promise<void> {
  for (const part of ["images", "volumes", "networks", "containers"]) {
    await page.evaluate(`location.hash = "#/inventory/${part}"`);
    await page.getByRole("table").waitFor();
    await look(part);
  }
  await page.getByRole("rowheader").getByRole("link").first().click();
  await page.getByRole("heading", { name: "Last output" }).waitFor();
  await page.getByRole("heading", { name: "Resource usage" }).waitFor();
  await look("container");
  await page.evaluate("location.hash = '#/inventory/images'");
  await page.getByRole("button", { name: "Show unused images" }).click();
  await page.getByRole("dialog").waitFor();
  await look("plan");
  await page.keyboard.press("Escape");
}
