/** Checks whether the daemon would start with a configuration (`svc daemon --check`). Starts and changes nothing. */
import { createUsers } from "../run-as/user.ts";
import { checkAccounts } from "./config-accounts.ts";
import { loadConfig, type LoadConfigOptions } from "./config.ts";

/** @throws SvcError as the start would, with one violation per key */
export async function checkConfig(options: LoadConfigOptions): Promise<void> {
  await checkAccounts(await loadConfig(options), createUsers());
}
