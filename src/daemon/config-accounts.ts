/** Checks the accounts in a configuration against those of the host. */
import { SvcError, invalidField } from "../errors.ts";
import type { Users } from "../run-as/user.ts";
import type { Config } from "./config.ts";

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
