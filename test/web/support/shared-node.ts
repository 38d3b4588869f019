/** One daemon and one browser for all tests of a file. */
import test from "ava";
import type { Browser } from "playwright-core";
import { browserPath, cheapBrowserPath } from "../../support/browser.ts";
import { isRoot, startDaemon, type TestDaemon, type UserConnection } from "../../support/daemon.ts";
import { launchBrowser } from "../../support/launch-browser.ts";
import { describePages, leavePages, takePage } from "./kept-page.ts";
import { addressFor, bundledMain, confirmSignIn, visit, type WatchedPage } from "./open-page.ts";

/** For titles of tests. */
export const needsBrowser = browserPath === undefined ? " (skipped: no Chromium)" : "";
export const browserTest = browserPath === undefined ? test.skip : test;
/** For titles of tests that act as other users. */
export const usersTest = isRoot ? browserTest : test.skip;

export interface SharedNode {
  readonly daemon: TestDaemon;
  readonly browser: Browser;
}

/** @param config of the daemon, as TOML, evaluated after the previous options are ready @param path of the browser */
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

/**
 * Only the browser, for tests with their own daemons. A test's pages are closed with it, except one for the next test.
 */
export function shareBrowser(path = cheapBrowserPath): Pick<SharedNode, "browser"> {
  const parts: { browser?: Browser } = {};
  test.before(async () => {
    if (browserPath !== undefined) parts.browser = await launchBrowser(path);
  });
  test.afterEach.always(async (t) => {
    if (parts.browser === undefined) return;
    if (!t.passed) for (const shown of await describePages(parts.browser)) t.log(shown);
    await leavePages(parts.browser, t.passed);
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
  user: Pick<UserConnection, "client">,
  hash: string,
): Promise<WatchedPage> {
  const address = await addressFor(user);
  const opened = await openSignedOut(browser, new URL(hash, address));
  await visit(opened.page, address);
  await confirmSignIn(opened.page);
  await opened.page.getByText("Live", { exact: true }).waitFor();
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
  await page.getByText("Live", { exact: true }).waitFor();
  return opened;
}

/** After the sign-in the page opens this address directly, because another view first would take longer. */
async function openSignedOut(browser: Browser, address: URL): Promise<WatchedPage> {
  const opened = await takePage(browser);
  await visit(opened.page, address.href);
  await opened.page.getByRole("button", { name: "Sign in" }).waitFor();
  return opened;
}
