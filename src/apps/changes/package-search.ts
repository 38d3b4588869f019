/** Searches and checks of package sources, which may fetch indexes: each waits for a slot as an install does. */
import type { FoundPackages } from "../../packages/sources/sources.ts";
import type { SourceConfig } from "../../packages/sources/source-list.ts";
import type { WorkOptions } from "../../work/progress.ts";
import type { AppsContext } from "../apps-context.ts";
import type { AppCaller } from "../records/app-registry.ts";
import type { InstallLimiter } from "./install-limiter.ts";

export interface PackageSearchOptions extends Pick<AppsContext, "packages"> {
  installLimiter: InstallLimiter;
}

export class PackageSearch {
  readonly #options: PackageSearchOptions;

  constructor(options: PackageSearchOptions) {
    this.#options = options;
  }

  /**
   * The packages in the sources.
   * @param source name of a source; undefined: all sources
   * @throws SvcError as {@link PackageResolver.search} and {@link InstallLimiter.take}
   */
  async search(
    words: readonly string[],
    source: string | undefined,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<FoundPackages> {
    const { packages, installLimiter } = this.#options;
    using _slot = await installLimiter.take(caller, work);
    return await packages.search(words, source, caller.ownerUid, work);
  }

  /** @throws SvcError as {@link PackageResolver.checkSource} and {@link InstallLimiter.take} */
  async checkSource(source: SourceConfig, caller: AppCaller, work: WorkOptions): Promise<void> {
    const { packages, installLimiter } = this.#options;
    using _slot = await installLimiter.take(caller, work);
    await packages.checkSource(source, caller.ownerUid, work);
  }
}
