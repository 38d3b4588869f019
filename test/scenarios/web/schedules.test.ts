/** Schedules on the page: the list, the runs, and the form. */
import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { needsRoot } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { expectAccessible } from "../../web/support/accessibility.ts";
import { leaveBeforePaint } from "../../web/support/leave-before-paint.ts";
import { browserTest, needsBrowser, openView, shareNode, usersTest } from "../../web/support/shared-node.ts";

const node = shareNode();
const hostile = `<img src=x onerror=alert(1)>\u202egnp.exe`;

browserTest(`a schedule is run from the page, which shows its output as text${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const schedules = daemon.client(ScheduleService);
  const { nextRunUnix } = await schedules.upsertSchedule({
    id: "says",
    trigger: "daily@03:07",
    comment: hostile,
    action: { type: "shell", command: `printf '%s\\n' '${hostile}'` },
  });
  const { page, complaints } = await openView(browser, daemon, "#/");
  await page.getByRole("link", { name: "Jobs", exact: true }).click();
  const row = page.getByRole("row").filter({ hasText: "daily@03:07" });
  const next = await row.locator("time").getAttribute("datetime");
  t.is(next, new Date(Number(nextRunUnix) * 1000).toISOString());
  t.regex((await row.textContent()) ?? "", /Never/);
  await row.getByRole("button", { name: "Run now" }).click();
  await row.locator('[data-run="SUCCEEDED"]').waitFor();
  await row.getByRole("button", { name: "Disable" }).click();
  await row.getByText("Disabled").waitFor();
  t.is((await schedules.getSchedule({ id: "says" })).enabled, false);

  await row.getByRole("link", { name: "says" }).click();
  await page.getByRole("heading", { name: "says" }).waitFor();
  await page.locator("details pre").waitFor();
  t.is(await page.locator("details pre").textContent(), "<img src=x onerror=alert(1)>\\u202egnp.exe\n");
  t.is(await page.locator("main img").count(), 0);
  await expectAccessible(t, page, "a schedule");

  await page.getByRole("button", { name: "Remove" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/deletes the output of all runs/).waitFor();
  await dialog.getByRole("button", { name: "Go back" }).click();
  t.is((await schedules.getSchedule({ id: "says" })).id, "says", "an open dialog is not an answer");
  const remove = page.getByRole("button", { name: "Remove" });
  await remove.and(page.locator(":focus")).waitFor();
  await remove.click();
  await dialog.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("heading", { name: "Jobs" }).waitFor();
  await t.throwsAsync(schedules.getSchedule({ id: "says" }), { message: /says/ });
  t.deepEqual(complaints, []);
});

browserTest(
  `a schedule is created with the keyboard only, and the daemon's errors are shown${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const { page, complaints } = await openView(browser, daemon, "#/schedules/new");
    const { keyboard } = page;
    await page.getByLabel("Name", { exact: true }).waitFor();
    await expectAccessible(t, page, "the form");
    await page.getByRole("heading", { name: "New job" }).focus();
    await keyboard.press("Tab");
    await keyboard.type("ticks");
    await keyboard.press("Tab");
    await keyboard.type("Run a");
    await keyboard.press("Tab");
    await keyboard.type("echo tick");
    const trigger = page.getByLabel("Trigger", { exact: true });
    // An hour and a minute are separate fields.
    for (let step = 0; step < 8 && (await trigger.and(page.locator(":focus")).count()) === 0; step++)
      await keyboard.press("Tab");
    await keyboard.type("25:99");
    await page.getByText(/25:99/).waitFor();
    await keyboard.press("Enter");
    await page.getByRole("alert").filter({ hasText: "25:99" }).waitFor();
    t.is(await page.getByLabel("Command").inputValue(), "echo tick", "typed input stays");

    t.is(await trigger.getAttribute("aria-invalid"), "true");
    await page.getByLabel("Note").focus();
    await keyboard.press("Enter");
    await trigger.and(page.locator(":focus")).waitFor();
    await keyboard.press("Control+A");
    await keyboard.type("*/5 * * * *");
    await page.getByRole("list", { name: "Next runs" }).locator("time").nth(9).waitFor();
    await trigger.focus();
    await keyboard.press("Enter");
    await page.getByRole("heading", { name: "ticks" }).waitFor();
    const made = await daemon.client(ScheduleService).getSchedule({ id: "ticks" });
    t.like(made, { trigger: "*/5 * * * *", enabled: true, action: { type: "shell", command: "echo tick" } });
    // The browser logs rejected requests itself.
    t.deepEqual(
      complaints.filter((text) => !text.includes("status of 400")),
      [],
    );
  },
);

