/** Containers, images and volumes on the page, on a real engine. */
import { join } from "node:path";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { writeFiles } from "../../support/packages.ts";
import { isForEverybody } from "../../web/support/for-everybody.ts";
import { needsBrowser, openView, shareNode } from "../../web/support/shared-node.ts";
import test from "ava";
import { browserPath } from "../../support/browser.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { eventually } from "../../support/eventually.ts";
import assert from "node:assert/strict";

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
    await page.getByRole("link", { name: "Inventory", exact: true }).click();
    const row = page.getByRole("row").filter({ hasText: "alone" });
    await row.getByText(/^Up /).waitFor();
    await isForEverybody(t, page, "containers");
    await row.getByRole("link", { name: "alone" }).click();
    await page.locator(".log .line").filter({ hasText: "<img src=x onerror=alert(1)>" }).waitFor();
    t.is(await page.locator("main img").count(), 0);
    await page.getByRole("link", { name: "All containers" }).click();
    await row.getByRole("button", { name: "Stop" }).click();
    await row.getByText(/^Exited/).waitFor();

    await page.getByRole("link", { name: "Images" }).click();
    await page.getByRole("row").filter({ hasText: "svc/unused:1" }).waitFor();
    await isForEverybody(t, page, "images");
    await page.getByRole("button", { name: "Show unused images" }).click();
    const plan = page.getByRole("dialog");
    await plan.getByText("svc/unused:1").waitFor();
    t.is(await plan.locator(".plan").getByText("svc/kept:1").count(), 0);
    await isForEverybody(t, page, "a plan");
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
    const said = async (name: string): Promise<string> => {
      const fact = takes.locator(".facts > div").filter({ has: page.getByText(name, { exact: true }) });
      return (await fact.locator("dd").textContent()) ?? "";
    };
    await eventually(async () => {
      assert.ok(Number.parseInt(await said("CPU"), 10) >= 10, "it does nothing else");
      const [, used = "", limit] = /^([\d.]+) MiB of (.+)$/.exec(await said("Memory")) ?? [];
      assert.equal(limit, "256 MiB");
      assert.ok(Number(used) >= 64 && Number(used) < 128, `${used} MiB`);
    }, 60_000);
    await isForEverybody(t, page, "a container");

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
