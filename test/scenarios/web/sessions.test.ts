/** The identity of the page: after a reload, after another user's link, and in the list of sessions. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout } from "node:timers/promises";
import test from "ava";
import type { Page } from "playwright-core";
import { SessionService } from "../../../gen/svc/v1/session_pb.ts";
import { browserPath } from "../../support/browser.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { freePort } from "../../support/packages.ts";
import {
  addressFor,
  bundledMain,
  confirmSignIn,
  openPage,
  signIn,
  visit,
} from "../../web/support/open-page.ts";
import { shareBrowser } from "../../web/support/shared-node.ts";

const why = browserPath === undefined ? " (skipped: no Chromium)" : "";
const browserTest = browserPath === undefined ? test.skip : test;
const userTest = isRoot ? browserTest : test.skip;
const main = browserPath === undefined ? "" : await bundledMain();
const daemonOf = sharedDaemon(browserPath === undefined ? {} : { main });
const shared = shareBrowser();
/** Above the uids that hosts give to accounts: the page shows names of accounts. */
const somebody = 61_003;

browserTest(`a session survives a reload and opens in a second tab${why}`, async (t) => {
  t.timeout(120_000);
  const daemon = await daemonOf();
  const { page } = await openPage(shared.browser);
  await signIn(page, daemon);
  await page.getByText("Live", { exact: true }).waitFor();
  const [cookie] = await page.context().cookies();
  t.like(cookie, { name: `svc_session_${daemon.port}`, httpOnly: true, sameSite: "Strict" });
  await page.reload();
  await page.getByText("Live", { exact: true }).waitFor();
  const second = await page.context().newPage();
  await visit(second, new URL("/", page.url()).href);
  await second.getByText("Live", { exact: true }).waitFor();
  await second.getByRole("button", { name: "Sign out" }).click();
  await second.getByText("You have signed out.").waitFor();
  await second.reload();
  await second.getByRole("button", { name: "Sign in" }).waitFor();
  await page.getByText(/^Your session has ended/).waitFor();
  t.pass();
});

userTest(
  `a link of another user opens a question, and the header shows who is signed in${why || needsRoot}`,
  async (t) => {
    t.timeout(120_000);
    const daemon = await daemonOf();
    await using connection = await daemon.as(somebody);
    const { page } = await openPage(shared.browser);
    await signIn(page, daemon);
    const who = page.locator(".who");
    await who.getByText(/root/).waitFor();

    await visit(page, await addressFor(connection));
    await page.getByRole("heading", { name: `Sign in as ${somebody}?` }).waitFor();
    await page.getByRole("button", { name: "Stay root" }).click();
    await who.getByText(/root/).waitFor();

    await visit(page, await addressFor(connection));
    await page.getByRole("button", { name: `Switch to ${somebody}` }).click();
    await who.getByText(new RegExp(String(somebody))).waitFor();
    // The session of the former user has ended.
    t.deepEqual((await daemon.client(SessionService).listSessions({})).sessions, []);
    await page.reload();
    await who.getByText(new RegExp(String(somebody))).waitFor();
    await connection.client(SessionService).endSessions({});
  },
);

userTest(
  `a link that another user has created signs a visitor in only after a question${why || needsRoot}`,
  async (t) => {
    t.timeout(120_000);
    const daemon = await daemonOf();
    await using connection = await daemon.as(somebody);
    const { page } = await openPage(shared.browser);
    const sessions = connection.client(SessionService);
    const address = await addressFor(connection);
    await visit(page, address);
    await page.getByRole("heading", { name: `Sign in as ${somebody}?` }).waitFor();
    t.deepEqual((await sessions.listSessions({})).sessions, []);
    await page.getByRole("button", { name: "Do not sign in" }).click();
    await page.getByRole("button", { name: "Sign in", exact: true }).waitFor();
    t.deepEqual((await sessions.listSessions({})).sessions, []);

    await visit(page, address);
    await confirmSignIn(page);
    await page
      .locator(".who")
      .getByText(new RegExp(String(somebody)))
      .waitFor();
    t.is((await sessions.listSessions({})).sessions.length, 1);
    await sessions.endSessions({});
  },
);