browserTest(
  `a trigger is chosen instead of written, and its next ten firings are shown while typing${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const schedules = daemon.client(ScheduleService);
    const { page, complaints } = await openView(browser, daemon, "#/schedules/new");
    const trigger = page.getByLabel("Trigger", { exact: true });
    const often = page.getByLabel("Frequency", { exact: true });
    const firings = page.getByRole("list", { name: "Next runs" }).getByRole("listitem");
    /** The firings shown are the daemon's own, to the second. */
    const expectNextRuns = async (text: string, timeZone = ""): Promise<void> => {
      t.is(await trigger.inputValue(), text);
      await eventually(async () => {
        const foreseen = await schedules.previewSchedule({ trigger: text, timeZone, count: 10 });
        const times = `[...document.querySelectorAll("ol[aria-label='Next runs'] time")]`;
        const shown = await page.evaluate<string[]>(`${times}.map(({ dateTime }) => dateTime)`);
        assert.deepEqual(
          shown,
          foreseen.firings.map(({ unix }) => new Date(Number(unix) * 1000).toISOString()),
        );
        assert.equal(shown.length, 10);
      }, 40_000);
    };
    await expectNextRuns("daily@02:30");
    t.is(await often.inputValue(), "day", "the current value is among the choices");
    t.is(await page.getByLabel("At", { exact: true }).inputValue(), "02:30");
    await often.selectOption({ label: "Every hour" });
    await expectNextRuns("hourly");
    await often.selectOption({ label: "Monday to Friday" });
    await page.getByLabel("At", { exact: true }).fill("04:15");
    await expectNextRuns("15 4 * * 1-5");
    await often.selectOption({ label: "Once a week" });
    await page.getByLabel("On", { exact: true }).selectOption({ label: "Sunday" });
    await expectNextRuns("15 4 * * 0");
    await often.selectOption({ label: "On the first of each month" });
    await expectNextRuns("15 4 1 * *");
    await often.selectOption({ label: "Every day" });
    await expectNextRuns("daily@04:15");

    // Clocks go forward on a Sunday in March, and back on one in October.
    const zone = page.getByLabel("Time zone");
    await zone.fill("Europe/Berlin");
    await trigger.fill("30 2 * 3 0");
    await expectNextRuns("30 2 * 3 0", "Europe/Berlin");
    await firings.filter({ hasText: "skipped by the clock" }).first().waitFor();
    t.is(await often.inputValue(), "typed", "a written trigger is not one of the choices");
    await trigger.fill("30 2 * 10 0");
    await expectNextRuns("30 2 * 10 0", "Europe/Berlin");
    await firings.filter({ hasText: "hour occurs twice" }).first().waitFor();
    t.is(await firings.filter({ hasText: "skipped by the clock" }).count(), 0);
    await zone.fill("Europe/Nowhere");
    await page.getByRole("status").filter({ hasText: "Europe/Nowhere" }).waitFor();
    t.is(await firings.count(), 0, "an invalid trigger has no firings");

    for (const [id, written, ...choices] of [
      ["sundays", "5 14 * * 0", ["Frequency", "week"], ["On", "0"], ["At", "14:05"]],
      ["firsts", "0 6 1 * *", ["Frequency", "month"], ["At", "06:00"]],
      ["own", "*/5 14 * * 0-3", ["Frequency", "typed"]],
      ["crashes", "on:app.crashed", ["Frequency", "crash"], ["App filter", ""]],
    ] as const) {
      const action = { type: "shell", command: "true" };
      const { owner } = await schedules.upsertSchedule({ id, trigger: written, action });
      await page.evaluate(`location.hash = "#/schedules/${owner}/${id}/edit"`);
      await page.getByRole("heading", { name: `Change ${id}` }).waitFor();
      for (const [label, value] of choices)
        t.is(await page.getByLabel(label, { exact: true }).inputValue(), value, id);
      t.is(await trigger.inputValue(), written);
      await schedules.removeSchedule({ owner, id });
    }
    t.deepEqual(
      complaints.filter((text) => !text.includes("status of 400")),
      [],
    );
  },
);

browserTest(`leaving the view while a schedule is being saved stays effective${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const { page, complaints } = await openView(browser, daemon, "#/schedules/new");
  const goesOn = Promise.withResolvers<undefined>();
  await page.route("**/svc.v1.ScheduleService/UpsertSchedule", async (route) => {
    await goesOn.promise;
    await route.continue();
  });
  await page.getByLabel("Name", { exact: true }).fill("away");
  await page.getByLabel("Action", { exact: true }).selectOption({ label: "Run command" });
  await page.getByLabel("Command").fill("true");
  const saved = page.waitForResponse("**/svc.v1.ScheduleService/UpsertSchedule");
  await page.getByRole("button", { name: "Save" }).click();
  await leaveBeforePaint(page, "#/apps");
  await page.getByRole("heading", { name: "Apps" }).waitFor();
  goesOn.resolve(undefined);
  await (await saved).finished();
  // The effects of a response are complete when the next one arrives.
  await page.evaluate("fetch('/healthz').then(() => undefined)");
  t.is(await page.evaluate("location.hash"), "#/apps");
  t.is((await daemon.client(ScheduleService).getSchedule({ id: "away" })).id, "away");
  t.deepEqual(complaints, []);
  await page.unrouteAll({ behavior: "wait" });
});

