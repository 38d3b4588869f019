/** Ways to use the page: with a mouse, or only with the keyboard. */
import assert from "node:assert/strict";
import type { Locator, Page } from "playwright-core";

export interface Hands {
  /** A button, a link, or a disclosure. */
  readonly press: (target: Locator) => Promise<void>;
  /** Replaces the current text. */
  readonly type: (field: Locator, text: string) => Promise<void>;
  /** One option of a list, by its label. */
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
  /** Presses Tab until it has the focus, visibly. */
  const goTo = async (target: Locator): Promise<void> => {
    await target.waitFor();
    for (let steps = 0; steps < mostSteps; steps++) {
      if ((await target.and(page.locator(":focus-visible")).count()) > 0) {
        const outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle");
        assert.notEqual(outline, "none", `the focus is not visible: ${String(target)}`);
        return;
      }
      await keys.press("Tab");
    }
    assert.fail(`Tab never reaches ${String(target)}`);
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
