/** The host, its ports and processes, its tokens and its audit log on the page, for root and for a user. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { promisify } from "node:util";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { ExecutionContext } from "ava";
import type { Page } from "playwright-core";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { AuditService } from "../../../gen/svc/v1/audit_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import {
  InterfaceMetricsSchema,
  MonitorService,
  SystemMetricsSchema,
} from "../../../gen/svc/v1/monitor_pb.ts";
import { ProcessService, SignalProcessRequestSchema } from "../../../gen/svc/v1/process_pb.ts";
import { TokenService } from "../../../gen/svc/v1/token_pb.ts";
import { needsRoot } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { expectAccessible } from "../../web/support/accessibility.ts";
import {
  browserTest,
  needsBrowser,
  openView,
  openWithToken,
  shareNode,
  usersTest,
} from "../../web/support/shared-node.ts";

import { fetchFromDaemon } from "../../web/support/open-page.ts";
const node = shareNode(() => '[docker]\nsocket = "/nowhere/docker.sock"\n');

async function expectSameAsDf(t: ExecutionContext, page: Page, bar: string, path = "/"): Promise<void> {
  const { stdout } = await promisify(execFile)("df", ["--output=pcent", path]);
  const [, percent = ""] = stdout.split("\n");
  const said = Number(await page.getByRole("progressbar", { name: bar, exact: true }).getAttribute("value"));
  // df rounds up, and other processes write at the same time.
  t.true(Math.abs(said - Number.parseInt(percent, 10)) < 3, `${bar}: ${said}, ${stdout}`);
}

browserTest(`the host's figures are shown, and a session may not reboot it${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const { page, complaints } = await openView(browser, daemon, "#/");
  await expectSameAsDf(t, page, "Disk /");
  await page.getByRole("link", { name: "Host", exact: true }).click();
  const table = page.getByRole("region", { name: "Filesystems" });
  await table.waitFor();
  // The page polls every few seconds, and others mount file systems at the same time.
  const cpuCount = await eventually(async () => {
    const now = await daemon.client(MonitorService).getSystemMetrics({});
    assert.deepEqual(
      await table.locator("tbody th").allTextContents(),
      now.filesystems.map(({ path }) => path),
    );
    return now.cpuCount;
  }, 60_000);
  await expectSameAsDf(t, page, "/");
  t.is(await page.getByText(/^CPU \d+$/).count(), cpuCount);
  await page.getByText(/sudo svc reboot/).waitFor();
  t.is(await page.getByRole("button", { name: "Reboot" }).count(), 0);
  await expectAccessible(t, page, "the machine");
  t.deepEqual(complaints, []);
});

browserTest(
  `the page waits for the first sample instead of failing to read one${needsBrowser}`,
  async (t) => {
    const { daemon, browser } = node;
    const { page, complaints } = await openView(browser, daemon, "#/apps");
    const reads: string[] = [];
    page.on("request", (request) => {
      const method = /\w+SystemMetrics$/.exec(request.url())?.[0];
      if (method !== undefined) reads.push(method);
    });
    await page.evaluate("location.hash = '#/host'");
    await eventually(() => assert.ok(reads.length > 1), 20_000);
    t.deepEqual(reads.slice(0, 2), ["StreamSystemMetrics", "GetSystemMetrics"]);
    t.deepEqual(complaints, []);
  },
);

browserTest(`interfaces of containers are grouped apart from the host's${needsBrowser}`, async (t) => {
  const { daemon, browser } = node;
  const { page, complaints } = await openView(browser, daemon, "#/");
  await page.route("**/GetSystemMetrics", async (route) => {
    const response = await fetchFromDaemon(route);
    const now = fromBinary(SystemMetricsSchema, await response.body());
    const names = ["eth0", "vethb4c11a4", "docker0", "veth7addbbc"];
    now.interfaces = names.map((name) => create(InterfaceMetricsSchema, { name }));
    await route.fulfill({ response, body: Buffer.from(toBinary(SystemMetricsSchema, now)) });
  });
  await page.setViewportSize({ width: 390, height: 800 });
  await page.evaluate("location.hash = '#/host'");
  const names = page.getByRole("region", { name: "Networks" }).getByRole("rowheader");
  await names.first().waitFor();
  // The first sample comes from the stream unchanged.
  await eventually(async () => assert.deepEqual(await names.allTextContents(), ["eth0", "docker0"]), 20_000);
  await page.getByText("Container interfaces (2)").click();
  const pairs = page.getByRole("region", { name: "Container interfaces" }).getByRole("rowheader");
  await pairs.first().waitFor();
  t.deepEqual(await pairs.allTextContents(), ["vethb4c11a4", "veth7addbbc"]);
  await expectAccessible(t, page, "networks");
  t.deepEqual(complaints, []);
});

