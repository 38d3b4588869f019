/** The Markdown of the guide, on a terminal and as HTML. */
import test from "ava";
import { createPaint } from "../../src/cli/output/color.ts";
import { renderMarkdown } from "../../src/cli/output/markdown.ts";
import { guidePage } from "../../src/server/http/guide-page.ts";

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

test("a terminal shows headings, wrapped text, lists, tables and code", (t) => {
  t.is(
    renderMarkdown(page, 40, createPaint(false)),
    `TITLE OF IT

Words that continue, with bold text, a
link and code <b>.

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
