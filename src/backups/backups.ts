/**
 * The backups of apps, as called by handlers. Callers see only their own archives; another user's archive is
 * not found.
 */
import { randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import type { AppCaller } from "../apps/records/app-registry.ts";
import type { AppRecord } from "../apps/records/app-record.ts";
import { volumeOfTree } from "../apps/lifecycle/backed-up-trees.ts";
import type { BackupHold } from "../apps/lifecycle/backup-hold.ts";
import type { AppFinder } from "../apps/records/app-finder.ts";
import { cancelably, type WorkOptions } from "../work/progress.ts";
import {
  acknowledgementOf,
  askedBy,
  nothingAccepted,
  requireConsent,
  type Acknowledgement,
  type Asked,
  type Consent,
} from "../apps/changes/acknowledgement.ts";
import type { AppImage, LayOut, Restorer } from "../apps/changes/restore.ts";
import { invalidField, notFound, SvcError } from "../errors.ts";
import type { UserHelper } from "../run-as/user-helper.ts";
import type { ArchivedEntry, LocatedFile } from "../run-as/user-helper-types.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import { manifestFileName } from "../packages/manifest/manifest.ts";
import type { ManifestParser } from "../packages/manifest/manifest-parser.ts";
import { maxManifestBytes } from "../packages/manifest/manifest-reader.ts";
import { collectLicenses, maxLicenseBytes, type LicenseText } from "../packages/manifest/licenses.ts";
import type { PackageOrigin } from "../packages/resolved-package.ts";
import type { Zones } from "../triggers/zone.ts";
import type { Executor } from "../store/executors.ts";
import { storeIdOf } from "../store/store-id.ts";
import type { Store } from "../store/store.ts";
import type { Age } from "./encryption/age.ts";
import { openEncrypted } from "./encryption/encrypted-file.ts";
import { Archive } from "./archives/archive.ts";
import type { ArchiveFooter } from "./archives/archive-footer.ts";
import { type ArchiveName, hostOf, parseArchiveName } from "./archives/archive-name.ts";
import { listArchives, type ListedArchives, type ListRequest } from "./archives/archive-list.ts";
import type { AppPolicy, BackupStates } from "./policies/backup-states.ts";
import { BackupQuota } from "./policies/backup-quota.ts";
import {
  BackupMaker,
  type BackupEnd,
  type BackupOutcome,
  type BackupRequest,
  type StorageResult,
} from "./backup-maker.ts";
import { settleLeftovers } from "./archives/leftovers.ts";
import { Catalogue, keyOf, type ArchiveRef, type CataloguedArchive } from "./archives/catalogue.ts";
import { checkPolicy, sealedFromTrials, type BackupPolicySpec } from "./policies/policy.ts";
import { PolicyPass } from "./policies/policy-pass.ts";
import type { Retention } from "./policies/rotation.ts";
import { Spool } from "./archives/spool.ts";
import type { StoredArchive, StoredFile } from "./storages/storage.ts";
import { uploadArchive, type UploadTarget } from "./archives/upload.ts";
import type { S3Thread } from "./storages/s3-thread.ts";
import { checkStorage, type StorageCheck } from "./storages/storage-check.ts";
import { localName, StorageList } from "./storages/storage-list.ts";
import type { Log } from "../lib/log.ts";
import { rootShare } from "../lib/share-owner.ts";

export interface CreateRequest extends Retention {
  /** Empty: the storages of the app's policy, else the local one. */
  storages: readonly string[];
  /** Empty: the policy's mode. */
  mode: "" | "live" | "pause" | "stop";
  /** See `CreateBackupRequest`. */
  marks?: boolean;
  since?: string;
}

export interface RestoreRequest extends Consent {
  stopApp: boolean;
  asNew: boolean;
  /** Only with `asNew`. */
  newName: string;
  /** Empty: everything. */
  paths: readonly string[];
  dryRun: boolean;
}

export interface ShownArchive {
  footer: ArchiveFooter;
  sizeBytes: number;
  isEncrypted: boolean;
  /** The local record; undefined for none. */
  known: CataloguedArchive | undefined;
}

/** An archive with the content of an age identity file, or empty. The identity is never stored or shown. */
export interface OpenableRef extends ArchiveRef {
  identity: string;
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

export interface VerifyOutcome {
  contentBytes: number;
  entries: number;
  restored: boolean;
}

export interface BackupsOptions {
  store: Store;
  /** `<store>`. */
  dir: string;
  executor: Executor;
  selfUid: number;
  finder: AppFinder;
  backupHold: BackupHold;
  restorer: Restorer;
  states: BackupStates;
  zones: Zones;
  userHelpers: UserHelpers;
  manifests: ManifestParser;
  age: Age;
  s3: S3Thread;
  svcVersion: string;
  /** Per storage on this host; 0: unlimited. */
  maxBytesPerUser: number;
  userName: (uid: number) => Promise<string>;
  now: () => number;
  log: Pick<Log, "info" | "warn" | "error">;
  /** Called with the result of each backup. */
  onEnd: (end: BackupEnd) => void;
  /** Scheduled jobs that use a storage. */
  jobsWith: (storage: string) => readonly { readonly id: string; readonly ownerUid: number }[];
}

/** A policy or job that uses a storage. */
export interface StorageUse {
  readonly kind: "policy" | "job";
  /** ID of the app or the job. */
  readonly id: string;
  readonly owner: number;
}

export class Backups {
  readonly storages: StorageList;
  readonly #options: BackupsOptions;
  readonly #catalogue: Catalogue;
  readonly #spool: Spool;
  readonly #quota: BackupQuota;
  readonly #maker: BackupMaker;
  readonly #trialDir: string;

  constructor(options: BackupsOptions) {
    const { store, dir, executor, selfUid, age, s3, now, log } = options;
    this.#options = options;
    const storages = new StorageList({ store, dir: join(dir, "backups"), selfUid, age, s3, now, log });
    const catalogue = new Catalogue(store, executor, now, () => options.states.invalidate(), log);
    this.storages = storages;
    this.#catalogue = catalogue;
    this.#spool = new Spool(join(dir, "spool"), executor);
    this.#quota = new BackupQuota({ storages, maxBytesPerUser: options.maxBytesPerUser, now });
    this.#trialDir = join(dir, "trials");
    this.#maker = new BackupMaker({
      ...options,
      storages,
      catalogue,
      spool: this.#spool,
      quota: this.#quota,
      storeId: storeIdOf(store),
    });
  }

  /** Settles backups of processes that died. */
  async settle(): Promise<void> {
    await this.#spool.sweep();
    await settleLeftovers({ ...this.#options, storages: this.storages, catalogue: this.#catalogue });
  }

  /** Tests the operations of a storage. @throws SvcError `not_found`, `disk_full` */
  async testStorage(name: string, signal?: AbortSignal): Promise<StorageCheck[]> {
    const storage = this.storages.open(name);
    await using probe = await this.#spool.create();
    return await checkStorage(storage, probe, signal);
  }

  /** As {@link StorageList.remove}; resolves to the policies and jobs that still use it. */
  async removeStorage(name: string, managedBy: string): Promise<StorageUse[]> {
    await this.storages.remove(name, managedBy);
    const { finder, states, jobsWith } = this.#options;
    const backedUp = (await finder.all()).filter((app) => states.policyOf(app).spec.storages.includes(name));
    return [
      ...backedUp.map(({ id, ownerUid }) => ({ kind: "policy" as const, id, owner: ownerUid })),
      ...jobsWith(name).map(({ id, ownerUid }) => ({ kind: "job" as const, id, owner: ownerUid })),
    ];
  }

  /** As {@link listArchives}. @throws SvcError `not_found` for an app or a storage that the caller cannot see */
  list(request: ListRequest, caller: AppCaller): Promise<ListedArchives> {
    const { storages } = this;
    const options = { storages, catalogue: this.#catalogue, log: this.#options.log };
    return listArchives(options, request, caller);
  }

  /** @throws SvcError see {@link BackupMaker.make} */
  async create(
    appId: string,
    request: CreateRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<BackupOutcome> {
    const policy = this.#options.states.policyOf(await this.#options.finder.find(appId, caller)).spec;
    const { storages, mode, marks = false, since = "", ...asked } = request;
    const chosen = mode === "" ? policy.mode : mode;
    const wanted = [storages, policy.storages, [localName]].find((names) => names.length > 0) ?? [];
    await this.#spool.sweep();
    const whole = { storages: wanted, retention: asked, mode: chosen, marks };
    const make = (exact: BackupRequest): Promise<BackupOutcome> =>
      cancelably(work, (within) => this.#maker.make(appId, exact, caller, within));
    if (since === "") return make(whole);
    const [storage = "", ...others] = wanted;
    if (others.length > 0 || marks) throw invalidField("since", "requires exactly one storage, and no marks");
    await using archive = await this.#open(
      { appId, storage, name: since, identity: "" },
      caller,
      work.signal,
    );
    requireWhole(archive);
    const { ownerUid } = await this.#options.finder.find(appId, caller);
    if (archive.footer.host !== storeIdOf(this.#options.store) || archive.footer.app.owner_uid !== ownerUid)
      throw invalidField("since", `${since} is not an archive of this app`);
    return await make({ ...whole, since: { name: since, archive } });
  }

  /**
   * Creates a backup by the app's policy, and rotates archives.
   * @throws SvcError `unavailable` if a storage failed
   */
  async makeByPolicy(app: AppRecord, caller: AppCaller, work: WorkOptions): Promise<void> {
    const { spec } = this.#options.states.policyOf(app);
    const { storages, mode, verify, trigger: _, catchUp: __, ...retention } = spec;
    const { results } = await this.create(app.id, { storages, mode, ...retention }, caller, work);
    const failures = failuresOf(results);
    const taken = results.filter(({ error }) => error === "");
    // Encrypted archives cannot be opened without an identity.
    const readable = taken.find(({ name }) => parseArchiveName(name)?.isEncrypted === false);
    if (verify && readable !== undefined)
      await this.verify({ ...readable, appId: app.id, identity: "" }, true, caller, work);
    if (failures !== "") throw new SvcError("unavailable", failures);
    if (verify && readable === undefined) throw new SvcError("not_possible", sealedFromTrials);
  }

  /**
   * Creates a backup by the app's policy without rotation.
   * @throws as {@link create}, and if all storages failed
   */
  async makeOne(app: AppRecord, caller: AppCaller, work: WorkOptions): Promise<void> {
    const { results } = await this.create(app.id, { storages: [], mode: "" }, caller, work);
    if (results.some(({ error }) => error === "")) return;
    throw new SvcError("unavailable", `the backup failed on all storages: ${failuresOf(results)}`);
  }

  /**
   * The newest archive of an app on each of these storages; empty: all storages. Without archives of an
   * earlier app with the same ID.
   */
  async newest(
    appId: string,
    storages: readonly string[],
    caller: AppCaller,
  ): Promise<Omit<ListedArchives, "nextPageToken">> {
    const names = storages.length > 0 ? storages : [""];
    const page = { appId, limit: Number.MAX_SAFE_INTEGER, pageToken: "" };
    const lists = await Promise.all(names.map((storage) => this.list({ ...page, storage }, caller)));
    const app = await this.#options.finder.find(appId, caller);
    const all = lists.flatMap(({ archives }) => archives).filter(({ ownerUid }) => ownerUid === app.ownerUid);
    // Newest first.
    const archives = all.filter(
      (each, at) => all.findIndex(({ storage }) => storage === each.storage) === at,
    );
    return { archives, errors: lists.flatMap(({ errors }) => errors) };
  }

  /** @throws SvcError `not_found` */
  async policy(appId: string, caller: AppCaller): Promise<AppPolicy & { nextRunMs: number | undefined }> {
    const app = await this.#options.finder.find(appId, caller);
    const { states } = this.#options;
    return { ...states.policyOf(app), nextRunMs: states.nextRunMs(app) };
  }

  /** @param spec undefined: the package's recommendation @throws SvcError `not_found`, `invalid_request` */
  async setPolicy(appId: string, spec: BackupPolicySpec | undefined, caller: AppCaller): Promise<void> {
    await this.#options.finder.find(appId, caller);
    if (spec !== undefined) {
      checkPolicy(spec, this.storages.all());
    }
    await this.#catalogue.setPolicy(appId, spec === undefined ? null : JSON.stringify(spec));
  }

  /** The pass that the scheduler runs every minute. */
  policyPass(): PolicyPass {
    const { finder, states, zones, selfUid, now } = this.#options;
    const callerOf = ({ ownerUid }: AppRecord): AppCaller => ({
      ...{ uid: ownerUid, ownerUid },
      root: ownerUid === selfUid || ownerUid === 0,
    });
    return new PolicyPass({
      ...{ apps: finder, states, zones, callerOf, now },
      tried: (appId, atMs) => this.#catalogue.tried(appId, atMs),
      settle: () => this.settle(),
      make: async (app, signal) => {
        try {
          await this.makeByPolicy(app, callerOf(app), { signal });
          await this.#catalogue.setPolicyError(app.id, null);
        } catch (error) {
          const why = error instanceof SvcError ? error.message : "internal error; see the daemon's log";
          await this.#catalogue.setPolicyError(app.id, why);
          throw error;
        }
      },
    });
  }

  /** Uploads an archive from another host. @throws SvcError as {@link uploadArchive} */
  upload(
    to: UploadTarget,
    bytes: AsyncIterable<Uint8Array>,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<StoredArchive> {
    const readerOf = (archive: Archive): Promise<UserHelper> => this.#reader(archive, caller);
    const { storages } = this;
    const options = {
      spool: this.#spool,
      storages,
      quota: this.#quota,
      catalogue: this.#catalogue,
      age: this.#options.age,
      readerOf,
    };
    return uploadArchive(options, to, bytes, caller, work);
  }

  /** The archive's metadata, and its local record. */
  async show(ref: OpenableRef, caller: AppCaller, signal?: AbortSignal): Promise<ShownArchive> {
    await using archive = await this.#open(ref, caller, signal);
    const known = this.#catalogue.archives(ref.appId).get(keyOf(ref));
    const { isEncrypted } = requireVisible(ref, caller);
    return { footer: archive.footer, sizeBytes: archive.sizeBytes, isEncrypted, known };
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
    await using archive = await this.#open(ref, caller, work.signal);
    requireWhole(archive);
    const userHelper = await this.#reader(archive, caller);
    if (deep && userHelper.user.uid === 0) await this.#requireOfRoot(archive, caller);
    const read = deep
      ? await this.#restoreForTrial(archive, userHelper, work)
      : await archive.verify(userHelper, work);
    await this.#catalogue.proven(ref, deep);
    return { ...read, restored: deep };
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
    const { finder, restorer } = this.#options;
    if (request.asNew && request.paths.length > 0)
      throw invalidField("paths", "cannot be combined with as_new");
    await using archive = await this.#open(ref, caller, work.signal);
    const { footer } = archive;
    await this.#requireSameOwner(archive, caller);
    const reader = await this.#reader(archive, caller);
    const contents = await this.#imageOf(archive, reader, caller, work.signal);
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
    if (target === undefined || paths.length > 0) requireWhole(archive);
    const { asked, accepted } = await this.#askedBy(
      archive,
      contents,
      { target, paths },
      reader,
      work.signal,
    );
    const image = { ...contents, accepted };
    if (request.dryRun) {
      if (target !== undefined) restorer.requireRestorable(target, image, { ...request, paths });
      const found =
        paths.length > 0 ? await archive.locate(reader, paths, work) : await archive.verify(reader, work);
      return {
        ...outcome,
        ...{ restoredBytes: found.contentBytes, entries: found.entries },
        ...{ licenses: asked.licenses.map(({ name }) => name), permissions: [...asked.permissions] },
      };
    }
    requireConsent(`${image.name} ${image.version}`, asked, { ...request, again: "restore" });
    let read = { contentBytes: 0, entries: 0 };
    const layOut: LayOut = async (place, placeWork) => {
      read = await archive.layOut(place, paths, placeWork);
    };
    if (target !== undefined) {
      const { restarted } = await cancelably(work, (within) =>
        restorer.restore(target, image, layOut, { ...request, paths }, within),
      );
      outcome.restarted = restarted;
    } else {
      const { asNew: isCopy, newName } = request;
      const as = { baseId: ref.appId, name: newName, ownerUid: footer.app.owner_uid, caller, isCopy };
      outcome.appId = await cancelably(work, (within) => restorer.restoreAsNew(image, layOut, as, within));
    }
    if (paths.length === 0 && footer.since === undefined) await this.#catalogue.proven(ref, true);
    return { ...outcome, restoredBytes: read.contentBytes, entries: read.entries };
  }

  async delete(ref: ArchiveRef, caller: AppCaller, signal?: AbortSignal): Promise<void> {
    await this.#requireOwner(ref, caller, signal);
    await this.storages.open(ref.storage).remove(ref, signal);
    await this.#catalogue.forget(ref);
  }

  /** @throws SvcError `not_found` */
  async browse(
    ref: OpenableRef,
    page: { directory: string; after: number; limit: number },
    caller: AppCaller,
    signal?: AbortSignal,
  ): Promise<{ entries: ArchivedEntry[]; more: boolean }> {
    await using archive = await this.#open(ref, caller, signal);
    return await archive.browse(await this.#reader(archive, caller), page, signal);
  }

  /** The bytes of one file. Fails if they do not match the archive's checksum. */
  async *readFile(
    ref: OpenableRef,
    path: string,
    caller: AppCaller,
    signal?: AbortSignal,
  ): AsyncGenerator<{ sizeBytes: number; bytes: Uint8Array }> {
    await using archive = await this.#open(ref, caller, signal);
    const userHelper = await this.#reader(archive, caller);
    const file = await archive.findFile(userHelper, path, signal);
    const { sizeBytes } = file;
    yield { sizeBytes, bytes: new Uint8Array() };
    const bytes: Readable = archive.readFile(userHelper, file, signal);
    for await (const piece of bytes) yield { sizeBytes, bytes: piece as Buffer };
  }

  /** The unmodified archive. */
  async *download(
    ref: ArchiveRef,
    spanOf: (sizeBytes: number) => { start: number; end: number },
    caller: AppCaller,
    signal?: AbortSignal,
  ): AsyncGenerator<{ sizeBytes: number; bytes: Uint8Array }> {
    await using file = await this.#openStored(ref, caller, signal);
    const { sizeBytes } = file;
    const { start, end } = spanOf(sizeBytes);
    if (start > sizeBytes)
      throw invalidField("offset", `${start} is after the archive's end (${sizeBytes} bytes)`);
    yield { sizeBytes, bytes: new Uint8Array() };
    for await (const bytes of file.read(start, end, signal)) yield { sizeBytes, bytes };
  }

  /** The archive's footer determines its owner; its name must agree. */
  async #open(ref: OpenableRef, caller: AppCaller, signal?: AbortSignal): Promise<Archive> {
    const named = requireVisible(ref, caller);
    const stored = await this.storages.open(ref.storage).open(ref, signal);
    const file = named.isEncrypted
      ? await openEncrypted(stored, { ...ref, uid: caller.uid }, this.#options.age, signal)
      : stored;
    const archive = await Archive.open(file, signal, stored.sizeBytes);
    const { id, owner_uid } = archive.footer.app;
    const isOthers =
      !caller.root &&
      !this.storages.isBesideStore(ref.storage) &&
      (await this.#otherName(archive)) !== undefined;
    if (id === ref.appId && owner_uid === named.ownerUid && !isOthers) return archive;
    await archive[Symbol.asyncDispose]();
    if (!caller.root) throw notFound("backup", ref.name);
    throw new SvcError(
      "archive_damaged",
      `the archive belongs to app "${id}" of uid ${owner_uid}, which differs from its name`,
    );
  }

  /**
   * The name of this host's user with the uid of the archive's owner, if it differs: the uid may belong to
   * another user here.
   * @returns undefined if the names are equal or one is unknown
   */
  async #otherName({ footer }: Archive): Promise<string | undefined> {
    const { owner_uid: uid, owner } = footer.app;
    if (uid === 0 || owner === "" || footer.host === storeIdOf(this.#options.store)) return undefined;
    const name = await this.#options.userName(uid);
    return name === "" || name === owner ? undefined : name;
  }

  /** Prevents root from giving files to another user who has the same uid on this host. */
  async #requireSameOwner(archive: Archive, caller: AppCaller): Promise<void> {
    const { owner_uid: uid, owner } = archive.footer.app;
    const name = uid === caller.uid ? undefined : await this.#otherName(archive);
    if (name === undefined) return;
    const message =
      `cannot restore the backup: its owner is "${owner}" (uid ${uid}) on another host, and uid ${uid} is "${name}" here; ` +
      `use a host where "${owner}" has this uid`;
    throw new SvcError("not_possible", message);
  }

  /** Only root may remove an unreadable archive. */
  async #requireOwner(ref: ArchiveRef, caller: AppCaller, signal?: AbortSignal): Promise<void> {
    const { isEncrypted, host } = requireVisible(ref, caller);
    const isOfHere =
      host === hostOf(storeIdOf(this.#options.store)) || this.storages.isBesideStore(ref.storage);
    if (isEncrypted && !isOfHere && !caller.root) {
      // The name has only the uid on the other host, which may belong to another user here.
      throw new SvcError(
        "root_required",
        "the encrypted backup is from another host: only root may delete it",
      );
    }
    await using _file = caller.root
      ? await this.storages.open(ref.storage).open(ref, signal)
      : await this.#openStored(ref, caller, signal);
  }

  /**
   * Opens a stored file. For an encrypted archive the name determines the owner: the content is protected by
   * the identity.
   */
  async #openStored(ref: ArchiveRef, caller: AppCaller, signal?: AbortSignal): Promise<StoredFile> {
    if (!requireVisible(ref, caller).isEncrypted) {
      await using _archive = await this.#open({ ...ref, identity: "" }, caller, signal);
    }
    return this.storages.open(ref.storage).open(ref, signal);
  }

  /** The user who reads an archive: the owner of its files if that user exists here, else the caller. */
  async #reader({ footer }: Archive, caller: AppCaller): Promise<UserHelper> {
    const { userHelpers } = this.#options;
    try {
      return await userHelpers.as(footer.app.run_uid);
    } catch (error) {
      if (!(error instanceof SvcError)) throw error;
      return userHelpers.as(caller.uid);
    }
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

  /**
   * The licenses and permissions that the archive needs and that were not accepted on this host, and those
   * that the app will have. For an archive that this store created, the accepted ones are known. Its manifest
   * may still ask for more, because the app's user can change the checkout. An archive from another host may
   * claim anything.
   */
  async #askedBy(
    archive: Archive,
    { manifest }: Omit<AppImage, "accepted">,
    { target, paths }: { target: AppRecord | undefined; paths: readonly string[] },
    reader: UserHelper,
    signal?: AbortSignal,
  ): Promise<{ asked: Asked; accepted: Acknowledgement }> {
    const { app } = archive.footer;
    const isMadeHere = this.#catalogue.hasMade(archive.digest);
    const ownerUid = target?.ownerUid ?? app.owner_uid;
    const permissions = ownerUid === 0 && !isMadeHere ? [rootsFromElsewhere] : [];
    const before = target?.accepted ?? nothingAccepted;
    // The version and its accepted terms stay.
    if (paths.length > 0) return { asked: { licenses: [], permissions }, accepted: before };
    if (isMadeHere) {
      const recorded = app.accepted as Acknowledgement;
      const asked = askedBy({ licenses: [], manifest }, { ownerUid, accepted: recorded });
      return { asked, accepted: { ...recorded, permissions: manifest.permissions } };
    }
    const { known, licenses } = await licensesOf(archive, before.licenses, reader, signal);
    const asked = askedBy({ licenses, manifest }, { ownerUid, accepted: before });
    const added = acknowledgementOf({ licenses, manifest });
    return {
      asked: { ...asked, permissions: [...permissions, ...asked.permissions] },
      accepted: { ...added, licenses: [...known, ...added.licenses] },
    };
  }

  /** The manifest of the checkout, with the same checks as for other manifests. */
  async #imageOf(
    archive: Archive,
    userHelper: UserHelper,
    { root, uid }: AppCaller,
    signal?: AbortSignal,
  ): Promise<Omit<AppImage, "accepted">> {
    const { app, trees } = archive.footer;
    const file = await archive.findFile(userHelper, `repo/${manifestFileName}`, signal);
    if (file.sizeBytes > maxManifestBytes)
      throw new SvcError("package_invalid", "the archive's manifest is too large");
    const text = await readWhole(archive, userHelper, file, signal);
    const manifest = await this.#options.manifests.parse(text.toString(), root ? rootShare : uid, signal);
    return {
      name: app.name,
      origin: app.origin as unknown as PackageOrigin,
      version: app.version,
      manifest,
      settings: app.settings,
      trees: trees.filter((tree) => volumeOfTree(tree) === undefined),
      volumes: trees.flatMap((tree) => volumeOfTree(tree) ?? []),
    };
  }

  async #restoreForTrial(archive: Archive, userHelper: UserHelper, work: WorkOptions) {
    await mkdir(this.#trialDir, { recursive: true, mode: 0o711 });
    const tree = await this.#options.userHelpers.tree(
      join(this.#trialDir, randomUUID()),
      userHelper.user.uid,
    );
    await tree.create();
    try {
      const into = archive.footer.trees;
      await tree.makeDirs(into);
      return await archive.layOutForTrial(userHelper, tree.root, work);
    } finally {
      await tree.destroy();
    }
  }
}

const rootsFromElsewhere =
  "The app belongs to root here, and the archive is from another host: its content can run as root.";

/** Limit for entries at the root of a package. */
const maxRootEntries = 10_000;

/**
 * The licenses at the root of the checkout. Accepted ones are not read: the restore checks every file against
 * the index, and a differential archive lacks unchanged files.
 * @returns `known`: the checksums of the accepted ones
 * @throws SvcError `package_invalid` for a license that is too large
 */
async function licensesOf(
  archive: Archive,
  accepted: readonly string[],
  reader: UserHelper,
  signal?: AbortSignal,
): Promise<{ known: string[]; licenses: LicenseText[] }> {
  const page = { directory: "repo", after: 0, limit: maxRootEntries };
  const { entries } = await archive.browse(reader, page, signal);
  const known = entries.filter(({ sha256 }) => accepted.includes(sha256));
  const others = entries.filter((entry) => !known.includes(entry));
  const named = others.map(({ path, type }) => ({
    name: path.slice("repo/".length),
    type: type === "hardlink" ? "file" : type,
  }));
  const licenses = await collectLicenses(named, async (name) => {
    const file = await archive.findFile(reader, `repo/${name}`, signal);
    if (file.sizeBytes > maxLicenseBytes)
      throw new SvcError("package_invalid", `the archive's license ${name} is too large`);
    return readWhole(archive, reader, file, signal);
  });
  return { known: known.map(({ sha256 }) => sha256), licenses };
}

async function readWhole(
  archive: Archive,
  reader: UserHelper,
  file: LocatedFile,
  signal?: AbortSignal,
): Promise<Buffer> {
  const pieces = archive.readFile(reader, file, signal) as AsyncIterable<Buffer>;
  return Buffer.concat(await Array.fromAsync(pieces));
}

/** @throws SvcError `not_possible` for a differential archive */
function requireWhole({ footer }: Archive): void {
  if (footer.since === undefined) return;
  const message = `the archive has only the changes since ${footer.since}: restore it completely, into the app that was restored from ${footer.since}`;
  throw new SvcError("not_possible", message);
}

/** @throws SvcError `not_found` for a name of another app or user */
function requireVisible(ref: ArchiveRef, caller: AppCaller): ArchiveName {
  const named = parseArchiveName(ref.name);
  const isVisible = caller.root || named?.ownerUid === caller.uid;
  if (named?.appId !== ref.appId || !isVisible) throw notFound("backup", ref.name);
  return named;
}

/** Empty for none. */
function failuresOf(results: readonly StorageResult[]): string {
  const failed = results.filter(({ error }) => error !== "");
  return failed.map(({ storage, error }) => `${storage}: ${error}`).join("; ");
}
