/** The guide at `/docs/guide`: the pages of `docs/` as HTML. They contain no script. */
import { posix } from "node:path";
import { anchorOf, parseInline, parseMarkdown, visibleText, type Block } from "../../lib/markdown.ts";

/** The path of the index; every other page is below it, under the path of its file without `.md`. */
const guidePath = "/docs/guide";
const styleSheet = "/docs/guide.css";

/** @param file path below `docs/`, such as `how-to/change-a-port.md` */
export function guidePathOf(file: string): string {
  return file === "README.md" ? guidePath : `${guidePath}/${file.replace(/\.md$/, "")}`;
}

/** @param path the path that the page is served at */
export function guidePage(path: string, markdown: string): string {
  const blocks = parseMarkdown(markdown);
  const [first] = blocks;
  const title = first?.kind === "heading" ? visibleText(first.text) : "Guide";
  const linkTo = (target: string): string => escapeHtml(relativeLink(path, target));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)} · svc</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${linkTo(styleSheet)}">
</head>
<body>
<nav><a href="${linkTo("/")}">svc</a> <a href="${linkTo(guidePath)}">Guide</a></nav>
<main>
${bodyOf(blocks, path)}
</main>
</body>
</html>
`;
}

function bodyOf(blocks: readonly Block[], path: string): string {
  let html = "";
  let list: string | undefined;
  for (const block of blocks) {
    const nextList = block.kind === "item" ? listOf(block.marker) : undefined;
    if (list !== nextList) {
      if (list !== undefined) html += `</${list}>\n`;
      if (nextList !== undefined) html += `<${nextList}>\n`;
      list = nextList;
    }
    html += `${htmlOf(block, path)}\n`;
  }
  return list === undefined ? html : `${html}</${list}>`;
}

function listOf(marker: string): "ol" | "ul" {
  return marker.length > 1 ? "ol" : "ul";
}

function htmlOf(block: Block, path: string): string {
  switch (block.kind) {
    case "heading":
      return `<h${block.level} id="${escapeHtml(anchorOf(block.text))}">${inlineHtml(block.text, path)}</h${block.level}>`;
    case "code":
      return `<pre><code>${escapeHtml(block.text)}</code></pre>`;
    case "table": {
      const row = (cells: readonly string[], tag: string): string =>
        `<tr>${cells.map((cell) => `<${tag}>${inlineHtml(cell, path)}</${tag}>`).join("")}</tr>`;
      const body = block.rows.map((cells) => row(cells, "td")).join("\n");
      return `<div class="table"><table><thead>${row(block.head, "th")}</thead>\n<tbody>${body}</tbody></table></div>`;
    }
    case "item": {
      const number = block.marker.length > 1 ? ` value="${Number.parseInt(block.marker, 10)}"` : "";
      return `<li${number}${block.depth > 1 ? ' class="deep"' : ""}>${inlineHtml(block.text, path)}</li>`;
    }
    case "paragraph":
      return `<p${block.depth > 0 ? ' class="deep"' : ""}>${inlineHtml(block.text, path)}</p>`;
  }
}

function inlineHtml(text: string, path: string): string {
  return parseInline(text)
    .map(({ kind, text: shown, target = "" }) => {
      const html = escapeHtml(shown);
      if (kind === "code") return `<code>${html}</code>`;
      if (kind === "bold") return `<strong>${html}</strong>`;
      const href = kind === "link" ? hrefOf(target, path) : undefined;
      return href === undefined ? html : `<a href="${escapeHtml(href)}">${html}</a>`;
    })
    .join("");
}

/** @returns undefined for files outside of the guide, which the daemon does not serve */
function hrefOf(target: string, path: string): string | undefined {
  if (/^(?:https?:|#)/.test(target)) return target;
  const [file = "", anchor] = target.split("#", 2);
  const from = path === guidePath ? "README.md" : `${posix.relative(guidePath, path)}.md`;
  const to = posix.join(posix.dirname(from), file);
  if (to.startsWith("..") || !to.endsWith(".md")) return undefined;
  const href = relativeLink(path, guidePathOf(to));
  return anchor === undefined ? href : `${href}#${anchor}`;
}

/** Relative, because a reverse proxy may serve the daemon below a path of its own. */
function relativeLink(from: string, to: string): string {
  return `${posix.relative(posix.dirname(from), posix.dirname(to)) || "."}/${posix.basename(to)}`;
}

function escapeHtml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
