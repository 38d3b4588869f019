/** README's tour on the page, and how the page shows untrusted text. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { ended, plainLine, plainText, sentence } from "../../src/web/plain-text.ts";
import { browserPath } from "../support/browser.ts";
import { type UserConnection, isRoot } from "../support/daemon.ts";
import { freePort, writePackage, writeRepository } from "../support/packages.ts";
import { type Hands, keyboard, mouse } from "./support/hands.ts";
import type { WatchedPage } from "./support/open-page.ts";
import { browserTest, needsBrowser, openView, shareNode } from "./support/shared-node.ts";

// README's tour on the page: with the mouse, and by a regular user beside root's apps with the keyboard only.

/** In the browser that users have. */
const node = shareNode(undefined, browserPath);
const nobody = 65534;

interface Tourist {
  readonly user: Pick<UserConnection, "client">;
  readonly opened: WatchedPage;
  readonly hands: Hands;
  readonly uid: number;
  /** The ID that the app gets. */
  readonly id: string;
}

/**
 * Installs `hello`, opens it, changes its greeting, upgrades it, reads its log, opens a shell in it, and backs it up,
 * also nightly.
 */
async function takeTour(t: ExecutionContext, tourist: Tourist): Promise<void> {
  const { user, opened, hands, uid, id } = tourist;
  const { page, complaints } = opened;
  const { press, type, choose } = hands;
  const apps = user.client(AppService);
  const repository = join(node.daemon.dir, id);
  const spec = await writeRepository(repository, await freePort(), [
    { id, version: "1.0.0" },
    { id, version: "2.0.0" },
  ]);
  // Only its owner may install from it.
  if (isRoot) await promisify(execFile)("chown", ["-R", String(uid), repository]);
  const button = (name: string) => page.getByRole("button", { name, exact: true });
  const link = (name: string) => page.getByRole("link", { name, exact: true });
  const dialog = page.getByRole("dialog");
  const app = page.getByRole("link", { name: `Test web server ${id}` });
  const line = (text: string) => page.locator(".log .line").filter({ hasText: text }).first();

  await press(link("Apps"));
  await press(link("Install app"));
  await type(page.getByLabel("Package", { exact: true }), spec);
  await type(page.getByLabel("Version", { exact: true }), "v1.0.0");
  await press(button("Install"));
  await page.getByRole("heading", { name: "Test web server" }).waitFor();
  await page.locator('[data-state="STOPPED"]').first().waitFor();
  t.like(await apps.getApp({ id }), { version: "v1.0.0", state: "STOPPED" });

  await press(button("Start"));
  await page.locator('[data-state="RUNNING"]').first().waitFor();
  await line("with greeting hello").waitFor();
  await page.getByRole("img", { name: /^Memory: / }).waitFor();

  await type(page.getByLabel("greeting", { exact: true }), "Moin");
  await press(button("Save"));
  await page.getByText("Saved. Restart to apply.").waitFor();
  await press(button("Restart"));
  await line("with greeting Moin").waitFor();

  await press(page.getByText("Upgrade or downgrade"));
  await press(button("Upgrade"));
  await page.getByText("Upgraded from v1.0.0 to v2.0.0.").waitFor();
  await page.locator('[data-state="RUNNING"]').first().waitFor();
  t.like(await apps.getApp({ id }), { version: "v2.0.0", state: "RUNNING" });

  await type(page.getByLabel("Filter lines"), "greeting hello");
  await line("with greeting Moin").waitFor({ state: "detached" });
  await line("with greeting hello").waitFor();

  await press(button("Open shell"));
  const screen = page.locator(".console .xterm-rows");
  // Start files of a shell may wait a minute for a lock that a killed shell has left.
  await screen.filter({ hasText: /[$#]/ }).waitFor({ timeout: 100_000 });
  await page.keyboard.type(`echo precious > "$SVC_DATA_DIR/note"; echo wr''itten\n`);
  await screen.filter({ hasText: "written" }).waitFor();
  await page.keyboard.press("Control+Shift+X");
  await press(button("Close terminal"));
  const { directory } = await apps.getApp({ id });
  const note = join(directory, "data/note");
  t.is(await readFile(note, "utf8"), "precious\n");

  await press(link("Backups and policy"));
  await press(button("Back up now"));
  await page.getByText("Backup created.").waitFor();

  await press(link("Apps"));
  await press(app);
  await press(link(directory));
  await press(link("data"));
  const remove = page.getByRole("row").filter({ hasText: "note" }).getByRole("button", { name: "Delete" });
  await press(remove);
  await dialog.getByText("This cannot be undone").waitFor();
  await page.keyboard.press("Escape");
  // Until it is removed: a closing dialog could take the next one with it.
  await page.locator("dialog").waitFor({ state: "detached" });
  t.is(
    await remove.and(page.locator(":focus")).count(),
    1,
    "the focus returns to its position before the dialog",
  );
  t.is(await readFile(note, "utf8"), "precious\n", "an open dialog is not an answer");
  await press(remove);
  await press(dialog.getByRole("button", { name: "Delete" }));
  await remove.waitFor({ state: "detached" });
  await t.throwsAsync(readFile(note), { code: "ENOENT" });

  await press(link("Backups"));
  await press(page.getByRole("row").filter({ hasText: id }).getByRole("link", { name: "Test web server" }));
  // The clicked row also has a link.
  await page.getByRole("heading", { name: "Backups of Test web server" }).waitFor();
  await press(page.getByRole("rowheader").getByRole("link"));
  await press(button("Restore app"));
  await press(dialog.getByRole("button", { name: "Restore app" }));
  await page.getByText(/^Restored: \d+ entries/).waitFor();
  t.is(await readFile(note, "utf8"), "precious\n");

  await press(link("Jobs"));
  await press(link("New job"));
  await type(page.getByLabel("Name", { exact: true }), "nightly");
  await choose(page.getByLabel("Action", { exact: true }), "Back up app");
  await choose(page.getByLabel("App", { exact: true }), `Test web server (${id})`);
  await type(page.getByLabel("Trigger", { exact: true }), "daily@02:30");
  await page.getByRole("list", { name: "Next runs" }).getByRole("listitem").nth(9).waitFor();
  await press(button("Save"));
  await page.getByRole("heading", { name: "nightly" }).waitFor();
  t.like(await user.client(ScheduleService).getSchedule({ id: "nightly" }), {
    trigger: "daily@02:30",
    action: { type: "backup", app: id },
    enabled: true,
  });
  t.deepEqual(complaints, []);
}

browserTest(`README's tour works with the mouse${needsBrowser}`, async (t) => {
  t.timeout(300_000);
  const { daemon, browser } = node;
  const opened = await openView(browser, daemon, "#/");
  await takeTour(t, { user: daemon, opened, hands: mouse(), uid: 0, id: "hello" });
});

browserTest(
  `README's tour works with the keyboard only, for a regular user beside root's apps${needsBrowser}`,
  async (t) => {
    t.timeout(300_000);
    const { daemon, browser } = node;
    await using connection = isRoot ? await daemon.as(nobody) : undefined;
    const user = connection ?? daemon;
    const dir = join(daemon.dir, "ofroot");
    await writePackage(dir, await freePort(), { id: "ofroot" });
    await daemon.client(AppService).installApp({ spec: dir });
    const opened = await openView(browser, user, "#/");
    const { page } = opened;
    await takeTour(t, { user, opened, hands: keyboard(page), uid: nobody, id: "mine" });
    await page.evaluate("location.hash = '#/apps'");
    if (isRoot) await page.getByText("1 app", { exact: true }).waitFor();
    t.is(await page.getByText("ofroot").count(), isRoot ? 0 : 1);
  },
);

// How untrusted text and the daemon's messages are shown to users.

for (const [what, text, shown] of [
  ["reverses its direction", "a\u202egnp.exe", "a\\u202egnp.exe"],
  ["isolates", "\u2066a\u2069", "\\u2066a\\u2069"],
  ["marks a direction", "\u200ea\u200f\u061c", "\\u200ea\\u200f\\u061c"],
  ["separates lines", "a\u2028b\u2029", "a\\u2028b\\u2029"],
  ["controls a terminal", "a\u0000b\u001b[2Jc\u007f", "a\\u0000b\\u001b[2Jc\\u007f"],
  ["controls a terminal with eight bits", "a\u009b2Jb\u0080", "a\\u009b2Jb\\u0080"],
  ["moves the cursor back", "secret\rpublic\b", "secret\\u000dpublic\\u0008"],
  ["is of any language", "שלום é 日本 👍", "שלום é 日本 👍"],
] as const)
  test(`text that ${what} is shown as plain text`, (t) => t.is(plainText(text), shown));

test("a log line loses only its colors and its line ending", (t) => {
  t.is(plainLine("\u001b[1;31mred\u001b[0m\r"), "red");
  t.is(plainLine("\u001b[2Jgone\rback"), "\\u001b[2Jgone\\u000dback");
});

for (const [words, shown] of [
  ["it is busy", "It is busy."],
  ["no", "No."],
  ["can't be read, ever!", "Can't be read, ever!"],
  ["svc.yaml: line 5: unknown key", "svc.yaml: line 5: unknown key."],
  ["greeting: is too long", "greeting: is too long."],
  ["svc needs Node", "svc needs Node."],
  ['"web" is there', '"web" is there.'],
  ["", ""],
] as const)
  test(`the daemon's message "${words}" is a sentence`, (t) => t.is(sentence(words), shown));

test("a sentence before another one ends with a period", (t) => {
  t.deepEqual(["a word", "a word.", "why?", ""].map(ended), ["a word.", "a word.", "why?", ""]);
});
