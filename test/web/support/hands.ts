/** How somebody works with the page: with a mouse, or with the keyboard alone. */
import assert from "node:assert/strict";
import type { Locator, Page } from "playwright-core";

export interface Hands {
  /** A button, a link, or what opens. */
  readonly press: (target: Locator) => Promise<void>;
  /** Instead of what stands there. */
  readonly type: (field: Locator, text: string) => Promise<void>;
  /** One of a list, by its label. */
  readonly choose: (field: Locator, label: string) => Promise<void>;
}

export function mouse(): Hands {
  return {
    press: (target) => target.click(),
    type: (field, text) => field.fill(text),
    choose: async (field, label) => {
      await field.selectOption({ label });
    },
  };
}

const mostSteps = 400;

export function keyboard(page: Page): Hands {
  const keys = page.keyboard;
  /** Goes on with the tabulator until it is there, which one sees. */
  const goTo = async (target: Locator): Promise<void> => {
    await target.waitFor();
    for (let steps = 0; steps < mostSteps; steps++) {
      if ((await target.and(page.locator(":focus-visible")).count()) > 0) {
        const outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle");
        assert.notEqual(outline, "none", `one sees where one is: ${String(target)}`);
        return;
      }
      await keys.press("Tab");
    }
    assert.fail(`the tabulator never comes to ${String(target)}`);
  };
  return {
    press: async (target) => {
      await goTo(target);
      await keys.press("Enter");
    },
    type: async (field, text) => {
      await goTo(field);
      await keys.press("Control+A");
      await keys.press("Delete");
      await keys.type(text);
    },
    choose: async (field, label) => {
      await goTo(field);
      await keys.type(label);
    },
  };
}
