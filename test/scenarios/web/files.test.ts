/** Files on the page, with the rights that the reader has on the host. */
import assert from "node:assert/strict";
import {
  chmod,
  chown,
  mkdir,
  mkdtempDisposable,
  readFile,
  readdir,
  rename,
  rm,
  stat,
  utimes,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { OperationService } from "../../../gen/svc/v1/operation_pb.ts";
import { SessionService } from "../../../gen/svc/v1/session_pb.ts";
import { needsRoot } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { expectAccessible } from "../../web/support/accessibility.ts";
import { fetchFromDaemon, signIn } from "../../web/support/open-page.ts";
import { browserTest, needsBrowser, openView, shareNode, usersTest } from "../../web/support/shared-node.ts";

const node = shareNode();
const hostile = "<img src=x onerror=alert(1)>\u202egnp.txt";

function viewOf(path: string): string {
  return `#/files${path.split("/").map(encodeURIComponent).join("/")}`;
}

browserTest(`files are viewed, uploaded, changed, renamed and deleted${needsBrowser}`, async (t) => {
  t.timeout(240_000);
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "home");
  await mkdir(join(dir, "deep"), { recursive: true });
  await writeFile(join(dir, hostile), `${hostile}\u001b[31m red`);
  await writeFile(join(dir, "binary"), Buffer.from([0, 1, 2, 255]));
  await writeFile(join(dir, ".dotted"), "");
  const { page, complaints } = await openView(browser, daemon, "#/");
  await page.getByRole("link", { name: "Files", exact: true }).click();
  await page.getByRole("link", { name: "tmp", exact: true }).waitFor();
  await page.evaluate(`location.hash = ${JSON.stringify(viewOf(dir))}`);
  await page.getByRole("heading", { name: "home" }).waitFor();
  await page.getByRole("link", { name: "deep" }).waitFor();
  t.is(await page.getByRole("row").filter({ hasText: ".dotted" }).count(), 0);
  await expectAccessible(t, page, "a directory");
  await page.getByLabel("Show hidden files").check();
  await page.getByRole("row").filter({ hasText: ".dotted" }).waitFor();

  const named = page.getByRole("link", { name: /onerror/ });
  t.is(
    await named.textContent(),
    "<img src=x onerror=alert(1)>\\u202egnp.txt",
    "bidirectional controls are shown",
  );
  await named.click();
  await page.locator("pre.command").waitFor();
  t.is(await page.locator("pre.command").textContent(), "<img src=x onerror=alert(1)>\\u202egnp.txt red");
  t.is(await page.locator("main img").count(), 0);
  await expectAccessible(t, page, "a file");
  await page.goBack();
  await page.getByRole("link", { name: "binary" }).click();
  await page.getByText(/Not a text file/).waitFor();
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download" }).click();
  t.deepEqual(await readFile(await (await download).path()), Buffer.from([0, 1, 2, 255]));
  await page.goBack();

  const input = page.locator('input[type="file"]');
  const sent = (text: string) => ({ name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from(text) });
  await input.setInputFiles(sent("first"));
  await page.getByText("1 file uploaded.").waitFor();
  await input.setInputFiles(sent("second"));
  await page
    .getByRole("dialog")
    .getByText(/Its content is lost/)
    .waitFor();
  t.is(await readFile(join(dir, "notes.txt"), "utf8"), "first", "an open dialog is not an answer");
  await page.getByRole("dialog").getByRole("button", { name: "Replace" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  t.is(await readFile(join(dir, "notes.txt"), "utf8"), "second");

  await page.getByRole("link", { name: "notes.txt" }).click();
  await page.getByRole("button", { name: "Edit" }).click();
  const text = page.getByLabel("File content");
  await text.fill("third");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.", { exact: true }).waitFor();
  t.is(await readFile(join(dir, "notes.txt"), "utf8"), "third");
  await page.getByRole("button", { name: "Edit" }).click();
  await text.fill("mine");
  await writeFile(join(dir, "notes.txt"), "somebody else's");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText(/The file has changed since you opened it/).waitFor();
  t.is(await readFile(join(dir, "notes.txt"), "utf8"), "somebody else's");
  t.is(await text.inputValue(), "mine", "typed input stays");
  await page.goBack();

  await writeFile(join(dir, "ends.txt"), "one\r\ntwo\r\n");
  await writeFile(join(dir, "mixed.txt"), "one\r\ntwo\n");
  await page.evaluate(`location.hash = ${JSON.stringify(viewOf(join(dir, "ends.txt")))}`);
  await page.getByRole("button", { name: "Edit" }).click();
  await text.press("Control+Home");
  await page.keyboard.type("now ");
  await page.route(
    "**/v1/files/content?*",
    async (route) => {
      await text.press("Control+End");
      await page.keyboard.type("three");
      await route.continue();
    },
    { times: 1 },
  );
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText(/Later changes are not saved yet/).waitFor();
  t.is(await readFile(join(dir, "ends.txt"), "utf8"), "now one\r\ntwo\r\n", "line endings are unchanged");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.", { exact: true }).waitFor();
  t.is(await readFile(join(dir, "ends.txt"), "utf8"), "now one\r\ntwo\r\nthree");
  // Another process writes between the save and the next read, while the user types.
  await page.getByRole("button", { name: "Edit" }).click();
  await text.fill("mine");
  await page.route(
    "**/v1/files/content?*",
    async (route) => {
      const response = await fetchFromDaemon(route);
      await writeFile(join(dir, "ends.txt"), "somebody else's");
      await text.fill("mine, and more");
      await route.fulfill({ response });
    },
    { times: 1 },
  );
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText(/Later changes are not saved yet/).waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText(/The file has changed since you opened it/).waitFor();
  t.is(await readFile(join(dir, "ends.txt"), "utf8"), "somebody else's");
  t.is(await text.inputValue(), "mine, and more");
  await page.evaluate(`location.hash = ${JSON.stringify(viewOf(join(dir, "mixed.txt")))}`);
  await page.getByText(/Mixed line endings/).waitFor();
  t.is(await page.getByRole("button", { name: "Edit" }).count(), 0);
  for (const name of ["ends.txt", "mixed.txt"]) await rm(join(dir, name));
  await page.evaluate(`location.hash = ${JSON.stringify(viewOf(dir))}`);

  const row = page.getByRole("row").filter({ hasText: "notes.txt" });
  await row.getByRole("button", { name: "Rename" }).click();
  await page.getByLabel("New name").fill("kept.txt");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "kept.txt" }).waitFor();
  await page.getByRole("button", { name: "New folder" }).click();
  await page.getByLabel("Folder name").fill("made");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "made" }).waitFor();
  const made = page.getByRole("row").filter({ hasText: "made" });
  await made.getByRole("button", { name: "Delete" }).click();
  await page
    .getByRole("dialog")
    .getByText(/with all its content/)
    .waitFor();
  await page.keyboard.press("Enter");
  t.is(await page.getByRole("dialog").count(), 1, "a directory is deleted by its name");
  await page.getByLabel("To confirm, type").fill("made");
  await page.keyboard.press("Enter");
  await made.waitFor({ state: "detached" });
  await eventually(async () => {
    assert.deepEqual(
      (await readdir(dir)).toSorted(),
      [".dotted", hostile, "binary", "deep", "kept.txt"].toSorted(),
    );
  });
  t.deepEqual(
    // The browser logs rejected requests itself: the file that existed, and the one that had changed.
    complaints.filter((said) => !/status of (409|412)/.test(said)),
    [],
  );
});

