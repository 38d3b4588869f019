/** Containers, images, volumes and tasks of a swarm on the page, on a real engine. */
import assert from "node:assert/strict";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { browserPath } from "../../support/browser.ts";
import { startDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { eventually } from "../../support/eventually.ts";
import { launchBrowser } from "../../support/launch-browser.ts";
import { writeFiles } from "../../support/packages.ts";
import { findSwarmObstacle, startSwarm } from "../../support/swarm.ts";
import { expectAccessible } from "../../web/support/accessibility.ts";
import { bundledMain } from "../../web/support/open-page.ts";
import { needsBrowser, openView, shareNode } from "../../web/support/shared-node.ts";

const obstacle = browserPath === undefined ? "no Chromium" : await findSwarmObstacle();

// Containers, images and volumes on the page, on a real engine.

const engineNow = sharedEngine();
const node = shareNode(() => (needsDocker === "" ? engineNow().config : ""));
const engineTest = browserPath === undefined ? test.skip : dockerTest;
const projectTest = browserPath === undefined ? test.skip : composeTest;

engineTest(
  `containers and images are shown, and removed after a readable plan${needsBrowser}${needsDocker}`,
  async (t) => {
    t.timeout(240_000);
    const { daemon, browser } = node;
    const engine = engineNow();
    const says = `echo '<img src=x onerror=alert(1)>'; trap 'exit 0' TERM; while :; do sleep 3600 & wait; done`;
    await engine.images.build("svc/kept:1");
    await engine.images.build("svc/unused:1", { files: { "etc/unused": "1" } });
    // In no network: a browser aborts its loads when an interface appears.
    const id = await engine.run("alone", {
      Image: "svc/kept:1",
      Entrypoint: ["/bin/sh", "-c"],
      Cmd: [says],
      HostConfig: { NetworkMode: "none" },
    });
    for (const Name of ["left-over", "not-ticked"])
      (await engine.request("POST", "/volumes/create", { Name })).expect(201);

    const { page, complaints } = await openView(browser, daemon, "#/");
    await page.getByRole("link", { name: "Docker & system", exact: true }).click();
    const row = page.getByRole("row").filter({ hasText: "alone" });
    await row.getByText(/^Up /).waitFor();
    await expectAccessible(t, page, "containers");
    await row.getByRole("link", { name: "alone" }).click();
    await page.locator(".log .line").filter({ hasText: "<img src=x onerror=alert(1)>" }).waitFor();
    t.is(await page.locator("main img").count(), 0);
    await page.getByRole("link", { name: "All containers" }).click();
    await row.getByRole("button", { name: "Stop" }).click();
    await row.getByText(/^Exited/).waitFor();

    await page.getByRole("link", { name: "Images" }).click();
    await page.getByRole("row").filter({ hasText: "svc/unused:1" }).waitFor();
    await expectAccessible(t, page, "images");
    await page.getByRole("button", { name: "Show unused images" }).click();
    const plan = page.getByRole("dialog");
    await plan.getByText("svc/unused:1").waitFor();
    t.is(await plan.locator(".plan").getByText("svc/kept:1").count(), 0);
    await expectAccessible(t, page, "a plan");
    t.is(
      await page.getByRole("row").filter({ hasText: "svc/unused:1" }).count(),
      1,
      "a plan removes nothing",
    );
    await plan.getByRole("button", { name: "Remove selected" }).click({ force: true });
    t.is(await plan.count(), 1, "nothing is selected yet");
    await plan.getByLabel("svc/unused:1").check();
    await plan.getByRole("button", { name: "Remove selected" }).click();
    await page.getByText(/^1 removed, .* freed/).waitFor();
    await page.getByRole("row").filter({ hasText: "svc/unused:1" }).waitFor({ state: "detached" });

    await page.getByRole("link", { name: "Volumes" }).click();
    await page.getByRole("row").filter({ hasText: "left-over" }).waitFor();
    await page.getByRole("button", { name: "Show unused volumes" }).click();
    await page
      .getByRole("dialog")
      .getByText(/lost permanently/)
      .waitFor();
    (await engine.request("POST", "/volumes/create", { Name: "came-later" })).expect(201);
    await plan.getByLabel("Select all (2)").check();
    await plan.getByLabel("not-ticked").uncheck();
    await plan.getByText("1 selected").waitFor();
    await plan.getByRole("button", { name: "Remove selected" }).click();
    await page.getByText(/^1 removed, /).waitFor();
    const { Volumes } = (await engine.request("GET", "/volumes")).expect(200) as {
      Volumes: { Name: string }[];
    };
    t.deepEqual(
      Volumes.map(({ Name }) => Name).toSorted(),
      ["came-later", "not-ticked"],
      "only the selected items",
    );

    await page.getByRole("link", { name: "Containers" }).click();
    await row.getByRole("button", { name: "Remove" }).click();
    await page
      .getByRole("dialog")
      .getByText(/is lost/)
      .waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await eventually(async () => {
      const left = (await engine.request("GET", "/containers/json?all=1")).expect(200) as { Id: string }[];
      assert.deepEqual(
        left.filter((container) => container.Id === id),
        [],
      );
    }, 40_000);
    await row.waitFor({ state: "detached" });
    t.deepEqual(complaints, []);
  },
);

projectTest(`a container becomes an app after a readable plan${needsBrowser}${needsCompose}`, async (t) => {
  t.timeout(240_000);
  const { daemon, browser } = node;
  const engine = engineNow();
  await engine.images.build("svc/adopted:1");
  // In no network: a browser aborts its loads when an interface appears.
  const HostConfig = { NetworkMode: "none", Binds: ["adopted-data:/data"] };
  const id = await engine.run("unmanaged", { Image: "svc/adopted:1", HostConfig });
  const { page, complaints } = await openView(browser, daemon, "#/inventory/containers");
  const row = page.getByRole("row").filter({ hasText: "unmanaged" });
  await row.getByRole("button", { name: "Adopt…" }).click();
  const plan = page.getByRole("dialog");
  await plan.getByText("adopted-data").waitFor();
  await expectAccessible(t, page, "the plan of an adoption");
  await plan.getByRole("button", { name: "Adopt", exact: true }).click();
  await page.getByRole("heading", { name: "unmanaged" }).waitFor({ timeout: 120_000 });
  t.like(await daemon.client(AppService).getApp({ id: "unmanaged" }), { state: "RUNNING" });
  const facts = page.getByRole("region", { name: "Details" });
  await facts.getByText("Adopted data").waitFor();
  t.deepEqual(complaints, []);
  await daemon.client(AppService).removeApp({ id: "unmanaged" });
  (await engine.request("DELETE", `/containers/${id}`)).expect(204);
});

engineTest(
  `a container's resource usage is shown while it runs, and its exit is shown${needsBrowser}${needsDocker}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const engine = engineNow();
    await engine.images.build("svc/busy:1");
    // Uses as much CPU as it gets, and a 64 MiB file in memory.
    const id = await engine.run("busy", {
      Image: "svc/busy:1",
      Entrypoint: ["/bin/sh", "-c"],
      Cmd: ["dd if=/dev/zero of=/dev/shm/held bs=1M count=64; echo ready; while :; do :; done"],
      HostConfig: { NetworkMode: "none", Memory: 256 * 2 ** 20, ShmSize: 128 * 2 ** 20 },
    });
    const { page, complaints } = await openView(browser, daemon, `#/inventory/containers/${id}`);
    const takes = page.getByRole("region", { name: "Resource usage" });
    const figureOf = async (name: string): Promise<string> => {
      const fact = takes.locator(".facts > div").filter({ has: page.getByText(name, { exact: true }) });
      return (await fact.locator("dd").textContent()) ?? "";
    };
    await eventually(async () => {
      assert.ok(Number.parseInt(await figureOf("CPU"), 10) >= 10, "it does nothing else");
      const [, used = "", limit] = /^([\d.]+) MiB of (.+)$/.exec(await figureOf("Memory")) ?? [];
      assert.equal(limit, "256 MiB");
      assert.ok(Number(used) >= 64 && Number(used) < 128, `${used} MiB`);
    }, 60_000);
    await expectAccessible(t, page, "a container");

    // It is stopped externally: no current resource usage is shown.
    (await engine.request("POST", `/containers/${id}/kill`)).expect(204);
    await takes.waitFor({ state: "detached" });
    await page.getByText(/^Exited \(137\)/).waitFor();
    (await engine.request("DELETE", `/containers/${id}`)).expect(204);
    await page.getByRole("alert").waitFor();
    t.deepEqual(
      complaints.filter((text) => !text.includes("status of 404")),
      [],
    );
  },
);

