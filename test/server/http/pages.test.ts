/** The public pages: they contain no data and load nothing from other hosts. */
import { readFile } from "node:fs/promises";
import { connect as connectHttp2 } from "node:http2";
import test from "ava";
import { sourcePages } from "../../../src/daemon/page-files.ts";
import { openGateway } from "./support/gateway.ts";

const files = sourcePages();

const exact = Object.entries(files).filter(([, file]) => !file.endsWith(".md"));

for (const [path, file] of exact) {
  test(`${path} returns its exact content without a token, and is cached until it changes`, async (t) => {
    await using gateway = await openGateway();
    const answer = await fetch(gateway.url + path);
    t.is(answer.status, 200);
    t.deepEqual(Buffer.from(await answer.arrayBuffer()), await readFile(file));

    const etag = answer.headers.get("etag") ?? "";
    t.regex(etag, /^"[\w-]{43}"$/);
    for (const known of [etag, `"other", W/${etag}`, "*"]) {
      const again = await fetch(gateway.url + path, { headers: { "if-none-match": known } });
      t.deepEqual([again.status, await again.text(), again.headers.get("etag")], [304, "", etag]);
    }
    const other = await fetch(gateway.url + path, { headers: { "if-none-match": '"other"' } });
    t.is(other.status, 200);

    const head = await fetch(gateway.url + path, { method: "HEAD" });
    t.deepEqual(
      [head.status, head.headers.get("content-length"), await head.text()],
      [200, answer.headers.get("content-length"), ""],
    );
    t.is((await fetch(gateway.url + path, { method: "POST" })).status, 401, "only reading is public");
  });
}

test("the API page allows nothing inline, nothing external and no frame", async (t) => {
  await using gateway = await openGateway();
  const { headers } = await fetch(`${gateway.url}/docs`);
  t.is(headers.get("content-type"), "text/html; charset=utf-8");
  t.is(headers.get("x-content-type-options"), "nosniff");
  const policy = headers.get("content-security-policy") ?? "";
  t.regex(policy, /default-src 'none'/);
  t.regex(policy, /frame-ancestors 'none'/);
  t.notRegex(policy, /unsafe|https?:|\*/);
});

test("a browser gets a page for an unknown address, and a program an error", async (t) => {
  await using gateway = await openGateway();
  const visit = { headers: { accept: "text/html,application/xhtml+xml,*/*;q=0.8" } };
  const missing = await fetch(`${gateway.url}/nothing/here`, visit);
  t.is(missing.status, 404);
  t.is(missing.headers.get("content-type"), "text/html; charset=utf-8");
  t.regex(missing.headers.get("content-security-policy") ?? "", /default-src 'none'/);
  t.regex(await missing.text(), /There is no page at this address\. <a href="\/">Open svc<\/a>/);
  const head = await fetch(`${gateway.url}/nothing`, { ...visit, method: "HEAD" });
  t.deepEqual([head.status, await head.text()], [404, ""]);
  t.is((await fetch(`${gateway.url}/nothing`)).status, 401);
  t.is((await fetch(`${gateway.url}/nothing`, { ...visit, method: "POST" })).status, 401);
  for (const path of ["/v1/apps", "/v1/nothing", "/metrics"]) {
    const { status, headers } = await fetch(gateway.url + path, visit);
    t.deepEqual([status, headers.get("content-type")], [401, "application/json"], path);
  }
});

test("every link of the guide leads to a page, and to an anchor of that page", async (t) => {
  await using gateway = await openGateway();
  const guide = Object.keys(files).filter((path) => path.startsWith("/docs/guide") && !path.endsWith(".css"));
  t.true(guide.length > 40);
  const pages = new Map<string, string>();
  for (const path of guide) {
    const answer = await fetch(gateway.url + path);
    t.is(answer.headers.get("content-type"), "text/html; charset=utf-8");
    t.regex(answer.headers.get("content-security-policy") ?? "", /require-trusted-types-for 'script'/);
    pages.set(path, await answer.text());
  }
  const broken: string[] = [];
  for (const [path, html] of pages) {
    t.notRegex(html, /<script|style="/);
    for (const [, href = ""] of html.matchAll(/href="([^"]+)"/g)) {
      const { origin, pathname, hash } = new URL(href, gateway.url + path);
      if (!href.startsWith("data:") && origin === gateway.url && pathname !== "/") {
        const target = pages.get(pathname);
        const isThere = target !== undefined || pathname in files;
        const hasAnchor = hash === "" || target?.includes(` id="${decodeURIComponent(hash.slice(1))}"`);
        if (!isThere || hasAnchor !== true) broken.push(`${path}: ${href}`);
      }
    }
  }
  t.deepEqual(broken, []);
});

test("pages check Host and Origin like everything else", async (t) => {
  await using gateway = await openGateway();
  t.is((await fetch(`${gateway.url}/docs`, { headers: { origin: "https://evil.example" } })).status, 403);
});

test("pages are served over HTTP/2, too", async (t) => {
  await using gateway = await openGateway();
  const session = connectHttp2(gateway.url);
  const stream = session.request({ ":path": "/docs" });
  const { promise, resolve } = Promise.withResolvers<unknown>();
  stream.on("response", (headers) => resolve(headers[":status"]));
  stream.resume().end();
  t.is(await promise, 200);
  session.destroy();
});

test("an unknown page needs a token, and a missing file affects only its page", async (t) => {
  await using gateway = await openGateway({ pages: { "/docs": "/nowhere/docs.html" } });
  t.is((await fetch(`${gateway.url}/docs/../../etc/passwd`)).status, 401);
  t.is((await fetch(`${gateway.url}/constructor`)).status, 401);
  const answer = await fetch(`${gateway.url}/docs`);
  t.is(answer.status, 500);
  t.notRegex(await answer.text(), /nowhere/);
  t.is((await fetch(`${gateway.url}/healthz`)).status, 200);
});
