/** What the page begins with: so small that hardly anything can come between, and it loads the rest, again where that broke off. */
import { loadAgain } from "./load-again.ts";

/** Where the page's program is; said when it is built. */
declare const MAIN_PATH: string;

for (const link of document.querySelectorAll<HTMLLinkElement>("link[rel=stylesheet]"))
  if (!isThere(link)) void loadAgain(() => loadStyle(link));
await loadAgain(() => import(MAIN_PATH) as Promise<unknown>);

/** Of a style that did not come there is none, or one that nobody may read. */
function isThere({ sheet }: HTMLLinkElement): boolean {
  try {
    return (sheet?.cssRules.length ?? 0) > 0;
  } catch {
    return false;
  }
}

/** In the place of one that did not come. */
function loadStyle(link: HTMLLinkElement): Promise<void> {
  const again = document.createElement("link");
  again.rel = link.rel;
  again.href = link.href;
  const loaded = new Promise<void>((resolve, reject) => {
    again.addEventListener("load", () => resolve());
    again.addEventListener("error", () => {
      again.remove();
      reject(new Error("the style did not come"));
    });
  });
  document.head.append(again);
  return loaded;
}
