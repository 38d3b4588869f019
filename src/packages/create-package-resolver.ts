/** Creates the daemon's package resolver from the parts of this folder. */
import { join } from "node:path";
import type { Log } from "../lib/log.ts";
import { GitRepositories, type GitRepositoriesOptions } from "./git/git-repositories.ts";
import { PackageResolver, type PackageResolverParts } from "./package-resolver.ts";
import { createSourceIndexLoader } from "./sources/source-index-loader.ts";
import { Sources, type SourcesOptions } from "./sources/sources.ts";
import type { YamlThread } from "./manifest/yaml-thread.ts";

export interface CreatePackageResolverOptions extends Pick<
  PackageResolverParts,
  "userHelpers" | "manifests"
> {
  /** Returns the current sources. */
  sources: SourcesOptions["list"];
  yaml: Pick<YamlThread, "index" | "read">;
  /** Directory of the daemon; everything in it can be fetched again. */
  cacheDir: string;
  git?: Pick<GitRepositoriesOptions, "environment" | "limits" | "cacheBounds" | "login" | "insecureHosts">;
  now: () => number;
  log: Pick<Log, "warn">;
}

export function createPackageResolver(options: CreatePackageResolverOptions): PackageResolver {
  const { sources, userHelpers, manifests, yaml, cacheDir, now, log } = options;
  const git = new GitRepositories({
    ...options.git,
    cacheDirectory: join(cacheDir, "git"),
    userHelpers,
    now,
  });
  const cacheDirectory = join(cacheDir, "indexes");
  const loader = createSourceIndexLoader({ cacheDirectory, userHelpers, git, yaml, now, log });
  return new PackageResolver({
    userHelpers,
    git,
    sources: new Sources({ list: sources, loader }),
    manifests,
  });
}
