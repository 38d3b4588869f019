/** Puts the parts of this folder together, as the daemon uses them. */
import { join } from "node:path";
import type { Log } from "../lib/log.ts";
import { GitRepositories, type GitRepositoriesOptions } from "./git-repositories.ts";
import { PackageResolver, type PackageResolverParts } from "./package-resolver.ts";
import { createSourceIndexLoader } from "./source-index-loader.ts";
import { Sources, type SourcesOptions } from "./sources.ts";
import type { YamlThread } from "./yaml-thread.ts";

export interface CreatePackageResolverOptions extends Pick<PackageResolverParts, "identities" | "manifests"> {
  /** Those that there are now. */
  sources: SourcesOptions["list"];
  yaml: Pick<YamlThread, "index" | "read">;
  /** The daemon's own; what lies in it can be fetched again. */
  cacheDir: string;
  git?: Pick<GitRepositoriesOptions, "environment" | "limits" | "cacheBounds" | "login">;
  now: () => number;
  log: Pick<Log, "warn">;
}

export function createPackageResolver(options: CreatePackageResolverOptions): PackageResolver {
  const { sources, identities, manifests, yaml, cacheDir, now, log } = options;
  const git = new GitRepositories({
    ...options.git,
    cacheDirectory: join(cacheDir, "git"),
    identities,
    now,
  });
  const cacheDirectory = join(cacheDir, "indexes");
  const loader = createSourceIndexLoader({ cacheDirectory, identities, git, yaml, now, log });
  return new PackageResolver({ identities, git, sources: new Sources({ list: sources, loader }), manifests });
}
