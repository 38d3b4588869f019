/**
 * Texts for people: the Markdown of the guide, masked secrets, and addresses of apps. The two halves of a page's
 * session token.
 */
import test from "ava";
import { createPaint } from "../../src/cli/output/color.ts";
import { renderMarkdown } from "../../src/cli/output/markdown.ts";
import { maskSecretTexts } from "../../src/lib/secret-mask.ts";
import { schemeOf, webPortOf } from "../../src/lib/web-port.ts";
import { guidePage } from "../../src/server/http/guide-page.ts";
import { joinTokens, sessionCookie, splitToken } from "../../src/lib/session-cookie.ts";

// The Markdown of the guide, on a terminal and as HTML.

const page = `# Title of \`it\`

Words that
continue, with **bold text**, a [link](other.md#part) and \`code <b>\`.

- one
  more
  - deep
1. first

| key | meaning |
|---|---|
| \`a\\|b\` | a long explanation that does not fit into the width of this terminal |

\`\`\`sh
# not a heading
svc ls | cat
\`\`\`
`;

test("a terminal shows where a link leads: an address, or the command for a page of the guide", (t) => {
  const links = "See [updates](how-to/update-svc.md#undo), [Node](https://nodejs.org) or [below](#here).";
  t.is(
    renderMarkdown(links, 100, createPaint(false)),
    "See updates (svc help update-svc), Node (https://nodejs.org) or below.\n",
  );
});

test("a terminal shows headings, wrapped text, lists, tables and code", (t) => {
  t.is(
    renderMarkdown(page, 40, createPaint(false)),
    `TITLE OF IT

Words that continue, with bold text, a
link (svc help other) and code <b>.

• one more
  • deep
1. first

key  meaning
a|b  a long explanation that does not
     fit into the width of this terminal

    # not a heading
    svc ls | cat
`,
  );
});

test("tables never exceed the terminal as long as eight characters per column fit", (t) => {
  const wide = `| a | b |\n|---|---|\n| ${"word ".repeat(40)} | ${"other ".repeat(50)} |\n`;
  for (const width of [20, 33, 80]) {
    for (const line of renderMarkdown(wide, width, createPaint(false)).split("\n"))
      t.true(line.length <= width, line);
  }
});

test("HTML escapes text, and links lead to pages of the guide", (t) => {
  const html = guidePage("/docs/guide/how-to/x", page);
  t.regex(html, /<title>Title of it · svc<\/title>/);
  t.regex(html, /<h1 id="title-of-it">Title of <code>it<\/code><\/h1>/);
  t.regex(html, /<a href="\.\/other#part">link<\/a> and <code>code &lt;b&gt;<\/code>/);
  t.regex(html, /<ul>\n<li>one more<\/li>\n<li class="deep">deep<\/li>\n<\/ul>\n<ol>\n<li value="1">first/);
  t.regex(html, /<td><code>a\|b<\/code><\/td>/);
  const outside = guidePage("/docs/guide", "[a](javascript:alert) [b](../CHANGELOG.md) [c](faq.md)");
  t.notRegex(outside, /javascript|CHANGELOG/);
  t.regex(outside, /<a href="guide\/faq">c<\/a>/);
});

// Secrets masked in texts that people read.

const line = "a backup of app data started; pass data=data7, passphrase";

for (const [title, secret, masked] of [
  ["a secret of one letter leaves a text as it is", "a", line],
  ["an empty secret leaves a text as it is", "", line],
  ["a short secret inside longer words stays readable", "pass", line.replace("pass ", "*** ")],
  ["a short secret is masked where it is a word", "data", line.replaceAll(/\bdata\b/g, "***")],
  ["a long secret is masked inside a longer word", "passphra", line.replace("passphra", "***")],
] as const) {
  test(title, (t) => t.is(maskSecretTexts(line, [secret]), masked));
}

test("the longer of two secrets is masked whole", (t) => {
  t.is(maskSecretTexts("key s3cr3t-token-1 sent", ["s3cr3t-token", "s3cr3t-token-1"]), "key *** sent");
});

test("characters with a meaning in patterns are masked as they are", (t) => {
  t.is(maskSecretTexts("sent a.c$&+(x and abcd", ["a.c$&+(x"]), "sent *** and abcd");
});

// The port that a browser opens.

const addresses: readonly [names: readonly string[], name: string | undefined, scheme: "http" | "https"][] = [
  [["ssh", "web"], "web", "http"],
  [["https"], "https", "https"],
  [["https-portal", "https-portal-443"], "https-portal", "http"],
  [["proxy-443"], "proxy-443", "https"],
  [["admin-https"], "admin-https", "https"],
  [["mqtt"], undefined, "http"],
];
for (const [names, name, scheme] of addresses) {
  test(`a browser opens ${name ?? "no port"} of ${names.join(" and ")} by ${scheme}`, (t) => {
    const port = webPortOf(names.map((each) => ({ name: each, protocol: "tcp" })));
    t.is(port?.name, name);
    if (port !== undefined) t.is(schemeOf(port), scheme);
  });
}

// The two halves of a page's session token.

const token = `svcs_${"k".repeat(22)}${"r".repeat(21)}`;
const { key, rest } = splitToken(token);

for (const [origin, host] of [
  ["https://node.example.com", "node.example.com"],
  ["https://node.example.com", "node.example.com:443"],
  ["http://node.example.com", "node.example.com:80"],
  ["https://node.example.com:8443", "node.example.com:8443"],
] as const) {
  test(`the cookie of ${origin} is found in a request with the host ${host}`, (t) => {
    const [pair = ""] = sessionCookie(origin, rest).split(";");
    t.deepEqual(joinTokens(key, pair, host), [token]);
  });
}

test("the cookie of another port is not used", (t) => {
  const [pair = ""] = sessionCookie("https://node.example.com:8443", rest).split(";");
  t.deepEqual(joinTokens(key, pair, "node.example.com"), []);
});
