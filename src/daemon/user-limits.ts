import type { LimitsIn } from "../lib/limit-table.ts";

const mib = 2 ** 20;
const gib = 2 ** 30;
const count = { min: 1, max: 1_000_000 };
const size = { min: mib, max: 2 ** 40 };

/**
 * What the users of a daemon may have and do at a time. Each is a setting of `[limits]` under its name in snake_case, such
 * as `max_apps_per_user`; sizes are in bytes. What counts per user does not bind root, who sets it, but for installs at
 * a time. Refusals are `too_many` and name the setting. None but that of backups can be switched off.
 */
export const userLimits = {
  /** Apps that a user owns, also those that are being installed. */
  maxAppsPerUser: { default: 200, ...count },
  /** Credentials that a user keeps. */
  maxCredentialsPerUser: { default: 100, ...count },
  /** Console sessions of a user at a time, of all apps together. */
  maxConsolesPerUser: { default: 64, ...count },
  /** Installs and upgrades of a user at a time; more of them wait. */
  maxInstallsPerUser: { default: 2, min: 1, max: 1000 },
  /** Installs and upgrades of all regular users at a time; more of them wait. Root's do not count. */
  maxInstalls: { default: 4, min: 1, max: 1000 },
  /** Installs and upgrades of a user that wait. */
  maxWaitingInstallsPerUser: { default: 16, min: 0, max: 1000 },
  /** What a commit with its files may bring. */
  maxFetchBytes: { default: 2 * gib, ...size },
  /** Address space of each process of git. */
  maxGitMemoryBytes: { default: 512 * mib, min: 128 * mib, max: 2 ** 40 },
  /** Fetched commits that are kept for a user; the longest unused ones go. */
  maxCacheBytesPerUser: { default: 2 * gib, ...size },
  /** Fetched commits that are kept for all. */
  maxCacheBytes: { default: 8 * gib, ...size },
  /** What a user's archives take in each storage that is a directory of this host; 0 for as much as there is room for. */
  maxBackupBytesPerUser: { default: 64 * gib, min: 0, max: 2 ** 50 },
};

export type UserLimits = LimitsIn<typeof userLimits>;
