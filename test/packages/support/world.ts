/** A temporary directory with a resolver that keeps its cache there. */
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import type { Identities } from "../../../src/identity/identities.ts";
import {
  createPackageResolver,
  type CreatePackageResolverOptions,
} from "../../../src/packages/create-package-resolver.ts";
import type { InstalledPackage, PackageResolver } from "../../../src/packages/package-resolver.ts";
import type { ResolvedPackage } from "../../../src/packages/resolved-package.ts";
import type { SourceConfig } from "../../../src/packages/source-config.ts";
import { YamlThread } from "../../../src/packages/yaml-thread.ts";
import { programs } from "../../support/programs.ts";
import { sharedIdentities } from "../../support/shared-identities.ts";
import { createTestParser } from "./manifests.ts";

interface ResolverOptions extends Partial<Omit<CreatePackageResolverOptions, "sources">> {
  sources?: readonly SourceConfig[];
}

/** Of all worlds of a file, as of a daemon. */
const identities = sharedIdentities();
const yaml = new YamlThread({ threadUrl: programs.settingsThread });
test.after.always(() => yaml[Symbol.dispose]());
const manifests = createTestParser();

/** As an app keeps it. */
export function installedOf({ origin, manifest, version }: ResolvedPackage): InstalledPackage {
  return { origin, packageId: manifest.id, version };
}

export class World implements AsyncDisposable {
  readonly directory: string;
  readonly identities: Identities = identities();

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
      identities: this.identities,
      manifests,
      yaml,
      cacheDir: this.path("cache"),
      now: Date.now,
      log: { warn: () => undefined },
      ...options,
    });
  }

  /** A directory of a user's own, to export into. */
  async ownedDir(name: string, uid: number): Promise<string> {
    const path = this.path(name);
    await this.identities.createOwnedDir(path, uid);
    return path;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.directory, { recursive: true, force: true });
  }
}
