/** The daemon's page in a real browser, with an ear for everything that must not happen. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Browser, Page, Request } from "playwright-core";
import { SessionService } from "../../../gen/svc/v1/session_pb.ts";
import type { UserDoor } from "../../support/daemon.ts";

const root = join(import.meta.dirname, "../../..");

/** A bundle: only that has the page. `npm test` has made one. */
export async function bundledMain(): Promise<string> {
  const made = process.env["SVC_TEST_MAIN"];
  if (made !== undefined) return made;
  const dir = join(root, "node_modules/.cache/svc-under-test");
  await promisify(execFile)(process.execPath, [join(root, "src/build/bundle.ts"), dir]);
  return join(dir, "svc.cjs");
}

/** Pixels of a page, unless a test says otherwise. */
export const viewport = { width: 1200, height: 900 };

export interface WatchedPage {
  readonly page: Page;
  /** Errors and warnings of the console, what was thrown, and what the policy refused. */
  readonly complaints: string[];
  /** Addresses that were asked for, in order. */
  readonly asked: string[];
}

export async function openPage(
  browser: Browser,
  options: Parameters<Browser["newPage"]>[0] = {},
): Promise<WatchedPage> {
  const context = await browser.newContext({ viewport, ...options });
  // A busy machine takes its time.
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  const complaints: string[] = [];
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  page.on("websocket", (socket) => asked.push(socket.url().replace(/^ws/, "http")));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    // An interface that comes or goes, as those of containers do, is no fault of the page, which reads again.
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
 * Opens the page. What Chromium breaks off because an interface came or went on this machine, as those of the containers of
 * other tests do, it loads once more, as a person would, and says so: of the page itself and of what it begins with, before which
 * nothing of it runs that could.
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
  await page.goto("about:blank");
  await page.goto(address);
}

/** Where a user signs in, as `svc web` says it. */
export async function addressFor(user: Pick<UserDoor, "client">): Promise<string> {
  const { page, code } = await user.client(SessionService).issueSessionCode({});
  return `${page}#code=${code}`;
}
