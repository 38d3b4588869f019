/** `npm run screenshots [-- DIR]`: every view of the page, light and dark, wide and narrow, as PNG, to be looked at. */
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { bundledMain, launchBrowser, openPage } from "./support/open-page.ts";
import { visitViews } from "./support/visit-views.ts";

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
      await visitViews(page, daemon, 3, (view) =>
        page.screenshot({ path: join(dir, `${view}-${colorScheme}-${width}.png`), fullPage: true }),
      );
      await page.close();
    }
  }
  console.log(`The screenshots are in ${dir}`);
} finally {
  await browser.close();
}
