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
  /** Apps that a user owns, including those that are being installed. */
  maxAppsPerUser: { default: 200, ...count },
  /** Container networks of a user's apps. */
  maxNetworksPerUser: { default: 256, ...count },
  /** Stored credentials of a user. */
  maxCredentialsPerUser: { default: 100, ...count },
  /** Concurrent console sessions of a user, for all apps together. */
  maxConsolesPerUser: { default: 64, ...count },
  /** Containers of a user's apps, including stopped ones. */
  maxContainersPerUser: { default: 256, ...count },
  /** Ports of the host that a user's containers publish. */
  maxPublishedPortsPerUser: { default: 512, ...count },
  /** Concurrent installs and upgrades of a user; further ones wait. */
  maxInstallsPerUser: { default: 2, min: 1, max: 1000 },
  /**
   * Concurrent installs and upgrades of all regular users; further ones wait. Those of root, and those that take
   * longer than 30 s, do not count.
   */
  maxInstalls: { default: 4, min: 1, max: 1000 },
  /** Waiting installs and upgrades of a user. */
  maxWaitingInstallsPerUser: { default: 16, min: 0, max: 1000 },
  /** Size of a commit with its files. */
  maxFetchBytes: { default: 2 * gib, ...size },
  /** Address space of each process of git. */
  maxGitMemoryBytes: { default: 512 * mib, min: 128 * mib, max: 2 ** 40 },
  /** Disk space of fetched commits per user; the least recently used ones are removed first. */
  maxCacheBytesPerUser: { default: 2 * gib, ...size },
  /** Disk space of the fetched commits of all users. */
  maxCacheBytes: { default: 8 * gib, ...size },
  /** Concurrent image builds of a user; further ones wait. */
  maxBuildsPerUser: { default: 1, min: 1, max: 100 },
  /** Memory of each image build of a user, without swap. */
  maxBuildMemoryBytes: { default: 2 * gib, min: 64 * mib, max: 2 ** 40 },
  /** CPUs of each image build of a user. */
  maxBuildCpus: { default: 2, min: 1, max: 1024 },
  /** Processes of a user's image builds. */
  maxBuildProcesses: { default: 2048, min: 64, max: 32_768 },
  /** Disk space of a user's built images and running image builds, without base images. */
  maxBuildBytesPerUser: { default: 32 * gib, ...size },
  /** Size of the images that were pulled for a user's apps, each counted whole. Built images do not count. */
  maxImageBytesPerUser: { default: 64 * gib, ...size },
  /** Size of a user's archives in each storage; 0 is unlimited. */
  maxBackupBytesPerUser: { default: 64 * gib, min: 0, max: 2 ** 50 },
};

export type UserLimits = LimitsIn<typeof userLimits>;
