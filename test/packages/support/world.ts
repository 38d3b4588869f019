/** A temporary directory with a resolver whose cache is in it. */
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import type { UserHelpers } from "../../../src/run-as/user-helpers.ts";
import {
  createPackageResolver,
  type CreatePackageResolverOptions,
} from "../../../src/packages/create-package-resolver.ts";
import type { InstalledPackage, PackageResolver } from "../../../src/packages/package-resolver.ts";
import type { ResolvedPackage } from "../../../src/packages/resolved-package.ts";
import type { SourceConfig } from "../../../src/packages/sources/source-list.ts";
import { YamlThread } from "../../../src/packages/manifest/yaml-thread.ts";
import { programs } from "../../support/programs.ts";
import { sharedUserHelpers } from "../../support/shared-user-helpers.ts";
import { createTestParser } from "./manifests.ts";

interface ResolverOptions extends Partial<Omit<CreatePackageResolverOptions, "sources">> {
  sources?: readonly SourceConfig[];
}

/** Shared by all worlds of a file, as in a daemon. */
const userHelpers = sharedUserHelpers();
const yaml = new YamlThread({ threadUrl: programs.settingsThread });
test.after.always(() => yaml[Symbol.dispose]());
const manifests = createTestParser();

/** The package as an app stores it. */
export function installedOf({ origin, manifest, version }: ResolvedPackage): InstalledPackage {
  return { origin, packageId: manifest.id, version };
}

export class World implements AsyncDisposable {
  readonly directory: string;
  readonly userHelpers: UserHelpers = userHelpers();

  private constructor(directory: string) {
    this.directory = directory;
  }

  static async create(): Promise<World> {
    const directory = await mkdtemp(join(tmpdir(), "svc-packages-"));
    await chmod(directory, 0o755);
    return new World(directory);
  }

  path(...names: string[]): string {
    return join(this.directory, ...names);
  }

  resolver({ sources = [], ...options }: ResolverOptions = {}): PackageResolver {
    return createPackageResolver({
      sources: () => sources,
      userHelpers: this.userHelpers,
      manifests,
      yaml,
      cacheDir: this.path("cache"),
      now: Date.now,
      log: { warn: () => undefined },
      ...options,
    });
  }

  /** A directory of a user to export into. */
  async ownedDir(name: string, uid: number): Promise<string> {
    const path = this.path(name);
    await this.userHelpers.createOwnedDir(path, uid);
    return path;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.directory, { recursive: true, force: true });
  }
}
