/** Long lists: only visible rows are drawn, and a log does not grow without limit. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../../support/daemon.ts";
import { copyApp } from "../../support/copy-app.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { bundledMain } from "../../web/support/open-page.ts";
import {
  browserTest,
  needsBrowser,
  openView,
  openWithToken,
  shareNode,
} from "../../web/support/shared-node.ts";

const node = shareNode();
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