browserTest(`the sessions of a user are listed and ended one by one${why}`, async (t) => {
  t.timeout(120_000);
  const daemon = await daemonOf();
  const { sessions } = { sessions: daemon.client(SessionService) };
  await sessions.endSessions({});
  const { page } = await openPage(shared.browser);
  const other = await openPage(shared.browser);
  await signIn(other.page, daemon);
  await other.page.getByText("Live", { exact: true }).waitFor();
  await signIn(page, daemon);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.evaluate('location.hash = "#/access"');
  const table = page.getByRole("region", { name: "Your sessions" });
  await table.getByText("(this one)").waitFor();
  await table.getByRole("button", { name: "End", exact: true }).click();
  await other.page.getByText(/^Your session has ended/).waitFor();
  await eventually(async () => assert.equal((await sessions.listSessions({})).sessions.length, 1));
  // A further link of the same user replaces the session instead of adding one.
  await visit(page, await addressFor(daemon));
  await page.getByText("Live", { exact: true }).waitFor();
  await eventually(async () => assert.equal((await sessions.listSessions({})).sessions.length, 1));
  t.pass();
});

/** Takes the daemon's port after it stopped, and responds as no daemon does. */
async function squat(port: number) {
  const credentials: string[] = [];
  let requests = 0;
  const server = createServer((request, response) => {
    requests += 1;
    if (request.headers.authorization !== undefined) credentials.push(request.headers.authorization);
    response.writeHead(503).end();
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return {
    credentials,
    requests: () => requests,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await nextEvent(server, "close");
    },
  };
}

async function pasteToken(page: Page, { port, token }: TestDaemon): Promise<void> {
  await visit(page, `http://127.0.0.1:${port}/`);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Live", { exact: true }).waitFor();
}

browserTest(
  `a pasted token does not reach a program that takes the port when the daemon stops${why}`,
  async (t) => {
    t.timeout(120_000);
    await using daemon = await startDaemon({ main, listen: `127.0.0.1:${await freePort()}` });
    const { page } = await openPage(shared.browser);
    await pasteToken(page, daemon);
    await daemon.stop();
    {
      await using squatter = await squat(daemon.port);
      await page.getByText(/^The connection to the daemon broke, so this page removed your token/).waitFor();
      // The page polls every five seconds at most, as long as it is signed in.
      await setTimeout(12_000);
      t.deepEqual(squatter.credentials, []);
      // The squatter is reachable: a request of the page would be recorded.
      await page.evaluate('fetch("/healthz").catch(() => undefined)');
      t.true(squatter.requests() > 0);
    }
    await daemon.restart();
    // The port is bound again some time after the socket.
    await eventually(async () => {
      assert.equal((await fetch(`http://127.0.0.1:${daemon.port}/healthz`)).status, 200);
    });
    await page.getByLabel("Token").fill(daemon.token);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("Live", { exact: true }).waitFor();
  },
);

browserTest(`a request without a response of the daemon removes a pasted token${why}`, async (t) => {
  t.timeout(120_000);
  const daemon = await daemonOf();
  const { page, asked } = await openPage(shared.browser);
  await pasteToken(page, daemon);
  await page.route("**/svc.v1.SessionService/ListSessions", (route) =>
    route.fulfill({ status: 502, body: "" }),
  );
  await page.evaluate('location.hash = "#/access"');
  await page.getByText(/^The connection to the daemon broke, so this page removed your token/).waitFor();
  t.is(asked.filter((address) => address.endsWith("/ListSessions")).length, 1, "it is not sent again");
});

browserTest(`a sign-in link that has expired says so${why}`, async (t) => {
  t.timeout(120_000);
  const daemon = await daemonOf();
  const { page } = await openPage(shared.browser);
  await visit(page, `http://127.0.0.1:${daemon.port}/#code=svco_${"x".repeat(43)}`);
  const text = (await page.getByRole("alert").textContent()) ?? "";
  t.regex(text, /^This sign-in link has expired or was already used; get another with: svc web/);
});
