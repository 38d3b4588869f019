import type { LimitsIn } from "../lib/limit-table.ts";

const mib = 2 ** 20;
const gib = 2 ** 30;
const count = { min: 1, max: 1_000_000 };
const size = { min: mib, max: 2 ** 40 };

/**
 * Limits of the users of a daemon. Each is a setting of `[limits]` under its name in snake_case, such as
 * `max_apps_per_user`; sizes are in bytes. Limits per user do not apply to root, except that of concurrent installs.
 * Rejections are `too_many` and name the setting. Only the limit of backups can be disabled.
 */
export const userLimits = {
  /** Apps that a user owns, also those that are being installed. */
  maxAppsPerUser: { default: 200, ...count },
  /** Networks of the container engine that a user's apps have. */
  maxNetworksPerUser: { default: 256, ...count },
  /** Credentials that a user keeps. */
  maxCredentialsPerUser: { default: 100, ...count },
  /** Console sessions of a user at a time, of all apps together. */
  maxConsolesPerUser: { default: 64, ...count },
  /** Containers of a user's apps, also those that are stopped. */
  maxContainersPerUser: { default: 256, ...count },
  /** Ports of the host that a user's containers publish. */
  maxPublishedPortsPerUser: { default: 512, ...count },
  /** Installs and upgrades of a user at a time; more of them wait. */
  maxInstallsPerUser: { default: 2, min: 1, max: 1000 },
  /** Installs and upgrades of all regular users at a time; more of them wait. Root's do not count, nor those that take longer than 30 s. */
  maxInstalls: { default: 4, min: 1, max: 1000 },
  /** Installs and upgrades of a user that wait. */
  maxWaitingInstallsPerUser: { default: 16, min: 0, max: 1000 },
  /** Size of a commit with its files. */
  maxFetchBytes: { default: 2 * gib, ...size },
  /** Address space of each process of git. */
  maxGitMemoryBytes: { default: 512 * mib, min: 128 * mib, max: 2 ** 40 },
  /** Fetched commits that are kept for a user; the longest unused ones go. */
  maxCacheBytesPerUser: { default: 2 * gib, ...size },
  /** Fetched commits that are kept for all. */
  maxCacheBytes: { default: 8 * gib, ...size },
  /** Image builds of a user at a time; more of them wait. */
  maxBuildsPerUser: { default: 1, min: 1, max: 100 },
  /** Memory of each image build of a user, without swap. */
  maxBuildMemoryBytes: { default: 2 * gib, min: 64 * mib, max: 2 ** 40 },
  /** CPUs of each image build of a user. */
  maxBuildCpus: { default: 2, min: 1, max: 1024 },
  /** Processes of a user's image builds. */
  maxBuildProcesses: { default: 2048, min: 64, max: 32_768 },
  /** Disk space of a user's built images and running image builds, without base images. */
  maxBuildBytesPerUser: { default: 32 * gib, ...size },
  /** Size of a user's archives in each storage; 0 is unlimited. */
  maxBackupBytesPerUser: { default: 64 * gib, min: 0, max: 2 ** 50 },
};

export type UserLimits = LimitsIn<typeof userLimits>;
