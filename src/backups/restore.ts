/** Restores an archive into its app, or as a new app. */
import {
  acknowledgementOf,
  requiredConsent,
  nothingAccepted,
  requireConsent,
  type Acknowledgement,
  type RequiredConsent,
  type Consent,
} from "../apps/changes/acknowledgement.ts";
import type { AppImage, Unpack, Restorer } from "../apps/changes/restore.ts";
import type { AppFinder } from "../apps/records/app-finder.ts";
import type { AppRecord } from "../apps/records/app-record.ts";
import type { AppCaller } from "../apps/records/app-registry.ts";
import { invalidField, notFound, SvcError } from "../errors.ts";
import type { ManifestParser } from "../packages/manifest/manifest-parser.ts";
import type { UserHelper } from "../run-as/user-helper.ts";
import { cancelably, type WorkOptions } from "../work/progress.ts";
import type { Archive } from "./archives/archive.ts";
import { requireFullArchive, type ArchiveAccess, type OpenableRef } from "./archives/archive-access.ts";
import { imageOf, licensesOf } from "./archives/archived-package.ts";
import type { ArchiveCatalog } from "./archives/archive-catalog.ts";

export interface RestoreRequest extends Consent {
  stopApp: boolean;
  asNew: boolean;
  /** Only with `asNew`. */
  newName: string;
  /** Empty: everything. */
  paths: readonly string[];
  dryRun: boolean;
}

export interface RestoreOutcome {
  appId: string;
  restoredBytes: number;
  entries: number;
  restarted: boolean;
  version: string;
  /** Differences between the app and the archive. */
  warnings: string[];
  /** uid of the app's owner on this host. */
  owner: number;
  ownerName: string;
  /** For a dry run: names of licenses and descriptions of permissions that require consent. */
  licenses: string[];
  permissions: string[];
}

export interface BackupRestorerOptions {
  finder: AppFinder;
  restorer: Restorer;
  manifests: ManifestParser;
  access: ArchiveAccess;
  catalog: ArchiveCatalog;
  userName: (uid: number) => Promise<string>;
}

export class BackupRestorer {
  readonly #options: BackupRestorerOptions;

  constructor(options: BackupRestorerOptions) {
    this.#options = options;
  }

  /**
   * @throws SvcError `app_running`, `archive_damaged`, `denied` for an archive of another owner's app,
   * `license_required` for terms that were not accepted on this host; see `Restorer.restore` and
   * `Restorer.restoreAsNew`
   */
  async restore(
    ref: OpenableRef,
    request: RestoreRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<RestoreOutcome> {
    const { finder, restorer, access, manifests } = this.#options;
    if (request.asNew && request.paths.length > 0)
      throw invalidField("paths", "cannot be combined with as_new");
    await using archive = await access.open(ref, caller, work.signal);
    const { footer } = archive;
    await access.requireSameOwner(archive, caller);
    const reader = await access.readerOf(archive, caller);
    const contents = await imageOf(manifests, archive, reader, caller, work.signal);
    const target = request.asNew ? undefined : await finder.findIfInstalled(ref.appId, caller);
    const paths = request.paths.map((path) => path.replace(/\/+$/, ""));
    const owner = target?.ownerUid ?? footer.app.owner_uid;
    const outcome = {
      ...{ appId: ref.appId, version: contents.version, restarted: false, warnings: footer.warnings },
      ...{ owner, ownerName: await this.#options.userName(owner), licenses: [], permissions: [] },
    };
    if (target !== undefined && target.ownerUid !== footer.app.owner_uid) {
      const message = `the backup is of uid ${footer.app.owner_uid}, and app "${target.id}" is uid ${target.ownerUid}'s; restore it as a new app`;
      throw new SvcError("not_possible", message);
    }
    if (target === undefined && paths.length > 0) throw notFound("app", ref.appId);
    // A differential archive needs an existing app.
    if (target === undefined || paths.length > 0) requireFullArchive(archive);
    const { required, accepted } = await this.#requiredConsent(
      archive,
      contents,
      { target, paths },
      reader,
      work.signal,
    );
    const image = { ...contents, accepted };
    // Paths are checked before a running app has to be stopped.
    if (target !== undefined && paths.length > 0)
      restorer.requireRestorable(target, image, { stopApp: true, paths });
    const located = paths.length > 0 ? await archive.locate(reader, paths, work) : undefined;
    if (request.dryRun) {
      if (target !== undefined) restorer.requireRestorable(target, image, { ...request, paths });
      const found = located ?? (await archive.verify(reader, work));
      return {
        ...outcome,
        ...{ restoredBytes: found.contentBytes, entries: found.entries },
        ...{ licenses: required.licenses.map(({ name }) => name), permissions: [...required.permissions] },
      };
    }
    requireConsent(`${image.name} ${image.version}`, required, { ...request, again: "restore" });
    let read = { contentBytes: 0, entries: 0 };
    const unpack: Unpack = async (into, unpackWork) => {
      read = await archive.unpack(into, paths, unpackWork);
    };
    if (target !== undefined) {
      const { restarted } = await cancelably(work, (within) =>
        restorer.restore(target, image, unpack, { ...request, paths }, within),
      );
      outcome.restarted = restarted;
    } else {
      const { asNew: isCopy, newName } = request;
      const as = { baseId: ref.appId, name: newName, ownerUid: footer.app.owner_uid, caller, isCopy };
      outcome.appId = await cancelably(work, (within) => restorer.restoreAsNew(image, unpack, as, within));
    }
    if (paths.length === 0 && footer.since === undefined)
      await this.#options.catalog.recordVerified(
        ref,
        { ownerUid: footer.app.owner_uid, digest: archive.digest },
        true,
      );
    return { ...outcome, restoredBytes: read.contentBytes, entries: read.entries };
  }

  /**
   * The licenses and permissions that the archive needs and that were not accepted on this host, and those
   * that the app will have. For an archive that this store created, the accepted ones are known. Its manifest
   * may still ask for more, because the app's user can change the checkout. An archive from another host may
   * claim anything.
   */
  async #requiredConsent(
    archive: Archive,
    { manifest }: Omit<AppImage, "accepted">,
    { target, paths }: { target: AppRecord | undefined; paths: readonly string[] },
    reader: UserHelper,
    signal?: AbortSignal,
  ): Promise<{ required: RequiredConsent; accepted: Acknowledgement }> {
    const { app } = archive.footer;
    const isMadeHere = this.#options.catalog.hasCreated(archive.digest);
    const ownerUid = target?.ownerUid ?? app.owner_uid;
    const permissions = ownerUid === 0 && !isMadeHere ? [rootContentPermission] : [];
    const before = target?.accepted ?? nothingAccepted;
    // The version and its accepted terms stay.
    if (paths.length > 0) return { required: { licenses: [], permissions }, accepted: before };
    if (isMadeHere) {
      const recorded = app.accepted as Acknowledgement;
      const required = requiredConsent({ licenses: [], manifest }, { ownerUid, accepted: recorded });
      return { required, accepted: { ...recorded, permissions: manifest.permissions } };
    }
    const { known, licenses } = await licensesOf(archive, before.licenses, reader, signal);
    const required = requiredConsent({ licenses, manifest }, { ownerUid, accepted: before });
    const added = acknowledgementOf({ licenses, manifest });
    return {
      required: { ...required, permissions: [...permissions, ...required.permissions] },
      accepted: { ...added, licenses: [...known, ...added.licenses] },
    };
  }
}

const rootContentPermission =
  "The app belongs to root here, and the archive is from another host: its content can run as root.";