browserTest(`a schedule waits for an app to crash, chosen on the page${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const apps = daemon.client(AppService);
  const port = await freePort();
  for (const id of ["fragile", "other"]) {
    const dir = join(daemon.dir, id);
    const manifest = "restart: { policy: never }\n";
    await writePackage(dir, id === "fragile" ? port : await freePort(), { id, manifest });
    await apps.installApp({ spec: dir });
  }
  const { page, complaints } = await openView(browser, daemon, "#/schedules/new");
  await page.getByLabel("Name", { exact: true }).fill("when-it-crashes");
  await page.getByLabel("Action", { exact: true }).selectOption({ label: "Run command" });
  await page.getByLabel("Command").fill("echo it crashed");
  const often = page.getByLabel("Frequency", { exact: true });
  const trigger = page.getByLabel("Trigger", { exact: true });
  await often.selectOption({ label: "When a backup fails" });
  t.is(await trigger.inputValue(), "on:backup.failed");
  await often.selectOption({ label: "When an app crashes" });
  t.is(await trigger.inputValue(), "on:app.crashed");
  await page.getByLabel("App filter").selectOption({ label: "Test web server (fragile)" });
  t.is(await trigger.inputValue(), "on:app.crashed fragile");
  await page.getByText("No scheduled runs").waitFor();
  await expectAccessible(t, page, "a trigger of an event");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "when-it-crashes" }).waitFor();
  await page.getByText("Not scheduled").waitFor();
  await page.getByText("No runs yet.").waitFor();

  await apps.startApp({ id: "fragile" });
  await eventually(async () => {
    await fetch(`http://127.0.0.1:${port}/exit`).catch(() => undefined);
    assert.equal((await apps.getApp({ id: "fragile" })).state, "CRASHED");
  }, 60_000);
  await page.locator('details [data-run="SUCCEEDED"]').first().waitFor();
  await page.locator("details pre").filter({ hasText: "it crashed" }).first().waitFor();
  t.deepEqual(complaints, []);
});

