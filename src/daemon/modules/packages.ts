/** Package sources, manifests and settings, and the credentials for fetching them. */
import { join } from "node:path";
import { Credentials } from "../../access/credentials.ts";
import { createPackageResolver } from "../../packages/create-package-resolver.ts";
import { createManifestParser } from "../../packages/manifest/manifest-parser.ts";
import { YamlThread } from "../../packages/manifest/yaml-thread.ts";
import { createSettingsValidator } from "../../packages/settings/settings-validator.ts";
import { SourceList } from "../../packages/sources/source-list.ts";
import type { Platform } from "./platform.ts";

export type Packages = ReturnType<typeof createPackages>;

export function createPackages(platform: Platform, resources: AsyncDisposableStack) {
  const { config, store, programs, userHelpers, now, log } = platform;
  const yaml = resources.use(new YamlThread({ threadUrl: programs.settingsThread }));
  const settings = resources.use(createSettingsValidator({ yaml }));
  const manifests = createManifestParser((text, uid, signal) => yaml.manifest(text, uid, signal), settings);
  const sources = new SourceList(config.sources, store, programs.packages, log);
  const credentials = new Credentials({ store, now, maxPerUser: config.limits.maxCredentialsPerUser, log });
  const packages = createPackageResolver({
    sources: () => sources.all(),
    userHelpers,
    manifests,
    yaml,
    cacheDir: join(config.store.dir, "cache"),
    git: {
      environment: { extraEnv: config.apps.buildEnv },
      limits: {
        // A commit must fit into its user's share of the cache.
        maxFetchBytes: Math.min(config.limits.maxFetchBytes, config.limits.maxCacheBytesPerUser),
        maxMemoryBytes: config.limits.maxGitMemoryBytes,
      },
      cacheBounds: {
        maxBytesPerUser: config.limits.maxCacheBytesPerUser,
        maxBytes: config.limits.maxCacheBytes,
      },
      insecureHosts: config.git.insecureHosts,
      login: (host, ownerUid) => credentials.loginFor("git", host, ownerUid),
    },
    now,
    log,
  });
  return { yaml, settings, manifests, sources, credentials, packages };
}
