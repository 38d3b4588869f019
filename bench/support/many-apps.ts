/** A store with many apps, without the duration of their installs. */
import { cp } from "node:fs/promises";
import { join } from "node:path";
import { copyApp } from "../../test/support/copy-app.ts";
import type { BenchDaemon } from "./daemon.ts";

/** Installs one app and copies its row and its directories until there are `count`. The daemon must be stopped. */
export async function fillStore(daemon: BenchDaemon, count: number): Promise<void> {
  const idle = await daemon.writePackage("idle", "setInterval(() => {}, 1e6);\n");
  await daemon.svc("install", idle);
  await daemon.stop();
  copyApp(join(daemon.storeDir, "svc.db"), "idle", count);
  for (const folder of ["apps", "run"]) {
    const from = join(daemon.storeDir, folder, "idle");
    for (let number = 2; number <= count; number += 1) {
      await cp(from, `${from}-${number}`, { recursive: true }).catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      });
    }
  }
}