browserTest(`files with odd names are opened, reloaded, renamed and deleted${needsBrowser}`, async (t) => {
  t.timeout(240_000);
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "100%", "#odd?&");
  await mkdir(dir, { recursive: true });
  const names = [
    ...["100% sure.txt", "%2e%2e%2fetc", "a?b", "#hash", "plus+plus", "semi;colon&amp.txt", "quote'\"`"],
    ...[
      "-rf",
      " leading",
      "trailing ",
      "tab\there",
      "new\nline",
      "back\\slash",
      "...",
      "[a]{b}*.txt",
      "x".repeat(255),
    ],
    ...["gru\u0308ße.txt", "名前(空).txt", "📦.txt", "\u202egpj.exe", "latin1-\\xe9.txt"],
  ];
  const bytesOf = (name: string) =>
    Buffer.from(Buffer.from(`${dir}/${name}`).toString("latin1").replace("\\xe9", "\xe9"), "latin1");
  for (const name of names) await writeFile(bytesOf(name), `content of ${names.indexOf(name)}`);
  const { page, complaints } = await openView(browser, daemon, viewOf(dir));
  const linkTo = (name: string) => page.locator(`a[href=${JSON.stringify(viewOf(`${dir}/${name}`))}]`);
  const button = (name: string, action: string) =>
    page
      .getByRole("row")
      .filter({ has: linkTo(name) })
      .getByRole("button", { name: action, exact: true });
  for (const [at, name] of names.entries()) {
    await page.getByLabel("Show hidden files").check();
    await linkTo(name).click();
    await page.locator("pre.command").waitFor();
    t.is(await page.locator("pre.command").textContent(), `content of ${at}`);
    await page.reload();
    await page.locator("pre.command").waitFor();
    await page.goBack();
    await page.getByLabel("Show hidden files").check();
    await button(name, "Rename").click();
    await page.getByLabel("New name").fill(`moved-${at}`);
    await page.keyboard.press("Enter");
    await linkTo(`moved-${at}`).waitFor();
    t.is(await readFile(join(dir, `moved-${at}`), "utf8"), `content of ${at}`);
    await rename(join(dir, `moved-${at}`), bytesOf(name));
    await page.reload();
    await page.getByLabel("Show hidden files").check();
    await button(name, "Delete").click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await linkTo(name).waitFor({ state: "detached" });
  }
  t.deepEqual(await readdir(dir), []);
  t.deepEqual(complaints, []);
});

