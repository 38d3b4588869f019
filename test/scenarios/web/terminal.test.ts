/** A terminal in the page, and charts: loaded when they are opened, under the page's strict policy. */
import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import test from "ava";
import { AppService, GetAppStatsHistoryRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { browserPath } from "../../support/browser.ts";
import { startDaemon } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { launchBrowser } from "../../support/launch-browser.ts";
import { bundledMain, openPage, signIn } from "../../web/support/open-page.ts";

const why = browserPath === undefined ? " (skipped: no Chromium)" : "";
const browserTest = browserPath === undefined ? test.skip : test;
const main = browserPath === undefined ? "" : await bundledMain();

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
      await page.getByText("Live").waitFor();
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
