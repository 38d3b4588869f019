/** The result of `svc doctor`'s check of the store, without a process. */
import { loadConfig } from "../../src/daemon/config.ts";
import { checkStore } from "../../src/doctor/store.ts";
import type { TestDaemon } from "./daemon.ts";

/** @returns such as `ok: TEXT` */
export async function storeCheck(daemon: TestDaemon): Promise<string> {
  const uid = process.getuid?.() ?? 0;
  const environment = { uid, home: daemon.dir, env: {} };
  const config = await loadConfig({ file: daemon.configFile, environment });
  const { state, text } = await checkStore({ config, uid, env: {}, servedAt: undefined });
  return `${state}: ${text}`;
}