browserTest(`typed input stays until it is saved, also after a session ends${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "drafts");
  await mkdir(dir);
  const file = join(dir, "notes.txt");
  await writeFile(file, "first\n");
  const { page } = await openView(browser, daemon, viewOf(file));
  const asked: string[] = [];
  page.on("dialog", (dialog) => asked.push(dialog.type()));
  const text = page.getByLabel("File content");
  const button = (name: string) => page.getByRole("button", { name });
  const look = (hash: string) => page.evaluate(`location.hash = ${JSON.stringify(hash)}`);
  await button("Edit").click();
  await text.fill("what took long");
  await look(viewOf(dir));
  await page.getByRole("link", { name: "notes.txt" }).click();
  await page.getByText("Unsaved changes.").waitFor();
  t.is(await text.inputValue(), "what took long");
  await page.close({ runBeforeUnload: true });
  await eventually(() => {
    assert.deepEqual(asked, ["beforeunload"]);
    return Promise.resolve();
  });

  // A restarted daemon has no sessions. A user who signs in again has the same page and view.
  await daemon.client(SessionService).endSessions({});
  await page.getByText("svc web", { exact: true }).waitFor();
  await signIn(page, daemon);
  await page.getByText("Unsaved changes.").waitFor();
  t.is(new URL(page.url()).hash, viewOf(file));
  t.is(await text.inputValue(), "what took long");
  await writeFile(file, "somebody else's");
  await button("Save").click();
  await page.getByText(/The file has changed since you opened it/).waitFor();
  t.is(await readFile(file, "utf8"), "somebody else's");
  await button("Discard changes").click();
  await page.locator("pre.command").waitFor();
  t.is(await page.locator("pre.command").textContent(), "somebody else's");
  await button("Edit").click();
  await text.fill("ours");
  await button("Save").click();
  await page.getByText("Saved.", { exact: true }).waitFor();
  t.is(await readFile(file, "utf8"), "ours");

  await button("Edit").click();
  await text.fill("secret");
  await button("Sign out").click();
  await signIn(page, daemon);
  await page.locator("pre.command").waitFor();
  t.is(await page.locator("pre.command").textContent(), "ours", "signing out leaves nothing");
});

browserTest(
  `one rejected file does not stop the others, and cancel stops all of them${needsBrowser}`,
  async (t) => {
    t.timeout(120_000);
    const { daemon, browser } = node;
    const dir = join(daemon.dir, "several");
    await mkdir(dir);
    const { page, asked } = await openView(browser, daemon, viewOf(dir));
    const input = page.locator('input[type="file"]');
    const files = (...names: string[]) =>
      names.map((name) => ({ name, mimeType: "text/plain", buffer: Buffer.from(name) }));
    await page.route(/name=refused/, (route) =>
      route.fulfill({ status: 403, json: { error: "not here", reason: "permission_denied" } }),
    );
    await input.setInputFiles(files("refused.txt", "first.txt"));
    await page.getByText("1 file uploaded.").waitFor();
    await page.getByText("Failed to upload refused.txt: Not here.").waitFor();
    t.deepEqual(await readdir(dir), ["first.txt"]);

    // The request never gets a response.
    await page.route(/name=slow/, () => undefined);
    await input.setInputFiles(files("slow.txt", "after.txt"));
    await page.getByText("Uploading slow.txt").waitFor();
    await input.setInputFiles(files("meanwhile.txt"));
    await page.getByText(/Another upload is running/).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Cancel" }).waitFor({ state: "detached" });
    await input.setInputFiles(files("last.txt"));
    await page.getByText("1 file uploaded.").waitFor();
    t.deepEqual((await readdir(dir)).toSorted(), ["first.txt", "last.txt"]);

    // The daemon stops in the middle of the upload.
    await page.getByRole("link", { name: "last.txt" }).waitFor();
    await page.route(/name=lost|\/svc\.v1\.FileService\//, (route) => route.abort());
    await input.setInputFiles(files("lost.txt"));
    const lost = page.getByText("Failed to upload lost.txt: The daemon did not respond");
    await lost.waitFor();
    await page.getByText(/^The daemon does not respond/).waitFor();
    await page.unroute(/name=lost|\/svc\.v1\.FileService\//);
    await page.getByRole("link", { name: "last.txt" }).waitFor();
    t.is(await lost.count(), 1, "the unfinished part is still shown");
    t.deepEqual(
      asked.filter((address) => /name=(after|meanwhile)/.test(address)),
      [],
    );
  },
);

browserTest(
  `after rows are removed with the keyboard, the focus stays in their table${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const dir = join(daemon.dir, "emptied");
    await mkdir(dir);
    for (const name of ["first", "second"]) await writeFile(join(dir, name), "");
    const { page, complaints } = await openView(browser, daemon, viewOf(dir));
    const removeFirst = async (name: string): Promise<void> => {
      const row = page.getByRole("row").filter({ hasText: name });
      await row.getByRole("button", { name: "Delete" }).press("Enter");
      await page.getByRole("dialog").getByRole("button", { name: "Delete" }).press("Enter");
      await row.waitFor({ state: "detached" });
    };
    await removeFirst("first");
    await page.getByRole("region", { name: dir }).and(page.locator(":focus")).waitFor();
    await page.keyboard.press("Tab");
    await page.getByRole("link", { name: "second" }).and(page.locator(":focus")).waitFor();
    await removeFirst("second");
    await page.getByText("Empty folder.").and(page.locator(":focus")).waitFor();
    t.deepEqual(complaints, []);
  },
);

