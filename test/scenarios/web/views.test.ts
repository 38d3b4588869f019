/** Any view of the page: with the keyboard, on a phone, with long lists, terminals and charts. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import type { Page } from "playwright-core";
import { AppService, GetAppStatsHistoryRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { browserPath } from "../../support/browser.ts";
import { copyApp } from "../../support/copy-app.ts";
import { startDaemon } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { launchBrowser } from "../../support/launch-browser.ts";
import { freePort, writeFiles, writePackage } from "../../support/packages.ts";
import { expectAccessibleAt, notReached } from "../../web/support/accessibility.ts";
import { openPage, signIn, bundledMain } from "../../web/support/open-page.ts";
import {
  browserTest,
  needsBrowser,
  openView,
  shareNode,
  openWithToken,
} from "../../web/support/shared-node.ts";
import { visitViews } from "../../web/support/visit-views.ts";

const main = browserPath === undefined ? "" : await bundledMain();

// The page's accessibility: keyboard only, narrow, light and dark, and without a serious finding of axe-core.

const node = shareNode();

browserTest(`an app is found, started and opened with the keyboard only${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  await daemon.client(AppService).installApp({ spec: dir });
  const { page, complaints } = await openPage(browser);
  await signIn(page, daemon);
  await page.getByText("Live", { exact: true }).waitFor();
  /** Presses Tab until it has the focus. */
  const goTo = async (name: string): Promise<void> => {
    for (let steps = 0; steps < 40; steps++) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(
        "document.activeElement.ariaLabel ?? document.activeElement.textContent.trim()",
      );
      if (at === name) return;
    }
    t.fail(`Tab never reaches ${name}`);
  };
  await goTo("Apps");
  await page.keyboard.press("Enter");
  await page.getByText("1 app").waitFor();
  await goTo("Filter by name, ID or owner");
  await page.keyboard.type("test web");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Test web server" }).waitFor();
  await goTo("Start");
  await page.keyboard.press("Enter");
  await page.locator('[data-state="RUNNING"]').first().waitFor();
  t.deepEqual(complaints, []);
  await daemon.client(AppService).removeApp({ id: "web" });
});

browserTest(`every view is accessible, light and dark, wide and narrow${needsBrowser}`, async (t) => {
  t.timeout(300_000);
  const { daemon, browser } = node;
  for (const id of ["good", "bad"]) {
    const dir = join(daemon.dir, id);
    const files = id === "bad" ? { "server.mjs": "process.exit(3);" } : {};
    await writePackage(dir, await freePort(), { id, files });
    const started = daemon.client(AppService);
    await started.installApp({ spec: dir });
    await started.startApp({ id }).catch(() => undefined);
  }
  // Each starts in one color scheme and shows both in each view.
  for (const [width, colorScheme] of [
    [1200, "light"],
    [360, "dark"],
  ] as const) {
    const { page, complaints } = await openPage(browser, { colorScheme, viewport: { width, height: 800 } });
    await visitViews(page, { daemon, appCount: 2, apps: ["good", "bad"] }, async (view) => {
      await expectAccessibleAt(t, page, `${view}, ${width}`);
      t.deepEqual(await notReached(page), [], `${view}, ${width}`);
    });
    t.deepEqual(complaints, []);
  }
});

