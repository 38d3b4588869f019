/** The API page in a real browser. */
import test from "ava";
import { routes } from "../../../gen/svc/v1/routes.ts";
import { browserPath } from "../../support/browser.ts";
import { startDaemon } from "../../support/daemon.ts";
import { launchBrowser } from "../../support/launch-browser.ts";

const browserTest = browserPath === undefined ? test.skip : test;
const why = browserPath === undefined ? " (skipped: no Chromium)" : "";

browserTest(
  `the API page shows every operation, calls them, and loads files only from the daemon${why}`,
  async (t) => {
    await using daemon = await startDaemon();
    const browser = await launchBrowser();
    try {
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
    } finally {
      await browser.close();
    }
  },
);
