/** The daemon's page in a real browser, recording everything that must not happen. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { APIResponse, Browser, Page, Request, Route } from "playwright-core";
import { SessionService } from "../../../gen/svc/v1/session_pb.ts";
import type { UserConnection } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";

const root = join(import.meta.dirname, "../../..");

/** A bundle, because only a bundle has the page. `npm test` has built one. */
export async function bundledMain(): Promise<string> {
  const made = process.env["SVC_TEST_MAIN"];
  if (made !== undefined) return made;
  const dir = join(root, "node_modules/.cache/svc-under-test");
  await promisify(execFile)(process.execPath, [join(root, "src/build/bundle.ts"), dir]);
  return join(dir, "svc.cjs");
}

/** Pixels of a page, unless a test sets others. */
export const viewport = { width: 1200, height: 900 };

export interface WatchedPage {
  readonly page: Page;
  /** Console errors and warnings, exceptions, and policy violations. */
  readonly complaints: string[];
  /** Requested addresses, in order. */
  readonly asked: string[];
}

export async function openPage(
  browser: Browser,
  options: Parameters<Browser["newPage"]>[0] = {},
): Promise<WatchedPage> {
  const context = await browser.newContext({ viewport, ...options });
  // A busy host is slow.
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  const complaints: string[] = [];
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  page.on("websocket", (socket) => asked.push(socket.url().replace(/^ws/, "http")));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    // An interface that appears or disappears, like those of containers, is not an error of the page, which repeats its
    // reads.
    if (message.text().includes("net::ERR_NETWORK_CHANGED")) return;
    const { url } = message.location();
    if (message.type() === "error" || message.type() === "warning")
      complaints.push(url === "" ? message.text() : `${message.text()} (${url})`);
  });
  page.on("dialog", (dialog) => {
    complaints.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  await page.addInitScript({
    content: `addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
      console.error("the policy refused: " + violatedDirective + " " + blockedURI));`,
  });
  return { page, complaints, asked };
}

const changed = "net::ERR_NETWORK_CHANGED";

/**
 * Opens the page. If Chromium aborts loads because a network interface appeared or disappeared on this host, as those
 * of other tests' containers do, loads it once more and logs it, but only for the page itself and its entry scripts,
 * because the page's own retries do not run before them.
 */
export async function visit(page: Page, address: string): Promise<void> {
  /** Addresses. */
  const broken: string[] = [];
  const fail = (request: Request): void => {
    const isFirst = request.isNavigationRequest() || new URL(request.url()).pathname.startsWith("/web/boot-");
    if (isFirst && request.failure()?.errorText === changed) broken.push(request.url());
  };
  page.on("requestfailed", fail);
  try {
    await page.goto(address).catch((error: unknown) => {
      if (!String(error).includes(changed)) throw error;
      broken.push(address);
    });
  } finally {
    page.off("requestfailed", fail);
  }
  if (broken.length === 0) return;
  console.log(`${changed}: the page is loaded once more`);
  // Chromium may still be loading its error page, which interrupts other navigations.
  await eventually(() => page.goto("about:blank"));
  await page.goto(address);
}

/** The sign-in address that `svc web` prints. */
export async function addressFor(user: Pick<UserConnection, "client">): Promise<string> {
  const { page, code } = await user.client(SessionService).issueSessionCode({});
  return `${page}#code=${code}`;
}

/** Signs in to a page that is not signed in. */
export async function signIn(page: Page, user: Pick<UserConnection, "client">): Promise<void> {
  await visit(page, await addressFor(user));
  await confirmSignIn(page);
}

/** Confirms the question of a page without a signed-in user. */
export async function confirmSignIn(page: Page): Promise<void> {
  await page.getByRole("button", { name: /^Continue as / }).click();
}

/** What the daemon responds to a request of the page. Browsers resolve names below `localhost`; Node does not everywhere. */
export async function fetchFromDaemon(route: Route): Promise<APIResponse> {
  const url = new URL(route.request().url());
  const { host } = url;
  url.hostname = "127.0.0.1";
  return route.fetch({ url: url.href, headers: { ...(await route.request().allHeaders()), host } });
}
