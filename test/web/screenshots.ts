/** `npm run screenshots [-- DIR]`: every view of the page, light and dark, wide and narrow, as PNG, to be looked at. */
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { bundledMain, launchBrowser, openPage } from "./support/open-page.ts";
import { visitNode, visitViews } from "./support/visit-views.ts";

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
await daemon.client(BackupService).createBackup({ appId: "good" });
const schedules = daemon.client(ScheduleService);
const backup = { type: "backup", app: "good", keep: 7 };
await schedules.upsertSchedule({ id: "nightly", trigger: "daily@02:30", action: backup });
await schedules.upsertSchedule({
  id: "tidy",
  trigger: "*/30 * * * *",
  action: { type: "shell", command: "true" },
});
await schedules.runSchedule({ id: "nightly" });
const browser = await launchBrowser();
try {
  for (const colorScheme of ["light", "dark"] as const) {
    for (const width of [1200, 360]) {
      const { page } = await openPage(browser, { colorScheme, viewport: { width, height: 800 } });
      const look = (view: string): Promise<unknown> =>
        page.screenshot({ path: join(dir, `${view}-${colorScheme}-${width}.png`), fullPage: true });
      await visitViews(page, daemon, 3, look);
      await visitNode(page, daemon, look);
      await page.close();
    }
  }
  console.log(`The screenshots are in ${dir}`);
} finally {
  await browser.close();
}
