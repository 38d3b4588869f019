/**
 * The page's first script: small, so that loading it rarely fails. It loads the rest, and retries if that
 * fails.
 */
import { withRetries } from "./retry.ts";

/** Path of the main script, defined by the build. */
declare const MAIN_PATH: string;

for (const link of document.querySelectorAll<HTMLLinkElement>("link[rel=stylesheet]"))
  if (!isThere(link)) void withRetries(() => loadStyle(link));
await withRetries(() => import(MAIN_PATH) as Promise<unknown>);

/** A stylesheet that failed to load is missing, or not readable. */
function isThere({ sheet }: HTMLLinkElement): boolean {
  try {
    return (sheet?.cssRules.length ?? 0) > 0;
  } catch {
    return false;
  }
}

/** Replaces a stylesheet that failed to load. */
function loadStyle(link: HTMLLinkElement): Promise<void> {
  const replacement = document.createElement("link");
  replacement.rel = link.rel;
  replacement.href = link.href;
  const loaded = new Promise<void>((resolve, reject) => {
    replacement.addEventListener("load", () => resolve());
    replacement.addEventListener("error", () => {
      replacement.remove();
      reject(new Error("failed to load a stylesheet"));
    });
  });
  document.head.append(replacement);
  return loaded;
}
