/** Reloads the configuration of a running daemon. */
import type { Alerts } from "../../observability/alerts/alerts.ts";
import { checkAccounts } from "../config-accounts.ts";
import { ConfigReload } from "../config-reload.ts";
import type { InstalledApps } from "./apps.ts";
import type { Packages } from "./packages.ts";
import type { Platform } from "./platform.ts";

export function createConfigReload(
  { config, reloadConfig, users, log }: Platform,
  { sources }: Packages,
  { upgradeDefaults }: InstalledApps,
  alerts: Alerts,
): ConfigReload {
  return new ConfigReload({
    config,
    load: async () => {
      const fresh = await reloadConfig();
      await checkAccounts(fresh, users);
      return fresh;
    },
    apply: {
      alerts: (fresh) => alerts.configure(fresh.alerts),
      sources: (fresh) => sources.configure(fresh.sources),
      "apps.backup_before_upgrade": (fresh) => {
        upgradeDefaults.backUpFirst = fresh.apps.backUpBeforeUpgrade;
      },
      "log.level": (fresh) => {
        log.level = fresh.log.level;
      },
    },
  });
}
