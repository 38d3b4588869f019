/** What a network breaks off while the page comes is loaded again, as a machine on which containers come and go does it (T 65). */
import type { Browser, Page } from "playwright-core";
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

browserTest(`a page of which nothing comes says so by itself${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const { page } = await open(browser);
  await page.route(/\/web\/boot-\w+\.js$/, (route) => route.abort("failed"));
  await page.goto(`http://127.0.0.1:${daemon.port}/`);
  t.regex((await page.locator("body").textContent()) ?? "", /reload the page/);
});
