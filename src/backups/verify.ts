/** Verifies archives; a test restore also unpacks one to a temporary tree. */
import { randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { AppFinder } from "../apps/records/app-finder.ts";
import type { AppCaller } from "../apps/records/app-registry.ts";
import { SvcError } from "../errors.ts";
import type { ReadArchiveResult } from "../run-as/user-helper-types.ts";
import type { UserHelper } from "../run-as/user-helper.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import type { WorkOptions } from "../work/progress.ts";
import type { Archive } from "./archives/archive.ts";
import { requireFullArchive, type ArchiveAccess, type OpenableRef } from "./archives/archive-access.ts";
import type { ArchiveCatalog } from "./archives/archive-catalog.ts";

export interface VerifyOutcome {
  contentBytes: number;
  entries: number;
  restored: boolean;
}

export interface BackupVerifierOptions {
  /** Directory of the temporary trees. */
  testDir: string;
  finder: AppFinder;
  userHelpers: UserHelpers;
  access: ArchiveAccess;
  catalog: ArchiveCatalog;
}

export class BackupVerifier {
  readonly #options: BackupVerifierOptions;

  constructor(options: BackupVerifierOptions) {
    this.#options = options;
  }

  /**
   * @throws SvcError `archive_damaged`, `not_possible` if root would have to unpack another user's files for
   * a test restore
   */
  async verify(
    ref: OpenableRef,
    deep: boolean,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<VerifyOutcome> {
    const { access, catalog } = this.#options;
    await using archive = await access.open(ref, caller, work.signal);
    requireFullArchive(archive);
    const userHelper = await access.readerOf(archive, caller);
    if (deep && userHelper.user.uid === 0) await this.#requireOfRoot(archive, caller);
    const read = deep
      ? await this.#testRestore(archive, userHelper, work)
      : await archive.verify(userHelper, work);
    const { digest, footer } = archive;
    await catalog.recordVerified(ref, { ownerUid: footer.app.owner_uid, digest }, deep);
    return { ...read, restored: deep };
  }

  /** For a test restore, root unpacks only files that were root's, and are root's in the app on this host. */
  async #requireOfRoot({ footer }: Archive, caller: AppCaller): Promise<void> {
    const { id, run_uid: uid } = footer.app;
    const way = "root does not unpack it for a test restore; verify it without `deep`";
    if (uid !== 0) {
      const message = `the backup's files belong to uid ${uid}, which has no account here, and ${way}, or create the account`;
      throw new SvcError("not_possible", message);
    }
    const here = await this.#options.finder.findIfInstalled(id, caller);
    if (here === undefined || here.runUid === 0) return;
    const message = `the backup's files are root's, app "${id}" is uid ${here.runUid}'s here, and ${way}`;
    throw new SvcError("not_possible", message);
  }

  async #testRestore(
    archive: Archive,
    userHelper: UserHelper,
    work: WorkOptions,
  ): Promise<ReadArchiveResult> {
    const { testDir, userHelpers } = this.#options;
    await mkdir(testDir, { recursive: true, mode: 0o711 });
    const tree = await userHelpers.tree(join(testDir, randomUUID()), userHelper.user.uid);
    await tree.create();
    try {
      const into = archive.footer.trees;
      await tree.makeDirs(into);
      return await archive.unpackForTest(userHelper, tree.root, work);
    } finally {
      await tree.destroy();
    }
  }
}
