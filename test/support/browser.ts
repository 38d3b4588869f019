/** The browsers for tests of pages. */
import { access } from "node:fs/promises";
import { delimiter, join } from "node:path";

const whole = await findProgram(["chromium", "chromium-browser", "google-chrome"]);
/** A browser without a user interface, which uses a fifth to a third less CPU time for the same pages. */
const windowless = await findProgram(["chromium-headless-shell", "chrome-headless-shell"]);

/** Path of a Chromium in PATH, as users have it; undefined if there is none. */
export const browserPath = whole ?? windowless;
/** Path of the one that uses less CPU time, if it is installed. */
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
