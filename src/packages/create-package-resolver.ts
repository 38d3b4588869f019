/** Puts the parts of this folder together, as the daemon uses them. */
import { join } from "node:path";
import type { Identities } from "../identity/identities.ts";
import type { FindLogin } from "../credentials/credentials.ts";
import type { CacheBounds } from "./cache-space.ts";
import type { GitEnvironment } from "./git-command.ts";
import type { GitLimits } from "./git-remote.ts";
import { GitRepositories } from "./git-repositories.ts";
import type { ManifestParser } from "./manifest-parser.ts";
import { PackageResolver } from "./package-resolver.ts";
import { createSourceIndexLoader } from "./source-index-loader.ts";
import { Sources } from "./sources.ts";
import { type SourceConfig } from "./source-config.ts";
import type { Log } from "../lib/log.ts";
import type { YamlThread } from "./yaml-thread.ts";

export interface CreatePackageResolverOptions {
  /** Those that there are now. */
  sources: () => readonly SourceConfig[];
  identities: Identities;
  manifests: ManifestParser;
  yaml: Pick<YamlThread, "index" | "read">;
  /** The daemon's own; what lies in it can be fetched again. */
  cacheDir: string;
  /** What git is given of the daemon's environment. Default: nothing. */
  gitEnvironment?: GitEnvironment;
  gitLimits?: Partial<GitLimits>;
  cacheBounds?: CacheBounds;
  /** What to show to a git host for whoever asks. Default: nothing. */
  gitLogin?: FindLogin;
  now: () => number;
  log: Pick<Log, "warn">;
}

export function createPackageResolver(options: CreatePackageResolverOptions): PackageResolver {
  const {
    sources,
    identities,
    manifests,
    yaml,
    cacheDir,
    gitEnvironment,
    gitLimits,
    cacheBounds,
    gitLogin,
    now,
    log,
  } = options;
  const git = new GitRepositories({
    cacheDirectory: join(cacheDir, "git"),
    identities,
    now,
    ...(gitEnvironment && { environment: gitEnvironment }),
    ...(gitLimits && { limits: gitLimits }),
    ...(cacheBounds && { cacheBounds }),
    ...(gitLogin && { login: gitLogin }),
  });
  const loader = createSourceIndexLoader({
    cacheDirectory: join(cacheDir, "indexes"),
    identities,
    git,
    readText: (text, uid) => yaml.index(text, uid),
    readYaml: (text, bounds, uid) => yaml.read(text, bounds, uid),
    now,
    onStale: (source, error) =>
      log.warn({ err: error, source }, "a source cannot be reached; its last good index is used"),
  });
  return new PackageResolver({
    identities,
    git,
    sources: new Sources({ list: sources, loader }),
    manifests,
  });
}