browserTest(`a word of any length makes no view wider than a phone${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "long");
  const word = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft";
  await writeFiles(dir, {
    "svc.yaml": [
      `{ id: long, name: ${word}, version: "1", summary: ${word}, process: { exec: ["true"] },`,
      `settings: { properties: { ${"k".repeat(60)}: { type: string, description: ${word}, env: K } } } }`,
    ].join("\n"),
  });
  await daemon.client(AppService).installApp({ spec: dir });
  const { page, complaints } = await openView(browser, daemon, "#/");
  await page.setViewportSize({ width: 360, height: 800 });
  for (const hash of ["#/apps", "#/apps/long", "#/backups/long"]) {
    await page.evaluate(`location.hash = "${hash}"`);
    await page.locator("main").getByText(word).first().waitFor();
    if (hash === "#/apps/long") await page.getByLabel("kkk").waitFor();
    t.is(await page.evaluate("document.documentElement.scrollWidth"), 360, hash);
  }
  t.deepEqual(complaints, []);
});

// Long lists: only visible rows are drawn, and a log does not grow without limit.

const apps = 1_000;
const lines = 12_000;
/** The number of log lines that the page retains. */
const mostLines = 10_000;
/** More rows than any screen shows, including those that the browser draws in advance. */
const mostDrawn = 300;

/** The number of elements that match `selector`, and how many of them the browser draws. */
async function countOf(page: Page, selector: string): Promise<{ all: number; drawn: number }> {
  return page.evaluate<{ all: number; drawn: number }>(`(() => {
    const found = [...document.querySelectorAll(${JSON.stringify(selector)})];
    const drawn = found.filter((each) => each.checkVisibility({ contentVisibilityAuto: true }));
    return { all: found.length, drawn: drawn.length };
  })()`);
}

browserTest(`only the visible of a thousand apps are drawn, and any is found${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  await using daemon = await startDaemon({
    main: await bundledMain(),
    listen: `127.0.0.1:${await freePort()}`,
  });
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  await daemon.client(AppService).installApp({ spec: dir });
  await daemon.stop();
  copyApp(join(daemon.storeDir, "svc.db"), "web", apps);
  await daemon.restart();
  const { page, complaints } = await openWithToken(node.browser, daemon, "#/apps");
  await page.getByText(`${apps} apps`).waitFor();
  await eventually(async () => {
    const { all, drawn } = await countOf(page, ".list li > a > .name");
    assert.equal(all, apps);
    assert.ok(drawn > 5 && drawn < mostDrawn, `${drawn} are drawn`);
  }, 40_000);
  await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)");
  await eventually(async () => {
    const isDrawn = `[...document.querySelectorAll(".list .name")].at(-1).checkVisibility({ contentVisibilityAuto: true })`;
    assert.equal(await page.evaluate(isDrawn), true);
  }, 40_000);
  await page.getByLabel("Filter by name, ID or owner").fill("web-777");
  await page.getByText("1 app", { exact: true }).waitFor();
  await page.getByRole("link", { name: "web-777" }).waitFor();
  t.deepEqual(complaints, []);
});

