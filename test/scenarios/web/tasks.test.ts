/** The tasks of an app on a swarm, on the page, on a real engine in swarm mode. */
import assert from "node:assert/strict";
import test from "ava";
import { join } from "node:path";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { browserPath } from "../../support/browser.ts";
import { startDaemon } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { launchBrowser } from "../../support/launch-browser.ts";
import { writeFiles } from "../../support/packages.ts";
import { findSwarmObstacle, startSwarm } from "../../support/swarm.ts";
import { isForEverybody } from "../../web/support/for-everybody.ts";
import { bundledMain } from "../../web/support/open-page.ts";
import { openView } from "../../web/support/shared-node.ts";

const obstacle = browserPath === undefined ? "no Chromium" : await findSwarmObstacle();
const needs = obstacle === undefined ? "" : ` (skipped: ${obstacle})`;
const swarmTest = obstacle === undefined ? test : test.skip;
const longMs = 60_000;

swarmTest(`an app's tasks are shown and scaled, and their states are updated${needs}`, async (t) => {
  t.timeout(280_000);
  await using swarm = await startSwarm(1);
  const { images, socket } = swarm.manager;
  const tag = `${swarm.registry}/waits:1`;
  const script = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";
  await images.build(tag, { cmd: ["/bin/sh", "-c", script] });
  await images.push(tag);
  await using daemon = await startDaemon({
    main: await bundledMain(),
    config: `[docker]\nsocket = "${socket}"\npublish_address = "0.0.0.0"`,
  });
  const spec = join(daemon.dir, "waits");
  await writeFiles(spec, {
    "svc.yaml": `id: waits\nname: Waits\nversion: "1"\ndocker: { image: "${tag}" }\n`,
  });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec, placement: { on: "swarm", replicas: 1 } });
  const browser = await launchBrowser();
  try {
    const { page, complaints } = await openView(browser, daemon, "#/apps/waits");
    const tasks = page.getByRole("region", { name: "Swarm tasks" }).first();
    await tasks.getByText("No running tasks.").waitFor();
    await page.getByRole("button", { name: "Start", exact: true }).click();
    const running = tasks.getByRole("row").filter({ hasText: "node1" }).filter({ hasText: "running" });
    await running.first().waitFor();
    t.is(await running.count(), 1);
    await isForEverybody(t, page, "tasks");

    const number = page.getByLabel("Number of tasks");
    const scale = page.getByRole("button", { name: "Scale" });
    await number.fill("0");
    await scale.click();
    t.is((await apps.getApp({ id: "waits" })).placement?.replicas, 1, "invalid input is not sent");
    await number.fill("3");
    await scale.click();
    await page.getByText("Scaled to 3 tasks.").waitFor();
    t.is((await apps.getApp({ id: "waits" })).placement?.replicas, 3);
    await running.nth(2).waitFor();
    const slots = await running.getByRole("rowheader").allTextContents();
    t.deepEqual(slots.toSorted(), ["1", "2", "3"]);

    // One is killed externally: the swarm starts another, and the page shows it by itself.
    const [first] = (await swarm.manager.request("GET", "/containers/json")).expect(200) as { Id: string }[];
    const before = await page.locator("main time").count();
    t.true(before > 0);
    (await swarm.manager.request("POST", `/containers/${first?.Id ?? ""}/kill`)).expect(204);
    await eventually(async () => {
      const now = (await apps.getApp({ id: "waits" })).tasks.map(
        ({ slot, state, node }) => `${slot}${node}${state}`,
      );
      const rows = `[...document.querySelectorAll("[aria-label='Swarm tasks'] tbody tr")]`;
      const shown = await page.evaluate<string[]>(
        `${rows}.map((row) => [...row.children].slice(0, 3).map(({ textContent }) => textContent).join(""))`,
      );
      assert.deepEqual(shown, now);
      assert.equal(now.filter((task) => task.endsWith("running")).length, 3);
    }, longMs);

    // Somebody else scales it: the page is notified without polling.
    await apps.scaleApp({ id: "waits", replicas: 1 });
    await running.nth(1).waitFor({ state: "detached" });
    await eventually(async () => assert.equal(await number.inputValue(), "1"), longMs);

    // A second task would need the same port of the only node.
    const held = join(daemon.dir, "held");
    await writeFiles(held, {
      "svc.yaml": `id: held
name: Held
version: "1"
docker: { image: "${tag}" }
settings: { properties: { port: { type: integer, default: 8140 } } }
ports: [{ name: http, setting: port, container_port: 8080 }]
`,
    });
    await apps.installApp({ spec: held, placement: { on: "swarm", replicas: 2 } });
    await apps.startApp({ id: "held" });
    await page.evaluate(`location.hash = "#/apps"`);
    await page.getByRole("link", { name: /^Held held .*Running 1 of 2 tasks/ }).waitFor();
    await page.evaluate(`location.hash = "#/"`);
    await page
      .getByRole("region", { name: "Needs attention" })
      .getByText(/1 of 2 tasks run: no suitable node/)
      .waitFor();
    t.deepEqual(complaints, []);
  } finally {
    await browser.close();
  }
});