browserTest(`a run's output is shown as it arrives, with the coming week${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const schedules = daemon.client(ScheduleService);
  const go = join(daemon.dir, "go");
  const command = `echo '${hostile}'; until [ -e ${go} ]; do sleep 0.1; done; echo second`;
  const { owner, id } = await schedules.upsertSchedule({
    id: "slow",
    trigger: "daily@03:13",
    action: { type: "shell", command },
  });
  const { page, complaints } = await openView(browser, daemon, `#/schedules/${owner}/${id}`);
  await page.getByRole("button", { name: "Run with live output" }).click();
  const watched = page.getByRole("region", { name: "Watched run" });
  await watched.locator("pre").filter({ hasText: "<img src=x onerror=alert(1)>" }).waitFor();
  t.is(
    (await schedules.getSchedule({ owner, id })).lastRun?.status,
    "RUNNING",
    "it continues in the background",
  );
  t.is(await page.locator("main img").count(), 0);
  await writeFile(go, "");
  await watched.locator("pre").filter({ hasText: "second" }).waitFor();
  await watched.locator('[data-run="SUCCEEDED"]').waitFor();

  await rm(go);
  await page.getByRole("button", { name: "Run with live output" }).click();
  await watched.locator('[data-run="RUNNING"]').waitFor();
  await page.getByRole("button", { name: "Cancel run" }).last().click();
  await watched.locator('[data-run="CANCELED"]').waitFor();
  await page.getByRole("button", { name: "Run with live output" }).click();
  await watched.locator('[data-run="RUNNING"]').waitFor();
  await page.getByRole("link", { name: "All jobs" }).click();
  await eventually(async () => {
    const { lastRun } = await schedules.getSchedule({ owner, id });
    assert.equal(lastRun?.status, "CANCELED");
  }, 40_000);

  const week = page.getByRole("region", { name: "Next 7 days" });
  await week.getByRole("link", { name: "slow" }).nth(5).waitFor();
  t.true((await week.getByRole("link", { name: "slow" }).count()) <= 7);
  const action = { type: "shell", command: "true" };
  await schedules.upsertSchedule({ id: "never", trigger: "daily@03:14", action, enabled: false });
  const trigger = `14 3 * * ${(new Date().getDay() + 3) % 7}`;
  const { nextRunUnix } = await schedules.upsertSchedule({ id: "weekly", trigger, action });
  // The page is notified only of runs, and then reads all of them.
  await schedules.runSchedule({ id: "weekly" });
  const day = new Date(Number(nextRunUnix) * 1000).toLocaleDateString("en-US", {
    weekday: "short",
    day: "numeric",
    month: "short",
  });
  const weekly = week.getByRole("link", { name: "weekly" });
  await weekly.waitFor();
  t.is(await weekly.count(), 1);
  const ofDay = week.getByRole("listitem").filter({ has: page.getByRole("heading", { name: day }) });
  t.regex((await ofDay.textContent()) ?? "", /slow 3:13.*weekly 3:14/);
  t.is(await week.getByRole("link", { name: "never" }).count(), 0, "a disabled schedule does not run");
  await expectAccessible(t, page, "a week");
  t.deepEqual(complaints, []);
});

