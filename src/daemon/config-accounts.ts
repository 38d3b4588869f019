/** Checks a configuration, and its accounts against those of the host. */
import { SvcError, invalidField } from "../errors.ts";
import { type Users, createUsers } from "../run-as/user.ts";
import { type Config, loadConfig, type LoadConfigOptions } from "./config.ts";

/**
 * @throws SvcError `invalid_request` if the host has no such account, so that the problem shows before an app needs
 *   the account
 */
export async function checkAccounts({ apps, file }: Config, users: Pick<Users, "byName">): Promise<void> {
  if (apps.rootRunsAs === undefined) return;
  try {
    await users.byName(apps.rootRunsAs);
  } catch (error) {
    if (!(error instanceof SvcError) || error.code === "unavailable") throw error;
    const why = `the host has no account "${apps.rootRunsAs}", which ${file} names`;
    throw invalidField("apps.root_runs_as", why);
  }
}

/** Checks whether the daemon would start with a configuration. @throws SvcError as the start would, with one violation per key */
export async function checkConfig(options: LoadConfigOptions): Promise<void> {
  await checkAccounts(await loadConfig(options), createUsers());
}
