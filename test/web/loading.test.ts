/** What a network breaks off while the page comes is loaded again, as a machine on which containers come and go does it (T 65). */
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { addressFor, openPage, visit } from "./support/open-page.ts";
import { browserTest, needsBrowser, openView, shareNode } from "./support/shared-node.ts";

const node = shareNode();

/** Breaks off the first `times` requests for what `pattern` names. @returns how many it did */
async function breakOff(page: Page, pattern: RegExp, times = 1): Promise<() => number> {
  let broken = 0;
  await page.route(pattern, (route) => {
    if (broken >= times) return route.continue();
    broken += 1;
    return route.abort("failed");
  });
  return () => broken;
}

/** The browser's own words about what was broken off are no complaint of the page's. */
const ofPage = (complaints: readonly string[]): string[] =>
  complaints.filter((text) => !text.includes("net::ERR_FAILED"));

async function open(browser: Browser): ReturnType<typeof openPage> {
  const opened = await openPage(browser);
  opened.page.setDefaultTimeout(30_000);
  return opened;
}

for (const [part, pattern] of Object.entries({
  "its program": /\/web\/main-\w+\.js$/,
  "its style": /\/web\/style-\w+\.css$/,
  "the trade of its code": /\/svc\.v1\.SessionService\/OpenSession$/,
  "its stream of events": /\/svc\.v1\.EventService\/StreamEvents$/,
  "the list of apps": /\/svc\.v1\.AppService\/ListApps$/,
})) {
  browserTest(`the page comes all the same when ${part} was broken off${needsBrowser}`, async (t) => {
    const { daemon, browser } = node;
    const { page, complaints } = await open(browser);
    const broken = await breakOff(page, pattern);
    await visit(page, await addressFor(daemon));
    await page.getByText("Live").waitFor();
    await page.waitForFunction("getComputedStyle(document.querySelector('.frame')).minHeight !== 'auto'");
    t.is(broken(), 1);
    t.deepEqual(ofPage(complaints), []);
  });
}

browserTest(`a view comes all the same, and says what to do where it does not${needsBrowser}`, async (t) => {
  t.timeout(120_000);
  const { daemon, browser } = node;
  const { page, complaints } = await openView(browser, daemon, "#/");
  const broken = await breakOff(page, /\/web\/schedules-\w+\.js$/);
  await page.getByRole("link", { name: "Schedules", exact: true }).click();
  await page.getByText("Nothing is scheduled yet.").waitFor();
  t.is(broken(), 1);

  await page.route(/\/web\/access-\w+\.js$/, (route) => route.abort("failed"));
  await page.getByRole("link", { name: "Access", exact: true }).click();
  const failed = page.getByRole("alert").filter({ hasText: "could not be loaded" });
  await failed.waitFor();
  await page.unrouteAll();
  await failed.getByRole("button", { name: "Try again" }).click();
  await page.getByRole("heading", { name: "Access" }).waitFor();
  t.is(await failed.count(), 0);
  t.deepEqual(ofPage(complaints), []);
});

/** The page asks whether the daemon lives, and hears nothing, until this is disposed of. */
async function withoutLife(page: Page): Promise<AsyncDisposable> {
  await page.route("**/healthz", (route) => route.abort("failed"));
  await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
  await page.getByText("Not connected").waitFor();
  return { [Symbol.asyncDispose]: () => page.unroute("**/healthz") };
}

/** Lets the first request for what `pattern` names wait for ever. */
async function hangOnce(page: Page, pattern: RegExp): Promise<void> {
  await page.route(pattern, () => undefined, { times: 1 });
}

browserTest(`a stream that hangs is given up, although other connections go${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const { page, asked } = await open(browser);
  await hangOnce(page, /\/StreamEvents$/);
  await visit(page, await addressFor(daemon));
  await page.getByText("Live").waitFor();
  t.is(asked.filter((url) => url.endsWith("/StreamEvents")).length, 2);
});

browserTest(`reads that hang end with the connection, and go again${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const { page } = await openView(browser, daemon, "#/");
  await page.getByText("Nothing needs your attention.").waitFor();
  await hangOnce(page, /\/ListSchedules$/);
  await page.getByRole("link", { name: "Schedules", exact: true }).click();
  await page.getByRole("heading", { name: "Schedules" }).waitFor();
  {
    await using _life = await withoutLife(page);
    await page.getByText("Nothing is scheduled yet.").waitFor();
  }
  await page.getByText("Live").waitFor();
  t.is(await page.getByRole("alert").count(), 0);
});

browserTest(`a log goes on once the daemon is there again, by itself${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "prints");
  await writePackage(dir, await freePort(), { id: "prints" });
  await daemon.client(AppService).installApp({ spec: dir });
  const { page } = await openView(browser, daemon, "#/apps");
  let opened = 0;
  await page.routeWebSocket(/session=logs/, async (socket) => {
    opened += 1;
    socket.send(Buffer.from(`opened ${opened}\n`));
    if (opened === 1) await socket.close();
  });
  await page.evaluate("location.hash = '#/apps/prints'");
  await page.getByText("The log's connection ended.").waitFor();
  {
    await using _life = await withoutLife(page);
    t.is(opened, 1);
  }
  await page.getByText("opened 2").waitFor();
  t.is(await page.getByText("The log's connection ended.").count(), 0);
});

browserTest(`of a change that broke off nobody knows, and that is said${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const { page } = await openView(browser, daemon, `#/files${daemon.dir}`);
  const said = page.getByRole("alert").filter({ hasText: "nobody knows whether it was done" });
  await page.route(/\/v1\/files\/content/, (route) => route.abort("connectionreset"));
  const file = { name: "letter.txt", mimeType: "text/plain", buffer: Buffer.from("Hello") };
  await page.getByLabel("Upload files").setInputFiles(file);
  await said.waitFor();
  await page.route(/\/UpsertSchedule$/, (route) => route.abort("connectionreset"));
  await page.evaluate("location.hash = '#/schedules/new'");
  await page.getByLabel("Name", { exact: true }).fill("lost");
  await page.getByRole("button", { name: "Save" }).click();
  await said.waitFor();
  t.is(await page.getByLabel("Name", { exact: true }).inputValue(), "lost", "what was typed stays");
});

browserTest(`a page of which nothing comes says so by itself${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const { page } = await open(browser);
  await page.route(/\/web\/boot-\w+\.js$/, (route) => route.abort("failed"));
  await page.goto(`http://127.0.0.1:${daemon.port}/`);
  t.regex((await page.locator("body").textContent()) ?? "", /reload the page/);
});