browserTest(
  `a copy continues through a reload, and appears when it has finished${needsBrowser}`,
  async (t) => {
    t.timeout(180_000);
    const { daemon, browser } = node;
    const dir = join(daemon.dir, "reloaded");
    await mkdir(join(dir, "many"), { recursive: true });
    for (let n = 0; n < 4_000; n++) await writeFile(join(dir, "many", String(n)), "");
    const { page, complaints } = await openView(browser, daemon, viewOf(dir));
    await page.getByRole("row").filter({ hasText: "many" }).getByRole("button", { name: "Copy" }).click();
    // The dialog opens after the click, and has the focus then.
    await page.getByLabel("Name of the copy").waitFor();
    await page.keyboard.press("Enter");
    await eventually(async () => {
      const { operations } = await daemon.client(OperationService).listOperations({ state: "RUNNING" });
      assert.equal(operations[0]?.kind, "copy_files");
    });
    await page.reload();
    await page.getByRole("link", { name: "Copy of many", exact: true }).waitFor();
    t.is((await readdir(join(dir, "Copy of many"))).length, 4_000);
    t.deepEqual(complaints, []);
  },
);

browserTest(`files are copied, packed, unpacked and found${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  const dir = join(daemon.dir, "shelf");
  await mkdir(join(dir, "tree", "deep"), { recursive: true });
  await writeFile(join(dir, "tree", "deep", hostile), `one\n  two needles ${hostile}\n`);
  const { page, complaints, asked } = await openView(browser, daemon, viewOf(dir));
  const rowOf = (name: string) =>
    page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
  const dialog = page.getByRole("dialog");
  await rowOf("tree").getByRole("button", { name: "Copy" }).click();
  t.is(await dialog.getByLabel("Name of the copy").inputValue(), "Copy of tree");
  await page.keyboard.press("Enter");
  await rowOf("Copy of tree").waitFor();
  await rowOf("tree").getByRole("button", { name: "Compress" }).click();
  await dialog.getByLabel("Archive name").fill("no-archive");
  await page.keyboard.press("Enter");
  await dialog.getByRole("alert").waitFor();
  await dialog.getByLabel("Archive name").fill("tree.tar.gz");
  await page.keyboard.press("Enter");
  await rowOf("tree.tar.gz").getByRole("button", { name: "Extract" }).click();
  await dialog.getByLabel("Target folder").fill(join(dir, "elsewhere"));
  await page.keyboard.press("Enter");
  await rowOf("elsewhere").waitFor();
  for (const copy of ["Copy of tree", "elsewhere/tree"])
    t.regex(await readFile(join(dir, copy, "deep", hostile), "utf8"), /two needles/);

  const [isHeld, isFree] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()];
  await page.route("**/svc.v1.FileService/MovePath", async (route) => {
    isHeld.resolve(undefined);
    await isFree.promise;
    await route.continue();
  });
  await rowOf("elsewhere").getByRole("button", { name: "Rename" }).click();
  await dialog.getByLabel("New name").fill("there");
  await page.keyboard.press("Enter");
  await isHeld.promise;
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "New folder" }).click();
  await dialog.getByLabel("Folder name").fill("typed");
  isFree.resolve(undefined);
  await rowOf("there").waitFor();
  t.is(
    await dialog.getByLabel("Folder name").inputValue(),
    "typed",
    "a late response closes no other dialog",
  );
  await page.keyboard.press("Escape");
  t.is(asked.filter((address) => address.endsWith("/MovePath")).length, 1, "and is requested once");
  await page.unrouteAll({ behavior: "wait" });

  await page.getByText("Search this folder").click();
  await page.getByLabel("Content").fill("NEEDLES");
  await page.keyboard.press("Enter");
  await page.getByText("3 found.").waitFor();
  const found = page.getByRole("list", { name: "Results" });
  await found.getByText("line 2:").nth(2).waitFor();
  t.is(await found.getByText("line 2:").count(), 3);
  t.is(await page.locator("main img").count(), 0);
  await expectAccessible(t, page, "a search");
  await page.getByLabel("Content").fill("");
  await page.getByLabel("Name", { exact: true }).fill("DEEP");
  await page.keyboard.press("Enter");
  await found.getByRole("link", { name: "tree/deep", exact: true }).waitFor();
  await found.getByRole("link", { name: "tree/deep", exact: true }).click();
  await page.getByRole("heading", { name: "deep" }).waitFor();
  t.deepEqual(
    complaints.filter((text) => !text.includes("status of 400")),
    [],
  );
});

usersTest(`the kernel decides what a user reads and writes${needsBrowser}${needsRoot}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  await using ann = await daemon.as(65534);
  const dir = join(daemon.dir, "anns");
  const closed = join(daemon.dir, "closed");
  for (const path of [dir, closed]) await mkdir(path);
  await chown(dir, 65534, 65534);
  await chmod(closed, 0o700);
  await writeFile(join(closed, "secret.txt"), "root's");
  await writeFile(join(dir, "roots.txt"), "root's", { mode: 0o600 });
  const { page } = await openView(browser, ann, viewOf(closed));
  await page.getByRole("alert").waitFor();
  t.false((await page.content()).includes("secret.txt"));
  await page.evaluate(`location.hash = ${JSON.stringify(viewOf(dir))}`);
  await page.getByRole("link", { name: "roots.txt" }).click();
  await page.getByRole("alert").waitFor();
  t.is(await page.locator("pre.command").count(), 0);
  await page.goBack();
  await page.locator('input[type="file"]').setInputFiles({
    name: "mine.txt",
    mimeType: "text/plain",
    buffer: Buffer.from("mine"),
  });
  await page.getByText("1 file uploaded.").waitFor();
  t.is(await readFile(join(dir, "mine.txt"), "utf8"), "mine");
  t.is((await stat(join(dir, "mine.txt"))).uid, 65534);
});

