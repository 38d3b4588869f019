/** Interrupted loading of the page, and the API page, in a real browser. */
import { once } from "node:events";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { routes } from "../../../gen/svc/v1/routes.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { openPage, signIn } from "../../web/support/open-page.ts";
import { browserTest, needsBrowser, openView, shareNode } from "../../web/support/shared-node.ts";

// Requests that a network interrupts while the page loads are repeated, as needed on a host whose containers start and
// stop.

const node = shareNode();

/** Aborts the first `times` requests that match `pattern`. @returns how many it aborted */
async function breakOff(page: Page, pattern: RegExp, times = 1): Promise<() => number> {
  let broken = 0;
  await page.route(pattern, (route) => {
    if (broken >= times) return route.continue();
    broken += 1;
    return route.abort("failed");
  });
  return () => broken;
}

/** The browser's own messages about aborted requests are not errors of the page. */
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
  "the exchange of its code": /\/svc\.v1\.SessionService\/OpenSession$/,
  "its stream of events": /\/svc\.v1\.EventService\/StreamEvents$/,
  "the list of apps": /\/svc\.v1\.AppService\/ListApps$/,
})) {
  browserTest(`the page loads although ${part} was aborted${needsBrowser}`, async (t) => {
    const { daemon, browser } = node;
    const { page, complaints } = await open(browser);
    const broken = await breakOff(page, pattern);
    await signIn(page, daemon);
    await page.getByText("Live", { exact: true }).waitFor();
    await page.waitForFunction("getComputedStyle(document.querySelector('.frame')).minHeight !== 'auto'");
    t.is(broken(), 1);
    t.deepEqual(ofPage(complaints), []);
  });
}

browserTest(`below a path of a proxy, the page says that it needs a host name${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const prefix = "/svc";
  const proxy = createServer(({ url = "" }, response) => {
    if (!url.startsWith(`${prefix}/`)) response.writeHead(404).end();
    else
      request({ port: daemon.port, path: url.slice(prefix.length) }, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      }).end();
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  try {
    const { page } = await open(browser);
    const { port } = proxy.address() as AddressInfo;
    await page.goto(`http://127.0.0.1:${port}${prefix}/`, { waitUntil: "networkidle" });
    await page.getByText("svc needs its own host name: it does not work below a path").waitFor();
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
  t.pass();
});

browserTest(
  `a view loads despite aborted requests, and explains what to do if it fails${needsBrowser}`,
  async (t) => {
    t.timeout(120_000);
    const { daemon, browser } = node;
    const { page, complaints } = await openView(browser, daemon, "#/");
    const broken = await breakOff(page, /\/web\/schedules-\w+\.js$/);
    await page.getByRole("link", { name: "Jobs", exact: true }).click();
    await page.getByText("No jobs yet.").waitFor();
    t.is(broken(), 1);

    await page.route(/\/web\/access-\w+\.js$/, (route) => route.abort("failed"));
    await page.getByRole("link", { name: "Access", exact: true }).click();
    const failed = page.getByRole("alert").filter({ hasText: "failed to load" });
    await failed.waitFor();
    await page.unrouteAll();
    await failed.getByRole("button", { name: "Try again" }).click();
    await page.getByRole("heading", { name: "Access" }).waitFor();
    t.is(await failed.count(), 0);
    t.deepEqual(ofPage(complaints), []);
  },
);

/** The page's requests for the daemon's state get no response until this is disposed. */
async function withoutLife(page: Page): Promise<AsyncDisposable> {
  await page.route("**/healthz", (route) => route.abort("failed"));
  await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
  await page.getByText(/^Disconnected:/).waitFor();
  return { [Symbol.asyncDispose]: () => page.unroute("**/healthz") };
}

/** The first request that matches `pattern` never gets a response. */
async function hangOnce(page: Page, pattern: RegExp): Promise<void> {
  await page.route(pattern, () => undefined, { times: 1 });
}

