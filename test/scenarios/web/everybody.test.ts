/** The page's accessibility: keyboard only, narrow, light and dark, and without a serious finding of axe-core. */
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { freePort, writeFiles, writePackage } from "../../support/packages.ts";
import { isForEverybodyAt, notReached } from "../../web/support/for-everybody.ts";
import { openPage, signIn } from "../../web/support/open-page.ts";
import { browserTest, needsBrowser, openView, shareNode } from "../../web/support/shared-node.ts";
import { visitViews } from "../../web/support/visit-views.ts";
import { join } from "node:path";

const node = shareNode();

browserTest(`an app is found, started and opened with the keyboard only${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  await daemon.client(AppService).installApp({ spec: dir });
  const { page, complaints } = await openPage(browser);
  await signIn(page, daemon);
  await page.getByText("Live").waitFor();
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
      await isForEverybodyAt(t, page, `${view}, ${width}`);
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