browserTest(
  `a host without a container engine explains what it means and what to do${needsBrowser}`,
  async (t) => {
    const { daemon, browser } = node;
    const { page } = await openView(browser, daemon, "#/inventory");
    for (const part of ["Containers", "Images", "Volumes", "Networks"]) {
      await page.getByRole("link", { name: part }).click();
      await page.getByRole("heading", { name: part }).waitFor();
      const said = page.getByRole("main").getByRole("status");
      await said.filter({ hasText: "No container engine responds." }).waitFor();
      t.regex((await said.textContent()) ?? "", /do not need one.*nowhere.*install and start Docker.*Reload/);
      t.is(await page.getByRole("alert").count(), 0, "nothing is broken");
    }
    await expectAccessible(t, page, "no engine");
  },
);

browserTest(`a reboot requires the primary token and the host's name${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const { page, complaints, asked } = await openWithToken(browser, daemon, "#/host");
  const { hostname } = await daemon.client(DaemonService).getStatus({});
  const reboots = async (): Promise<number> =>
    (await daemon.client(AuditService).listAudit({ method: "RebootSystem" })).records.length;
  await page.getByRole("button", { name: "Reboot" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/unsaved work is lost/).waitFor();
  t.is(await dialog.getByRole("button", { name: "Reboot" }).getAttribute("aria-disabled"), "true");
  await dialog.getByRole("textbox").fill("another");
  await page.keyboard.press("Enter");
  // Earlier requests are answered before later ones.
  await page.evaluate("fetch('/healthz').then(({ status }) => status)");
  t.deepEqual(
    asked.filter((url) => url.includes("RebootSystem")),
    [],
    "nothing without its name",
  );
  await dialog.getByRole("textbox").fill(hostname);
  await page.keyboard.press("Enter");
  await page.getByText(/Rebooting in \d+ s/).waitFor();
  // A record is written after the response.
  await eventually(async () => assert.equal(await reboots(), 1), 40_000);
  t.deepEqual(complaints, []);
});

browserTest(
  `processes and ports are those of the host, and a process can be killed${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const dir = join(daemon.dir, "listens");
    const port = await freePort();
    await writePackage(dir, port, { id: "listens" });
    await daemon.client(AppService).installApp({ spec: dir });
    await daemon.client(AppService).startApp({ id: "listens" });
    const hostile = "<b>bold</b>\u202egnp.exe";
    const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1e6)", hostile], { stdio: "ignore" });
    t.teardown(() => child.kill("SIGKILL"));
    const ended = once(child, "exit") as Promise<[number | null, NodeJS.Signals | null]>;
    const { page, complaints } = await openView(browser, daemon, "#/inventory/ports");
    await page.getByRole("heading", { name: "Ports" }).waitFor();
    const row = page.getByRole("row").filter({ hasText: `${port}/tcp` });
    await row.getByRole("link", { name: "listens" }).waitFor();
    await expectAccessible(t, page, "ports");

    await page.getByRole("link", { name: "Processes" }).click();
    // The ports shown until then are rows, too.
    await page.getByRole("heading", { name: "Processes" }).waitFor();
    const rows = page.getByRole("rowheader");
    await rows.first().waitFor();
    t.true((await rows.count()) <= 50, "only the busiest are shown first");
    await page.setViewportSize({ width: 390, height: 800 });
    const first = page.getByRole("row").filter({ has: rows }).first();
    // In one evaluation, because the list is redrawn when another process becomes the busiest.
    const cells = await first.locator("td.figure, td.word").evaluateAll((all) =>
      (all as { getBoundingClientRect(): { top: number; height: number } }[]).map((cell) => {
        const { top, height } = cell.getBoundingClientRect();
        return { top, height };
      }),
    );
    const tops = cells.filter(({ height }) => height > 0).map(({ top }) => top);
    t.true(new Set(tops).size < tops.length, `short figures share lines if there is space: ${tops.join()}`);
    t.false(await first.locator('[data-title="App"]').isVisible(), "no app is named");
    await page.setViewportSize({ width: 1200, height: 900 });
    await page.getByLabel("Filter by name, command or user").fill("<b>bold");
    const process_ = page.getByRole("row").filter({ hasText: "<b>bold</b>\\u202egnp.exe" });
    await process_.waitFor();
    t.is(await page.locator("main b").count(), 0);
    await expectAccessible(t, page, "processes");
    await process_.getByRole("button", { name: "Terminate" }).click();
    t.is(child.exitCode ?? child.signalCode, null, "an open dialog is not an answer");
    const { processes } = await daemon.client(ProcessService).listProcesses({});
    const [asked] = await Promise.all([
      page.waitForRequest("**/svc.v1.ProcessService/SignalProcess"),
      page.getByRole("dialog").getByRole("button", { name: "Terminate" }).click(),
    ]);
    t.is(
      fromBinary(SignalProcessRequestSchema, asked.postDataBuffer() ?? new Uint8Array()).expectedStartTicks,
      processes.find(({ pid }) => pid === child.pid)?.startTicks,
      "no other process that has this number by then",
    );
    t.deepEqual(await ended, [null, "SIGTERM"]);
    await eventually(async () => {
      await page.getByRole("button", { name: "Reload" }).click();
      await page.getByText("No matching processes").waitFor({ timeout: 2_000 });
    }, 60_000);

    await page.getByRole("link", { name: "Disk", exact: true }).click();
    await page.getByRole("row").filter({ hasText: "listens" }).waitFor();
    await expectSameAsDf(t, page, "Filesystem of apps", daemon.dir);
    await expectAccessible(t, page, "disk");
    t.deepEqual(
      // A missing engine uses no disk space.
      complaints.filter((text) => !text.includes("status of 503")),
      [],
    );
  },
);

