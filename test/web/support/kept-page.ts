/**
 * A page that the tests of a file share one after another, loaded again for each, without state of the previous test. A
 * new window with its process takes Chromium longer than that.
 */
import type { Browser } from "playwright-core";
import { openPage, viewport, type WatchedPage } from "./open-page.ts";

interface KeptPage {
  readonly opened: WatchedPage;
  /** No test uses it. */
  isFree: boolean;
}

const keptPages = new WeakMap<Browser, KeptPage>();

/** The shared page; a new one if a test uses it. */
export async function takePage(browser: Browser): Promise<WatchedPage> {
  const kept = keptPages.get(browser);
  if (kept?.isFree === true) {
    kept.isFree = false;
    return kept.opened;
  }
  const opened = await openPage(browser);
  if (kept === undefined) keptPages.set(browser, { opened, isFree: false });
  return opened;
}

/** What the open pages show, for the report of a failed test. */
export async function describePages(browser: Browser): Promise<string[]> {
  const pages = browser.contexts().flatMap((context) => context.pages());
  return Promise.all(
    pages.map(async (page) => {
      const text = await page.innerText("body", { timeout: 5_000 }).catch(String);
      return `${page.url()} shows:\n${text.slice(0, 3_000)}`;
    }),
  );
}

/** Closes the pages that a test left open, because they would keep drawing live data, and empties the shared page. */
export async function leavePages(browser: Browser, hasPassed: boolean): Promise<void> {
  const kept = keptPages.get(browser);
  if (kept?.isFree === false) {
    kept.isFree = hasPassed && (await isEmptied(kept.opened));
    if (!kept.isFree) keptPages.delete(browser);
  }
  for (const context of browser.contexts())
    if (kept?.isFree !== true || context !== kept.opened.page.context()) await context.close();
}

/** False if it cannot be emptied, for example because of a leave confirmation or a missing daemon. */
async function isEmptied({ page, complaints, asked }: WatchedPage): Promise<boolean> {
  try {
    await page.unrouteAll();
    await page.setViewportSize(viewport);
    await page.mouse.move(0, 0);
    await page.context().clearCookies();
    await page.evaluate("localStorage.clear()");
    await page.goto(new URL("/", page.url()).href);
  } catch {
    return false;
  }
  complaints.length = 0;
  asked.length = 0;
  return true;
}
