/** What every view owes everybody: no serious finding of axe-core and no scrolling to the side, light and dark, wide and narrow. */
import { AxeBuilder } from "@axe-core/playwright";
import type { ExecutionContext } from "ava";
import type { Page } from "playwright-core";

/** @param name what the page shows */
export async function isForEverybody(t: ExecutionContext, page: Page, name: string): Promise<void> {
  for (const colorScheme of ["dark", "light"] as const) {
    for (const width of [360, 1200]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      const of = `${name}, ${colorScheme}, ${width}`;
      t.deepEqual(await findings(page), [], of);
      const needed = Number(await page.evaluate("document.documentElement.scrollWidth"));
      t.true(needed <= width, `${of} takes ${needed}`);
    }
  }
}

/** What axe-core finds serious. */
export async function findings(page: Page): Promise<string[]> {
  const { violations } = await new AxeBuilder({ page }).setLegacyMode().analyze();
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}
