/** One daemon and one browser for all tests of a file. */
import test from "ava";
import type { Browser } from "playwright-core";
import { browserPath, cheapBrowserPath } from "../../support/browser.ts";
import { isRoot, startDaemon, type TestDaemon, type UserDoor } from "../../support/daemon.ts";
import { launchBrowser } from "../../support/launch-browser.ts";
import { leavePages, takePage } from "./kept-page.ts";
import { addressFor, bundledMain, type WatchedPage, visit } from "./open-page.ts";

/** For titles of tests. */
export const needsBrowser = browserPath === undefined ? " (skipped: no Chromium)" : "";
export const browserTest = browserPath === undefined ? test.skip : test;
/** Of tests that act as other users. */
export const usersTest = isRoot ? browserTest : test.skip;

export interface SharedNode {
  readonly daemon: TestDaemon;
  readonly browser: Browser;
}

/**
 * @param config of the daemon, as TOML, known once what was asked for before is there
 * @param path of the browser
 */
export function shareNode(config = (): string => "", path = cheapBrowserPath): SharedNode {
  const parts: { daemon?: TestDaemon } = {};
  test.before(async () => {
    if (browserPath === undefined) return;
    parts.daemon = await startDaemon({ main: await bundledMain(), config: config() });
  });
  const shared = shareBrowser(path);
  test.after.always(() => parts.daemon?.[Symbol.asyncDispose]());
  return {
    get daemon() {
      return there(parts.daemon);
    },
    get browser() {
      return shared.browser;
    },
  };
}

/** The browser alone, where tests have daemons of their own. A test's pages close with it, but for one that waits for the next. */
export function shareBrowser(path = cheapBrowserPath): Pick<SharedNode, "browser"> {
  const parts: { browser?: Browser } = {};
  test.before(async () => {
    if (browserPath !== undefined) parts.browser = await launchBrowser(path);
  });
  test.afterEach.always(async (t) => {
    if (parts.browser !== undefined) await leavePages(parts.browser, t.passed);
  });
  test.after.always(() => parts.browser?.close());
  return {
    get browser() {
      return there(parts.browser);
    },
  };
}

function there<T>(part: T | undefined): T {
  if (part === undefined) throw new Error("it was not started");
  return part;
}

/** A page that `user` has signed in to and that shows the view at `hash`, such as `#/schedules`. */
export async function openView(
  browser: Browser,
  user: Pick<UserDoor, "client">,
  hash: string,
): Promise<WatchedPage> {
  const address = await addressFor(user);
  const opened = await openSignedOut(browser, new URL(hash, address));
  await visit(opened.page, address);
  await opened.page.getByText("Live").waitFor();
  return opened;
}

/** The same with the daemon's primary token, pasted in. */
export async function openWithToken(
  browser: Browser,
  daemon: TestDaemon,
  hash: string,
): Promise<WatchedPage> {
  const opened = await openSignedOut(browser, new URL(hash, `http://127.0.0.1:${daemon.port}/`));
  const { page } = opened;
  await page.getByLabel("Token").fill(daemon.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Live").waitFor();
  return opened;
}

/** Whoever signs in then comes to the view of this address, with no other before it, which would take longer than most. */
async function openSignedOut(browser: Browser, address: URL): Promise<WatchedPage> {
  const opened = await takePage(browser);
  await visit(opened.page, address.href);
  await opened.page.getByRole("button", { name: "Sign in" }).waitFor();
  return opened;
}
