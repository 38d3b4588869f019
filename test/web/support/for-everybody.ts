/** What every view owes everybody: no serious finding of axe-core and no scrolling to the side, light and dark, wide and narrow, and all of it by the keyboard. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { ExecutionContext } from "ava";
import type { RunOptions } from "axe-core";
import type { Page } from "playwright-core";

/** Rules of axe-core that hang on the colours: the others find the same, light and dark. */
const ofColours = ["color-contrast", "link-in-text-block"];

/** @param name what the page shows */
export async function isForEverybody(t: ExecutionContext, page: Page, name: string): Promise<void> {
  for (const width of [360, 1200]) {
    await page.setViewportSize({ width, height: 900 });
    await isForEverybodyAt(t, page, `${name}, ${width}`);
  }
  t.deepEqual(await notReached(page), [], `${name}: what the tabulator does not reach, or does not show`);
}

/** The same of one width, without the keyboard: the page has either colour scheme in turn, at last the one that it has now. */
export async function isForEverybodyAt(t: ExecutionContext, page: Page, name: string): Promise<void> {
  const isDark = await page.evaluate<boolean>("matchMedia('(prefers-color-scheme: dark)').matches");
  const [now, other] = isDark ? (["dark", "light"] as const) : (["light", "dark"] as const);
  const width = page.viewportSize()?.width ?? 0;
  for (const colorScheme of [other, now]) {
    await page.emulateMedia({ colorScheme });
    const of = `${name}, ${colorScheme}`;
    t.deepEqual(await findings(page, colorScheme === now ? undefined : ofColours), [], of);
    const needed = Number(await page.evaluate("document.documentElement.scrollWidth"));
    t.true(needed <= width, `${of} takes ${needed} of ${width}`);
  }
}

/**
 * What one could press or type into and does not come to with the tabulator, or does not see when one is there. Of a question
 * only what is in it counts: the rest waits.
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
  // Twice around, and the browser's own places between.
  for (let step = 0; step < 2 * count + 4; step++) {
    await page.keyboard.press("Tab");
    if (step >= count - 1 && (await page.evaluate("notReached().length")) === 0) return [];
  }
  return page.evaluate("notReached()");
}

/** What axe-core finds serious. @param rules all where it is left out */
async function findings(page: Page, rules?: string[]): Promise<string[]> {
  // Once for each document, and in its short form: to read it takes longer than the rules.
  if (!(await page.evaluate<boolean>("'axe' in window")))
    await page.evaluate(await readFile(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8"));
  // What it found nothing wrong with is not described, which takes its time, too.
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
