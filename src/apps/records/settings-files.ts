/** Writes settings that an app reads from files into its data at every start. */
import { join } from "node:path";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { resolveSettings } from "../../packages/settings/settings.ts";
import { appTree } from "../../runtimes/app-tree.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";

/** Writes the files as the app's user. */
export async function writeSettingsFiles(userHelpers: UserHelpers, app: RunnableApp): Promise<void> {
  const { files } = resolveSettings(app.manifest, app.settings);
  if (files.length === 0) return;
  const tree = await userHelpers.tree(app.directory, app.uid);
  for (const { path, content } of files) await tree.writeFile(join(appTree.data, path), content);
}