browserTest(
  `a token is shown once and revoked, and the audit log names the caller${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const session = await openView(browser, daemon, "#/access");
    await session.page.getByText(/svc token, with sudo/).waitFor();
    t.is(await session.page.getByRole("button", { name: "Issue" }).count(), 0);

    const { page, complaints } = await openWithToken(browser, daemon, "#/");
    await page.getByRole("link", { name: "Access", exact: true }).click();
    await page.getByLabel("Purpose").fill("<i>watching</i>");
    await page.getByRole("button", { name: "Issue" }).click();
    const token = (await page.locator("pre.command").textContent()) ?? "";
    t.truthy((await daemon.tokenClient(DaemonService, "connect", token).getStatus({})).version);
    await expectAccessible(t, page, "access");
    await page.evaluate("navigator.clipboard.writeText = () => Promise.reject(new Error('refused'))");
    await page.getByRole("button", { name: "Copy" }).click();
    await page.getByText(/the browser does not allow it/).waitFor();
    await page.getByRole("button", { name: "Hide" }).click();
    t.false((await page.content()).includes(token));

    await page.getByRole("button", { name: "Revoke all access tokens" }).click();
    const dialog = page.getByRole("dialog");
    t.is(
      (await daemon.client(TokenService).getTokenStatus({})).accessTokens,
      1,
      "an open dialog is not an answer",
    );
    await dialog.getByRole("button", { name: "Revoke all access tokens" }).click();
    await page.getByText("1 revoked.").waitFor();
    const refused = await errorOf(daemon.tokenClient(DaemonService, "connect", token).getStatus({}));
    t.is(refused.reason, "unauthenticated");

    await page.getByLabel("Method").fill("IssueAccessToken");
    await page.getByRole("button", { name: "Search" }).click();
    const row = page.getByRole("row").filter({ hasText: "Token IssueAccessToken" });
    await row.filter({ hasText: "primary token" }).first().waitFor();
    await page.getByRole("row").filter({ hasText: "RevokeAccessTokens" }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Verify audit log" }).click();
    await page.getByText(/records are intact and complete/).waitFor();

    await page.getByRole("button", { name: "End all sessions" }).click();
    await dialog.getByText(/Signs out all tabs/).waitFor();
    t.true(
      (await daemon.client(TokenService).getTokenStatus({})).sessions > 0,
      "an open dialog is not an answer",
    );
    await dialog.getByRole("button", { name: "End all sessions" }).click();
    await session.page.getByText(/^Your session has ended/).waitFor();
    await page.getByText(/^\d+ ended\.$/).waitFor();
    t.is((await daemon.client(TokenService).getTokenStatus({})).sessions, 0);
    t.deepEqual(complaints, []);
  },
);

usersTest(
  `a user sees only their own rights, and nothing of root's${needsBrowser}${needsRoot}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    await using ann = await daemon.as(65534);
    const { page, complaints } = await openView(browser, ann, "#/access");
    await page.getByText("your apps only").waitFor();
    t.is(await page.getByText("Audit log").count(), 0);
    await page.getByRole("link", { name: "Docker & system", exact: true }).click();
    await page.getByRole("region", { name: "Ports" }).waitFor();
    const parts = await page
      .getByRole("navigation", { name: "Docker & system" })
      .locator("a")
      .allTextContents();
    t.deepEqual(parts, ["Ports", "Processes", "Disk"]);
    await page.getByRole("link", { name: "Processes" }).click();
    await page.getByRole("region", { name: "Processes" }).waitFor();
    t.is(await page.getByRole("button", { name: "Terminate" }).count(), 0);
    await page.getByRole("link", { name: "Host", exact: true }).click();
    await page.getByRole("region", { name: "Filesystems" }).waitFor();
    t.is(await page.getByText(/reboot/i).count(), 0);
    t.deepEqual(complaints, []);
  },
);
