/** Settings that an app reads from files are written into its data at every start. */
import { join } from "node:path";
import type { Identities } from "../identity/identities.ts";
import { resolveSettings } from "../packages/settings.ts";
import { appTree } from "../runtimes/app-tree.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";

/** Writes them as the app's own. */
export async function writeSettingsFiles(identities: Identities, app: RunnableApp): Promise<void> {
  const { files } = resolveSettings(app.manifest, app.settings);
  if (files.length === 0) return;
  const tree = await identities.tree(app.directory, app.uid);
  for (const { path, content } of files) await tree.writeFile(join(appTree.data, path), content);
}
