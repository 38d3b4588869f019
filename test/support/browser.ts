/** The browsers that tests of pages use. */
import { access } from "node:fs/promises";
import { delimiter, join } from "node:path";

const whole = await findProgram(["chromium", "chromium-browser", "google-chrome"]);
/** The same pages without all that is around them, which takes a fifth to a third less of a processor. */
const windowless = await findProgram(["chromium-headless-shell", "chrome-headless-shell"]);

/** Path of a Chromium in PATH, as people have it where there is one; undefined where there is none. */
export const browserPath = whole ?? windowless;
/** Path of the one that takes less where there is one. */
export const cheapBrowserPath = windowless ?? whole;

async function findProgram(names: readonly string[]): Promise<string | undefined> {
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
