/** A package whose build waits, so that a test can observe an install in progress. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { ExecutionContext } from "ava";
import { writeFiles } from "./packages.ts";

export interface GatedPackage {
  readonly spec: string;
  /** Lets the build continue. */
  readonly open: () => Promise<void>;
}

/** Its build prints `one`, waits, and prints `two`. */
export async function writeGated(
  t: ExecutionContext,
  daemon: { readonly dir: string },
  id = "web",
): Promise<GatedPackage> {
  const gate = join(daemon.dir, `gate-${id}`);
  const dir = join(daemon.dir, `package-${id}`);
  const build = JSON.stringify([
    { exec: ["sh", "-c", `echo one; until [ -e ${gate} ]; do sleep 0.05; done; echo two`] },
  ]);
  const manifest = `id: ${id}\nname: Web\nversion: "1"\nprocess: { exec: [sleep, "3600"], build: ${build} }\n`;
  await writeFiles(dir, { "svc.yaml": manifest });
  const open = (): Promise<void> => writeFile(gate, "");
  // A failed test does not leave an app that cannot be removed.
  t.teardown(() => open().catch(() => undefined));
  return { spec: dir, open };
}