projectTest(
  `a shell opens in a service of a compose project, and in another one after a selection${needsBrowser}${needsCompose}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    await engineNow().images.build("svc/pair:1");
    const service = (name: string): string => `
  ${name}:
    image: svc/pair:1
    network_mode: none
    environment: { WHO: ${name} }
    command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"]`;
    const spec = join(daemon.dir, "pair");
    await writeFiles(spec, {
      "svc.yaml": 'id: pair\nname: Pair\nversion: "1"\ncompose: { file: compose.yaml }\n',
      "compose.yaml": `services:${service("one")}${service("two")}\n`,
    });
    const apps = daemon.client(AppService);
    await apps.installApp({ spec });
    await apps.startApp({ id: "pair" });
    const { page, complaints } = await openView(browser, daemon, "#/apps/pair");
    await page.getByRole("button", { name: "Open shell" }).click();
    const rows = page.locator(".console .xterm-rows");
    for (const [at, who] of ["one", "two"].entries()) {
      if (at > 0) {
        await page.getByLabel("Service").selectOption(who);
        await rows.filter({ hasText: "it is one." }).waitFor({ state: "detached" });
      }
      await rows.filter({ hasText: /[$#]/ }).waitFor();
      await page.keyboard.type('echo "it is $WHO."\n');
      await rows.filter({ hasText: `it is ${who}.` }).waitFor();
    }
    t.deepEqual(complaints, []);
    await apps.removeApp({ id: "pair" });
  },
);

projectTest(
  `the page of an app lists all ports of its project, also random ones${needsBrowser}${needsCompose}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    await engineNow().images.build("svc/ports:1");
    const spec = join(daemon.dir, "ports");
    const script = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";
    await writeFiles(spec, {
      "svc.yaml": 'id: ports\nname: Ports\nversion: "1"\ncompose: { file: compose.yaml }\n',
      "compose.yaml": JSON.stringify({
        services: { web: { image: "svc/ports:1", command: ["/bin/sh", "-c", script], ports: ["80", "81"] } },
      }),
    });
    const apps = daemon.client(AppService);
    await apps.installApp({ spec });
    await apps.startApp({ id: "ports" });
    const { ports } = await apps.listAppPorts({ id: "ports" });
    t.is(new Set(ports.map(({ port }) => port)).size, 2);
    const { page, complaints } = await openView(browser, daemon, "#/apps/ports");
    for (const { port, name } of ports) {
      await page
        .getByRole("link", { name: `${port} (${name})` })
        .first()
        .waitFor();
    }
    t.deepEqual(complaints, []);
    await apps.removeApp({ id: "ports" });
  },
);

// The tasks of an app on a swarm, on the page, on a real engine in swarm mode.

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
    await expectAccessible(t, page, "tasks");

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
