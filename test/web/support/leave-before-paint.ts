import type { Page } from "playwright-core";

/** Navigates to another view and delays its painting: work that waits for it is not done for two seconds. */
export async function leaveBeforePaint(page: Page, hash: string): Promise<void> {
  await page.evaluate(`{
    const { setTimeout } = window;
    window.requestAnimationFrame = () => 0;
    window.setTimeout = (work, ms = 0, ...more) => setTimeout(work, Math.max(ms, 2_000), ...more);
    location.hash = ${JSON.stringify(hash)};
  }`);
}