browserTest(
  `a long log keeps the newest lines, and only visible ones are drawn${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const dir = join(daemon.dir, "prints");
    const program = `
      import { existsSync } from "node:fs";
      for (let line = 1; line <= ${lines}; line++) console.log("line " + line);
      let more = 0;
      setInterval(() => existsSync("more" + more) && console.log("filler\\n".repeat(300) + "more " + more++), 50);`;
    await writePackage(dir, await freePort(), { id: "prints", files: { "server.mjs": program } });
    const { directory } = await daemon.client(AppService).installApp({ spec: dir });
    const { page, complaints } = await openView(browser, daemon, "#/apps/prints");
    await page.getByText("No output yet.").waitFor();
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.getByText(`line ${lines}`, { exact: true }).waitFor({ state: "attached" });
    await eventually(async () => {
      const { all, drawn } = await countOf(page, ".log .line");
      assert.ok(all > mostLines - 200 && all <= mostLines, `${all} are kept`);
      assert.ok(drawn > 5 && drawn < mostDrawn, `${drawn} are drawn`);
    }, 40_000);
    t.is(await page.getByText("line 1", { exact: true }).count(), 0, "the oldest lines are removed");
    const log = page.getByRole("log");
    const leftBelow = (): Promise<number> =>
      log.evaluate<number, { scrollHeight: number; scrollTop: number; clientHeight: number }>(
        ({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight,
      );
    const print = async (number: number): Promise<void> => {
      await writeFile(join(directory, `repo/more${number}`), "");
      await page.getByText(`more ${number}`, { exact: true }).waitFor({ state: "attached" });
    };
    await print(0);
    await eventually(async () => assert.ok((await leftBelow()) < 2), 40_000);
    await page.getByLabel("Follow").uncheck();
    await log.evaluate<undefined, { scrollTop: number }>((box) => void (box.scrollTop = 0));
    await print(1);
    t.true((await leftBelow()) > 1_000, "the lines being read stay visible");
    const { all } = await countOf(page, ".log .line");
    t.true(all <= mostLines, `${all} lines are retained`);
    await page.getByLabel("Follow").check();
    await eventually(async () => assert.ok((await leftBelow()) < 2), 40_000);
    await page.getByLabel("Filter lines").fill("line 9999");
    await eventually(async () => {
      assert.deepEqual(await page.locator(".log .line").allTextContents(), ["line 9999"]);
    }, 40_000);
    await page.getByLabel("Filter lines").fill("LINE 9999");
    await page.getByText("line 9999", { exact: true }).waitFor();
    await page.getByLabel("Filter lines").fill("nowhere");
    await page.getByText("No matching lines.").waitFor();
    t.deepEqual(complaints, []);
  },
);

browserTest(`a log shows skipped lines and its end${needsBrowser}`, async (t) => {
  t.timeout(120_000);
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "quiet");
  await writePackage(dir, await freePort(), { id: "quiet" });
  await daemon.client(AppService).installApp({ spec: dir });
  const { page, complaints } = await openView(browser, daemon, "#/apps");
  const isLeft = Promise.withResolvers<undefined>();
  await page.routeWebSocket(/session=logs/, async (socket) => {
    socket.send(JSON.stringify({ type: "opened", interactive: false }));
    socket.send(Buffer.from("before\r\n"));
    socket.send(JSON.stringify({ type: "gap", bytes: 2_048 }));
    socket.send(Buffer.from("behind\r\n"));
    await isLeft.promise;
    await socket.close();
  });
  await page.evaluate("location.hash = '#/apps/quiet'");
  await page.getByText("2.0 KiB skipped").waitFor();
  t.deepEqual(
    (await page.locator(".log .line").allTextContents()).filter((line) => line !== " "),
    ["before", "2.0 KiB skipped", "behind"],
  );
  isLeft.resolve(undefined);
  await page.getByText("Log disconnected.").waitFor();
  await page.getByRole("button", { name: "Reconnect" }).waitFor();
  t.deepEqual(complaints, []);
});

// A terminal in the page, and charts: loaded when they are opened, under the page's strict policy.

const why = browserPath === undefined ? " (skipped: no Chromium)" : "";

browserTest(
  `a terminal is used and closed with the keyboard, and charts describe their content${why}`,
  async (t) => {
    t.timeout(240_000);
    await using daemon = await startDaemon({ main });
    const browser = await launchBrowser();
    try {
      const dir = join(daemon.dir, "web");
      await writePackage(dir, await freePort(), { manifest: "console: { exec: [sh, -i] }\n" });
      const apps = daemon.client(AppService);
      await apps.installApp({ spec: dir });
      await apps.startApp({ id: "web" });
      const { page, complaints, asked } = await openPage(browser);
      await signIn(page, daemon);
      await page.getByText("Live", { exact: true }).waitFor();
      await page.getByRole("img", { name: /^Memory: used [\d.]+ [KMGT]iB/ }).waitFor();
      await page.evaluate("location.hash = '#/apps/web'");
      await page.getByRole("button", { name: "Start", exact: true }).waitFor();
      await page.getByRole("img", { name: /^CPU: / }).waitFor();
      const ofMonth = page.waitForResponse((response) => {
        const asked = response.url().includes("GetAppStatsHistory") && response.request().postDataBuffer();
        return asked instanceof Buffer && fromBinary(GetAppStatsHistoryRequestSchema, asked).step === 7_200;
      });
      await page.getByLabel("month").check();
      t.true((await ofMonth).ok());
      await page.getByRole("img", { name: /^Memory: / }).waitFor();
      t.deepEqual(
        asked.filter((url) => url.includes("/web/terminal-")),
        [],
        "the terminal is loaded when it is opened",
      );

      await page.getByRole("button", { name: "Open console" }).click();
      const terminal = page.locator(".console");
      await terminal.locator(".xterm-rows").filter({ hasText: /[$#]/ }).waitFor();
      await page.keyboard.type("echo $((6*7)) $(tput cols)\n");
      await terminal
        .locator(".xterm-rows")
        .filter({ hasText: /42 \d+/ })
        .waitFor();
      // A program's output cannot set the title, and its links are not opened.
      await page.keyboard.type(
        String.raw`printf '\033]0;evil\007\033]8;;http://evil.example/\033\\click\033]8;;\033\\ <b>d''one</b>\n'` +
          "\n",
      );
      await terminal.locator(".xterm-rows").filter({ hasText: "click <b>done</b>" }).waitFor();
      t.is(await page.title(), "Test web server – svc");
      t.is(await page.locator(".console b").count(), 0);
      const colour = 'getComputedStyle(document.querySelector(".xterm-rows")).color';
      t.is(await page.evaluate(colour), "rgb(255, 255, 255)", "the policy allows its style");

      await page.keyboard.press("Control+Shift+X");
      t.is(await page.evaluate("document.activeElement.textContent"), "Close terminal");
      await terminal.getByRole("textbox").focus();
      await page.keyboard.type("exit 3\n");
      await page.getByText("Exited with code 3.").waitFor();
      await page.getByRole("button", { name: "Close terminal" }).click();
      await terminal.waitFor({ state: "detached" });

      // Leaving before the connection is open causes no browser error.
      await page.evaluate(`WebSocket = class extends WebSocket {
        constructor(...args) {
          super(...args);
          globalThis.isClosed = new Promise((resolve) => this.addEventListener("close", () => resolve(true)));
          queueMicrotask(() => document.getElementById("close-terminal").click());
        }
      }`);
      await page.getByRole("button", { name: "Open console" }).click();
      await eventually(async () => t.true(await page.evaluate("isClosed")));
      t.is(await terminal.count(), 0);
      t.deepEqual(
        asked.filter((url) => !url.startsWith(new URL("/", page.url()).href)),
        [],
      );
      t.deepEqual(complaints, []);
    } finally {
      await browser.close();
    }
  },
);
