/**
 * What the users of a daemon may have and do at a time. Each is a setting of `[limits]` under its name in snake_case, such
 * as `max_apps_per_user`; sizes are in bytes. What counts per user does not bind root, who sets it, but for installs at
 * a time. Refusals are `too_many` and name the setting.
 */
export interface UserLimits {
  /** Apps that a user owns, also those that are being installed. */
  readonly maxAppsPerUser: number;
  /** Credentials that a user keeps. */
  readonly maxCredentialsPerUser: number;
  /** Console sessions of a user at a time, of all apps together. */
  readonly maxConsolesPerUser: number;
  /** Installs and upgrades of a user at a time; more of them wait. */
  readonly maxInstallsPerUser: number;
  /** Installs and upgrades of all regular users at a time; more of them wait. Root's do not count. */
  readonly maxInstalls: number;
  /** Installs and upgrades of a user that wait. */
  readonly maxWaitingInstallsPerUser: number;
  /** What a commit with its files may bring. */
  readonly maxFetchBytes: number;
  /** Address space of each process of git. */
  readonly maxGitMemoryBytes: number;
  /** Fetched commits that are kept for a user; the longest unused ones go. */
  readonly maxCacheBytesPerUser: number;
  /** Fetched commits that are kept for all. */
  readonly maxCacheBytes: number;
  /** What a user's archives take in each storage that is a directory of this host; 0 for as much as there is room for. */
  readonly maxBackupBytesPerUser: number;
}

const mib = 2 ** 20;
const gib = 2 ** 30;

export const defaultUserLimits: UserLimits = {
  maxAppsPerUser: 200,
  maxCredentialsPerUser: 100,
  maxConsolesPerUser: 64,
  maxInstallsPerUser: 2,
  maxInstalls: 4,
  maxWaitingInstallsPerUser: 16,
  maxFetchBytes: 2 * gib,
  maxGitMemoryBytes: 512 * mib,
  maxCacheBytesPerUser: 2 * gib,
  maxCacheBytes: 8 * gib,
  maxBackupBytesPerUser: 64 * gib,
};

const count = { min: 1, max: 1_000_000 };
const size = { min: mib, max: 2 ** 40 };

/** What a limit may be, both ends included. None but that of backups can be switched off. */
export const userLimitRanges: Readonly<Record<keyof UserLimits, { min: number; max: number }>> = {
  maxAppsPerUser: count,
  maxCredentialsPerUser: count,
  maxConsolesPerUser: count,
  maxInstallsPerUser: { min: 1, max: 1000 },
  maxInstalls: { min: 1, max: 1000 },
  maxWaitingInstallsPerUser: { min: 0, max: 1000 },
  maxFetchBytes: size,
  maxGitMemoryBytes: { min: 128 * mib, max: 2 ** 40 },
  maxCacheBytesPerUser: size,
  maxCacheBytes: size,
  maxBackupBytesPerUser: { min: 0, max: 2 ** 50 },
};
