/**
 * Accessibility of every view: no serious finding of axe-core and no horizontal scrolling, light and dark, wide and
 * narrow, and everything reachable with the keyboard.
 */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { ExecutionContext } from "ava";
import type { RunOptions } from "axe-core";
import type { Page } from "playwright-core";

/** Rules of axe-core that depend on the colors: the others find the same, light and dark. */
const ofColours = ["color-contrast", "link-in-text-block"];

/** @param name the name of the view */
export async function expectAccessible(t: ExecutionContext, page: Page, name: string): Promise<void> {
  for (const width of [360, 1200]) {
    await page.setViewportSize({ width, height: 900 });
    await expectAccessibleAt(t, page, `${name}, ${width}`);
  }
  t.deepEqual(
    await notReached(page),
    [],
    `${name}: elements that Tab does not reach, or that are not visible`,
  );
}

/** The same for one width, without the keyboard: the page has either color scheme in turn, at last its current one. */
export async function expectAccessibleAt(t: ExecutionContext, page: Page, name: string): Promise<void> {
  const isDark = await page.evaluate<boolean>("matchMedia('(prefers-color-scheme: dark)').matches");
  const [now, other] = isDark ? (["dark", "light"] as const) : (["light", "dark"] as const);
  const width = page.viewportSize()?.width ?? 0;
  for (const colorScheme of [other, now]) {
    await page.emulateMedia({ colorScheme });
    const of = `${name}, ${colorScheme}`;
    t.deepEqual(await findings(page, colorScheme === now ? undefined : ofColours), [], of);
    const needed = Number(await page.evaluate("document.documentElement.scrollWidth"));
    t.true(needed <= width, `${of} needs ${needed} of ${width}`);
  }
}

/**
 * Interactive elements that Tab does not reach, or that are invisible when focused. With an open dialog only its
 * elements count.
 */
export async function notReached(page: Page): Promise<unknown> {
  const count = Number(
    await page.evaluate(`(() => {
      const within = document.querySelector("dialog[open]") ?? document;
      const all = within.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0'], [role='region']");
      const isOther = ({ type, name, checked }) => type === "radio" && name !== "" && !checked;
      const left = new Set([...all].filter((each) => each.checkVisibility() && !isOther(each)));
      const unseen = [];
      document.addEventListener("focusin", ({ target }) => {
        if (left.delete(target) && getComputedStyle(target).outlineStyle === "none") unseen.push(target.outerHTML);
      });
      globalThis.notReached = () => [...unseen, ...[...left].filter((each) => each.isConnected).map((each) => each.outerHTML)];
      return left.size;
    })()`),
  );
  // Twice around, including the browser's own elements in between.
  for (let step = 0; step < 2 * count + 4; step++) {
    await page.keyboard.press("Tab");
    if (step >= count - 1 && (await page.evaluate("notReached().length")) === 0) return [];
  }
  return page.evaluate("notReached()");
}

/** Serious findings of axe-core. @param rules all by default */
async function findings(page: Page, rules?: string[]): Promise<string[]> {
  // Once for each document, minified, because parsing it takes longer than the rules.
  if (!(await page.evaluate<boolean>("'axe' in window")))
    await page.evaluate(await readFile(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8"));
  // Passed rules are not reported, which takes time, too.
  const options: RunOptions = {
    resultTypes: ["violations"],
    ...(rules !== undefined && { runOnly: { type: "rule", values: rules } }),
  };
  return page.evaluate<
    string[]
  >(`axe.run(document, ${JSON.stringify(options)}).then(({ violations }) => violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" ")))`);
}
