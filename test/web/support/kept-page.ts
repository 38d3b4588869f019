/**
 * The page that tests of a file have one after another, each loaded anew: nothing of the test before is in it. A window of its own
 * with its process takes Chromium longer than that.
 */
import type { Browser } from "playwright-core";
import { openPage, viewport, type WatchedPage } from "./open-page.ts";

interface KeptPage {
  readonly opened: WatchedPage;
  /** No test has it. */
  isFree: boolean;
}

const keptPages = new WeakMap<Browser, KeptPage>();

/** The one that is kept; a new one where a test has that. */
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

/** Closes what a test leaves, as it would go on drawing what is live, and empties the kept page. */
export async function leavePages(browser: Browser, hasPassed: boolean): Promise<void> {
  const kept = keptPages.get(browser);
  if (kept?.isFree === false) {
    kept.isFree = hasPassed && (await isEmptied(kept.opened));
    if (!kept.isFree) keptPages.delete(browser);
  }
  for (const context of browser.contexts())
    if (kept?.isFree !== true || context !== kept.opened.page.context()) await context.close();
}

/** False where it cannot be, as when somebody is asked whether to leave it, or its daemon is gone. */
async function isEmptied({ page, complaints, asked }: WatchedPage): Promise<boolean> {
  try {
    await page.unrouteAll();
    await page.setViewportSize(viewport);
    await page.mouse.move(0, 0);
    await page.goto(new URL("/", page.url()).href);
  } catch {
    return false;
  }
  complaints.length = 0;
  asked.length = 0;
  return true;
}