browserTest(`the week counts every firing of each day${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const schedules = daemon.client(ScheduleService);
  const action = { type: "shell", command: "true" };
  const [everyMinute, everyFive] = await Promise.all([
    schedules.upsertSchedule({ id: "minutes", trigger: "* * * * *", action }),
    schedules.upsertSchedule({ id: "fives", trigger: "*/5 * * * *", action }),
  ]);
  const { page, complaints } = await openView(browser, daemon, "#/schedules");
  const days = page.getByRole("region", { name: "Next 7 days" }).locator("ol.week > li");
  await days.nth(6).waitFor();
  for (let day = 1; day < 7; day += 1) {
    const start = new Date(new Date().setHours(0, 0, 0, 0));
    const minutes =
      (new Date(start).setDate(start.getDate() + day + 1) - new Date(start).setDate(start.getDate() + day)) /
      60_000;
    const shown = (await days.nth(day).textContent()) ?? "";
    t.true(shown.includes(`minutes ${minutes} runs, first at `), shown);
    t.true(shown.includes(`fives ${minutes / 5} runs, first at `), shown);
  }
  await schedules.removeSchedule({ owner: everyMinute.owner, id: "minutes" });
  await schedules.removeSchedule({ owner: everyFive.owner, id: "fives" });
  t.deepEqual(complaints, []);
});

browserTest(`changes by others are not undone by a form that is open${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const schedules = daemon.client(ScheduleService);
  const change = (comment: string) =>
    schedules.upsertSchedule({
      id: "shared",
      trigger: "daily@03:11",
      comment,
      action: { type: "shell", command: "true" },
    });
  const { owner, id } = await change("first");
  const { page } = await openView(browser, daemon, `#/schedules/${owner}/${id}`);
  const note = page.getByLabel("Note", { exact: true });
  await page.getByRole("link", { name: "Change", exact: true }).click();
  await note.fill("mine");
  await change("theirs");
  // A run does not affect a form: nothing is read again.
  const again = page
    .waitForResponse((response) => response.url().includes("GetSchedule"), { timeout: 3_000 })
    .catch(() => undefined);
  await schedules.runSchedule({ id, owner });
  t.is(await again, undefined);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").waitFor();
  t.is((await schedules.getSchedule({ id, owner })).comment, "theirs");
  t.is(await note.inputValue(), "mine", "typed input stays");

  await page.getByRole("link", { name: "Discard changes" }).click();
  await page.getByRole("link", { name: "Change", exact: true }).click();
  await page.getByRole("heading", { name: "Change shared" }).waitFor();
  t.is(await note.inputValue(), "theirs");
  await note.fill("both");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "shared", exact: true }).waitFor();
  t.is((await schedules.getSchedule({ id, owner })).comment, "both");
});

usersTest(`each user sees and changes their own schedules${needsBrowser}${needsRoot}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  await using ann = await daemon.as(65534);
  await using ben = await daemon.as(1);
  const dir = join(daemon.dir, "ofann");
  await writePackage(dir, await freePort(), { id: "ofann" });
  await ann.client(AppService).installApp({ spec: dir });
  await ann.client(ScheduleService).upsertSchedule({
    id: "nightly",
    trigger: "daily@02:30",
    action: { type: "backup", app: "ofann", keep: 3 },
  });
  const bens = await openView(browser, ben, "#/schedules");
  await bens.page.getByText("No jobs yet.").waitFor();
  t.false((await bens.page.content()).includes("nightly"));
  await bens.page.evaluate("location.hash = '#/schedules/65534/nightly'");
  await bens.page.getByRole("alert").waitFor();

  const { page, complaints } = await openView(browser, ann, "#/schedules/65534/nightly/edit");
  await page.getByLabel("Backups to keep").fill("5");
  const types = await page.getByLabel("Action", { exact: true }).locator("option").allTextContents();
  t.false(types.includes("Reboot host"), "a denied action is not offered");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "nightly", exact: true }).waitFor();
  const changed = await ann.client(ScheduleService).getSchedule({ id: "nightly" });
  t.like(changed, { trigger: "daily@02:30", keep: 5, action: { type: "backup", app: "ofann" } });
  t.deepEqual(complaints, []);
});