browserTest(`a hanging stream is abandoned although other connections work${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const { page, asked } = await open(browser);
  await hangOnce(page, /\/StreamEvents$/);
  await signIn(page, daemon);
  await page.getByText("Live", { exact: true }).waitFor();
  t.is(asked.filter((url) => url.endsWith("/StreamEvents")).length, 2);
});

browserTest(`hanging reads end with the connection and are repeated${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const { page } = await openView(browser, daemon, "#/");
  await page.getByText("Nothing needs your attention.").waitFor();
  await hangOnce(page, /\/ListSchedules$/);
  await page.getByRole("link", { name: "Jobs", exact: true }).click();
  await page.getByRole("heading", { name: "Jobs" }).waitFor();
  {
    await using _life = await withoutLife(page);
    await page.getByText("No jobs yet.").waitFor();
  }
  await page.getByText("Live", { exact: true }).waitFor();
  t.is(await page.getByRole("alert").count(), 0);
});

browserTest(`a log continues by itself once the daemon is available again${needsBrowser}`, async (t) => {
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
  await page.getByText("Log disconnected.").waitFor();
  {
    await using _life = await withoutLife(page);
    t.is(opened, 1);
  }
  await page.getByText("opened 2").waitFor();
  t.is(await page.getByText("Log disconnected.").count(), 0);
});

browserTest(`an aborted change is reported with an unknown outcome${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const { page } = await openView(browser, daemon, `#/files${daemon.dir}`);
  const said = page.getByRole("alert").filter({ hasText: "the result is unknown" });
  await page.route(/\/v1\/files\/content/, (route) => route.abort("connectionreset"));
  const file = { name: "letter.txt", mimeType: "text/plain", buffer: Buffer.from("Hello") };
  await page.getByLabel("Upload files").setInputFiles(file);
  await said.waitFor();
  await page.route(/\/UpsertSchedule$/, (route) => route.abort("connectionreset"));
  await page.evaluate("location.hash = '#/schedules/new'");
  await page.getByLabel("Name", { exact: true }).fill("lost");
  await page.getByRole("button", { name: "Save" }).click();
  await said.waitFor();
  t.is(await page.getByLabel("Name", { exact: true }).inputValue(), "lost", "typed input stays");
});

browserTest(`a page that fails to load reports it by itself${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const { page } = await open(browser);
  await page.route(/\/web\/boot-\w+\.js$/, (route) => route.abort("failed"));
  await page.goto(`http://127.0.0.1:${daemon.port}/`);
  t.regex((await page.locator("body").textContent()) ?? "", /reload the page/);
});

// The API page in a real browser.

browserTest(
  `the API page shows every operation, calls them, and loads files only from the daemon${needsBrowser}`,
  async (t) => {
    const { daemon, browser } = node;
    const page = await browser.newPage({ viewport: { width: 1280, height: 1600 } });
    const base = `http://127.0.0.1:${daemon.port}`;
    const urls: string[] = [];
    const problems: string[] = [];
    page.on("request", (request) => urls.push(request.url()));
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") problems.push(message.text());
    });

    await page.goto(`${base}/docs`);
    // The page adds the operations one section at a time.
    await page
      .locator(".opblock")
      .nth(routes.length - 1)
      .waitFor();
    const methods = await page.locator(".opblock-summary-method").allTextContents();
    const paths = await page.locator(".opblock-summary-path").allTextContents();
    // Long paths may break at zero-width spaces.
    const shown = paths.map((path, index) => `${methods[index] ?? ""} ${path.replaceAll("\u200b", "")}`);
    t.deepEqual(
      shown.toSorted(),
      routes.map(({ httpMethod, template }) => `${httpMethod} ${template.source}`).toSorted(),
    );
    t.deepEqual(urls.toSorted(), [
      `${base}/docs`,
      `${base}/docs/docs.js`,
      `${base}/docs/swagger-ui-bundle.js`,
      `${base}/docs/swagger-ui.css`,
      `${base}/v1/openapi.json`,
    ]);

    await page.click(".btn.authorize");
    await page.fill(".auth-container input", daemon.token);
    await page.click(".auth-btn-wrapper .authorize");
    await page.click(".btn-done");
    await page.click("#operations-DaemonService-getStatus .opblock-summary-control");
    await page.click("#operations-DaemonService-getStatus .try-out__btn");
    await page.click("#operations-DaemonService-getStatus .execute");
    const response = page.locator("#operations-DaemonService-getStatus .live-responses-table .response");
    await response.filter({ hasText: '"capabilities"' }).first().waitFor();
    t.deepEqual(problems, []);
  },
);
