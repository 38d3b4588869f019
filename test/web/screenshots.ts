/** `npm run screenshots [-- DIR]`: every view of the page, light and dark, wide and narrow, as PNG, to be looked at. */
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { Page } from "playwright-core";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { addressFor, bundledMain, launchBrowser, openPage } from "./support/open-page.ts";

const dir = resolve(process.argv[2] ?? join(import.meta.dirname, "../../.svc/screenshots"));
await mkdir(dir, { recursive: true });
await using daemon = await startDaemon({ main: await bundledMain() });
const apps = daemon.client(AppService);
/** By id: one runs, one is stopped, one fails. */
const failing = { "server.mjs": 'console.error("no port for me"); process.exit(3);' };
for (const [id, files] of Object.entries({ good: {}, idle: {}, bad: failing })) {
  const from = join(daemon.dir, id);
  await writePackage(from, await freePort(), { id, files });
  await apps.installApp({ spec: from });
  if (id !== "idle") await apps.startApp({ id }).catch(() => undefined);
}
const browser = await launchBrowser();
try {
  for (const colorScheme of ["light", "dark"] as const) {
    for (const width of [1200, 360]) {
      const { page } = await openPage(browser, { colorScheme, viewport: { width, height: 800 } });
      await takeAll(page, `${colorScheme}-${width}`);
      await page.close();
    }
  }
  console.log(`The screenshots are in ${dir}`);
} finally {
  await browser.close();
}

async function takeAll(page: Page, suffix: string): Promise<void> {
  const take = (view: string): Promise<unknown> =>
    page.screenshot({ path: join(dir, `${view}-${suffix}.png`), fullPage: true });
  await page.goto(`http://127.0.0.1:${daemon.port}/`);
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  await take("sign-in");
  await page.goto("about:blank");
  await page.goto(await addressFor(daemon));
  await page.getByRole("progressbar").first().waitFor();
  await take("overview");
  await page.evaluate("location.hash = '#/apps'");
  await page.getByText("3 apps").waitFor();
  await take("apps");
  for (const id of ["good", "bad"]) {
    await page.evaluate(`location.hash = "#/apps/${id}"`);
    await page.getByLabel("greeting", { exact: true }).waitFor();
    await page.locator(".log .line").first().waitFor();
    await take(`app-${id}`);
  }
}