browserTest(`a part that cannot be displayed affects nothing else${needsBrowser}`, async (t) => {
  t.timeout(180_000);
  const { daemon, browser } = node;
  // Its file system is in memory, which stores times with full precision.
  await using memory = await mkdtempDisposable("/dev/shm/svc-files-");
  const odd = join(memory.path, "odd");
  for (const name of ["odd", "even"]) await writeFile(join(memory.path, name), "");
  await utimes(odd, 0, 8_700_000_000_000);
  const { page, complaints } = await openView(browser, daemon, viewOf(memory.path));
  await page.getByRole("link", { name: "odd" }).waitFor();
  t.is(await page.locator("main time").count(), 2);
  t.deepEqual(complaints, []);

  await page.evaluate("location.hash = '#/install'");
  await page.getByRole("heading", { name: "Install app" }).waitFor();
  await page.evaluate(`(({ toISOString }) => {
    Date.prototype.toISOString = function () {
      if (globalThis.isWhole) return toISOString.call(this);
      throw new RangeError("broken on purpose");
    };
  })(Date.prototype)`);
  await page.evaluate(`location.hash = ${JSON.stringify(viewOf(memory.path))}`);
  await page.getByRole("alert").filter({ hasText: "broken on purpose" }).waitFor();
  await page.evaluate("globalThis.isWhole = true");
  await page.getByRole("button", { name: "Reload" }).click();
  await page.getByRole("link", { name: "odd" }).waitFor();
  t.deepEqual([...new Set(complaints)], ["broken on purpose"], "only the error is shown");
});
