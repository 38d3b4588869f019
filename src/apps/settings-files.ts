/** Settings that an app reads from files are written into its data at every start. */
import { dirname, join } from "node:path";
import type { Identities } from "../identity/identity.ts";
import { resolveSettings } from "../packages/settings.ts";
import { appTree } from "../runtimes/app-tree.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";

/** Writes them with the identity of the app. */
export async function writeSettingsFiles(identities: Identities, app: RunnableApp): Promise<void> {
  const { files } = resolveSettings(app.manifest, app.settings);
  if (files.length === 0) return;
  const identity = await identities.as(app.uid);
  for (const { path, content } of files) {
    const target = join(appTree.data, path);
    await identity.makeDirs(app.directory, [dirname(target)]);
    await identity.writeFile(app.directory, target, content);
  }
}
