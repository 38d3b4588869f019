/** The browser that tests of pages use. */
import { access } from "node:fs/promises";
import { delimiter, join } from "node:path";

/** Path of a Chromium in PATH; undefined where there is none. */
export const browserPath = await findBrowser();

async function findBrowser(): Promise<string | undefined> {
  const names = ["chromium", "chromium-browser", "google-chrome"];
  for (const dir of (process.env["PATH"] ?? "").split(delimiter)) {
    for (const name of names) {
      const path = join(dir, name);
      if (
        await access(path).then(
          () => true,
          () => false,
        )
      )
        return path;
    }
  }
  return undefined;
}
