/**
 * `npm run screenshots [-- DIR]`: every view of the page, light and dark, wide and narrow, as PNG; those of the
 * container engine if one can be started.
 */
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { Page } from "playwright-core";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { browserPath } from "../support/browser.ts";
import { isRoot, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { startEngine, whyNoDocker, type TestEngine } from "../support/docker.ts";
import { launchBrowser } from "../support/launch-browser.ts";
import { freePort, writeFiles } from "../support/packages.ts";
import { bundledMain, openPage, signIn } from "./support/open-page.ts";
import { visitEngine, visitNode, visitViews } from "./support/visit-views.ts";

/** By ID: one runs, one is stopped, one has failed. */
const apps = {
  notes: {
    name: "Notes",
    summary: "Keeps what comes to mind.",
    program: `
console.log("listens on port " + process.env.PORT);
const pages = ["shopping", "holidays", "garden", "books"];
let turn = 0;
setInterval(() => console.log("GET /" + pages[turn++ % pages.length] + " 200 in " + (1 + turn % 4) + " ms"), 1500);`,
  },
  photos: { name: "Photos", summary: "Albums for the family.", program: "setInterval(() => {}, 1000);" },
  weather: {
    name: "Weather",
    summary: "A forecast for the next days.",
    program: `console.error("no answer from the station"); process.exit(3);`,
  },
};

const dir = resolve(process.argv[2] ?? join(import.meta.dirname, "../../.svc/screenshots"));
await mkdir(dir, { recursive: true });
await using engine = whyNoDocker === undefined ? await startEngine() : undefined;
if (engine !== undefined) await fillEngine(engine);
// Root gives the host a name that nobody has.
const launcher = ["unshare", "--uts", "--", "sh", "-c", 'hostname atlas && exec "$@"', "sh"];
await using daemon = await startDaemon({
  main: await bundledMain(),
  config: engine?.config ?? "",
  ...(isRoot && { launcher }),
});
await fillDaemon(daemon);
const browser = await launchBrowser(browserPath);
try {
  const visited = { daemon, appCount: Object.keys(apps).length, apps: ["notes", "weather"] } as const;
  for (const colorScheme of ["light", "dark"] as const) {
    for (const width of [1200, 360]) {
      const { page } = await openPage(browser, { colorScheme, viewport: { width, height: 800 } });
      const look = (view: string): Promise<unknown> => picture(page, `${view}-${colorScheme}-${width}`);
      await visitViews(page, visited, look);
      await visitNode(page, visited, look);
      if (engine !== undefined) await visitEngine(page, look);
      await page.context().close();
    }
  }
  await forReadme();
  console.log(`The screenshots are in ${dir}`);
} finally {
  await browser.close();
}

async function picture(page: Page, name: string): Promise<void> {
  await page.evaluate("scrollTo(0, 0)");
  await page.screenshot({ path: join(dir, `${name}.png`), fullPage: true });
}

/** The pictures in `docs/pictures`: small, and without a path of this host. */
async function forReadme(): Promise<void> {
  const open = async (colorScheme: "light" | "dark", width: number, height: number, hash: string) => {
    const { page } = await openPage(browser, { colorScheme, viewport: { width, height } });
    await signIn(page, daemon);
    await page.getByText("Live", { exact: true }).waitFor();
    await page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
    return page;
  };
  const take = async (page: Page, name: string, from = ""): Promise<void> => {
    if (from !== "") {
      const heading = `[...document.querySelectorAll("h2")].find(({ textContent }) => textContent === "${from}")`;
      await page.evaluate(`${heading}.scrollIntoView(); scrollBy(0, -16)`);
    }
    await page.screenshot({ path: join(dir, `readme-${name}.png`) });
    await page.context().close();
  };
  // The picture is as high as the content above the app's directory.
  const app = await open("light", 1120, 376, "#/apps/notes");
  await app.locator(".log .line").nth(7).waitFor();
  await take(app, "app");
  const week = await open("light", 1120, 340, "#/schedules");
  await week.getByText("fetch-weather").nth(1).waitFor();
  await take(week, "week", "Next 7 days");
  const question = await open("dark", 380, 520, "#/backups/notes");
  await question.getByRole("rowheader").getByRole("link").first().click();
  await question.getByRole("button", { name: "Restore app" }).click();
  await question.getByRole("dialog").waitFor();
  await take(question, "question");
}

async function fillDaemon(of: TestDaemon): Promise<void> {
  const client = of.client(AppService);
  for (const [id, { name, summary, program }] of Object.entries(apps)) {
    const spec = join(of.dir, "packages", id);
    await writeFiles(spec, {
      "svc.yaml": manifestOf(id, name, summary, await freePort()),
      "server.mjs": program,
    });
    await client.installApp({ spec });
    if (id !== "photos") await client.startApp({ id }).catch(() => undefined);
  }
  const { directory } = await client.getApp({ id: "notes" });
  const data = join(directory, "data");
  await writeFiles(join(data, "garden/2026"), {
    "plan.txt": "Tomatoes, beans, a place to sit.\n".repeat(4_000),
  });
  await writeFiles(join(data, "books"), { "read.txt": "Too many.\n".repeat(9_000) });
  await writeFiles(join(data, "holidays"), { "ideas.txt": "Somewhere with a lake.\n".repeat(1_500) });
  await of.client(BackupService).createBackup({ appId: "notes" });
  const schedules = of.client(ScheduleService);
  const jobs = [
    { id: "nightly", trigger: "daily@02:30", action: { type: "backup", app: "notes", keep: 7 } },
    { id: "tidy", trigger: "*/30 * * * *", action: { type: "shell", command: "true" } },
    { id: "report", trigger: "0 8 * * 1-5", action: { type: "shell", command: "echo nothing to report" } },
    { id: "fetch-weather", trigger: "15 6 * * *", action: { type: "shell", command: "exit 1" } },
  ];
  for (const job of jobs) await schedules.upsertSchedule(job);
  for (const id of ["nightly", "report", "fetch-weather"]) await schedules.runSchedule({ id });
}

function manifestOf(id: string, name: string, summary: string, port: number): string {
  return `id: ${id}
name: ${name}
version: "1.4.2"
summary: ${summary}
process: { exec: [node, server.mjs] }
ports: [{ name: http, setting: port }]
settings:
  properties:
    port: { description: TCP port to listen on., type: integer, minimum: 1, maximum: 65535, default: ${port}, env: PORT }
    greeting: { description: Greeting for visitors., type: string, default: Hello, env: GREETING }
    language: { type: string, enum: [en, de, fr], default: en, env: LANGUAGE }
    password: { description: Who knows it may write., type: string, secret: true, env: PASSWORD }
limits: { memory: 128MiB }
backup: { keep: 7 }
`;
}

async function fillEngine(of: TestEngine): Promise<void> {
  const image = "library/cache:7";
  await of.images.build(image);
  await of.images.build("library/cache:6", { files: { "etc/old": "1" } });
  await of.run("cache", {
    Image: image,
    Entrypoint: ["/bin/sh", "-c"],
    Cmd: ["echo ready for connections; trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"],
    // In no network: a browser aborts its loads when an interface appears.
    HostConfig: { NetworkMode: "none" },
  });
  (await of.request("POST", "/volumes/create", { Name: "cache-data" })).expect(201);
}
