/**
 * The backups of apps, as called by handlers. Callers see only their own archives; another user's archive is
 * not found.
 */
import { join } from "node:path";
import type { Readable } from "node:stream";
import type { AppCaller } from "../apps/records/app-registry.ts";
import type { AppRecord } from "../apps/records/app-record.ts";
import type { BackupHold } from "../apps/lifecycle/backup-hold.ts";
import type { AppFinder } from "../apps/records/app-finder.ts";
import { cancelably, type WorkOptions } from "../work/progress.ts";
import type { Restorer } from "../apps/changes/restore.ts";
import { invalidField, messageForUsers, SvcError } from "../errors.ts";
import type { UserHelper } from "../run-as/user-helper.ts";
import type { ArchivedEntry } from "../run-as/user-helper-types.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import type { ManifestParser } from "../packages/manifest/manifest-parser.ts";
import type { Zones } from "../triggers/zone.ts";
import type { Executor } from "../store/executors.ts";
import { storeIdOf } from "../store/store-id.ts";
import type { Store } from "../store/store.ts";
import type { Age } from "./encryption/age.ts";
import type { Archive } from "./archives/archive.ts";
import type { ArchiveFooter } from "./archives/archive-footer.ts";
import { hostOf, parseArchiveName } from "./archives/archive-name.ts";
import {
  listArchives,
  type ListedArchive,
  type ListedArchives,
  type ListRequest,
} from "./archives/archive-list.ts";
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
import { ArchiveCatalog, keyOf, type ArchiveRef, type CatalogedArchive } from "./archives/archive-catalog.ts";
import { checkPolicy, encryptedCannotBeTested, type BackupPolicySpec } from "./policies/policy.ts";
import { PolicyPass } from "./policies/policy-pass.ts";
import type { Retention } from "./policies/retention.ts";
import { Spool } from "./archives/spool.ts";
import type { StoredArchive } from "./storages/storage.ts";
import { uploadArchive, type UploadTarget } from "./archives/upload.ts";
import type { S3Thread } from "./storages/s3-thread.ts";
import { checkStorage, type StorageCheck } from "./storages/storage-check.ts";
import { localName, StorageList } from "./storages/storage-list.ts";
import type { Log } from "../lib/log.ts";
import {
  ArchiveAccess,
  requireVisible,
  requireFullArchive,
  type OpenableRef,
} from "./archives/archive-access.ts";
import { BackupRestorer } from "./restore.ts";
import { BackupVerifier } from "./verify.ts";

export interface CreateRequest extends Retention {
  /** Empty: the storages of the app's policy, else the local one. */
  storages: readonly string[];
  /** Empty: the policy's mode. */
  mode: "" | "live" | "pause" | "stop";
  /** See `CreateBackupRequest`. */
  marks?: boolean;
  since?: string;
}

export interface ShownArchive {
  footer: ArchiveFooter;
  sizeBytes: number;
  isEncrypted: boolean;
  /** The local record; undefined for none. */
  known: CatalogedArchive | undefined;
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
  readonly restorer: BackupRestorer;
  readonly verifier: BackupVerifier;
  readonly #options: BackupsOptions;
  readonly #catalog: ArchiveCatalog;
  readonly #spool: Spool;
  readonly #quota: BackupQuota;
  readonly #maker: BackupMaker;
  readonly #access: ArchiveAccess;

  constructor(options: BackupsOptions) {
    const { store, dir, executor, selfUid, age, s3, now, log } = options;
    this.#options = options;
    const storeId = storeIdOf(store);
    const storages = new StorageList({ store, dir: join(dir, "backups"), selfUid, age, s3, now, log });
    const catalog = new ArchiveCatalog(store, executor, now, () => options.states.invalidate(), log);
    this.storages = storages;
    this.#catalog = catalog;
    this.#spool = new Spool(join(dir, "spool"), executor);
    this.#quota = new BackupQuota({ storages, maxBytesPerUser: options.maxBytesPerUser, now });
    this.#maker = new BackupMaker({
      ...options,
      storages,
      catalog,
      spool: this.#spool,
      quota: this.#quota,
      storeId,
    });
    const access = new ArchiveAccess({ ...options, storages, catalog, storeId });
    this.#access = access;
    this.restorer = new BackupRestorer({ ...options, access, catalog });
    this.verifier = new BackupVerifier({ ...options, access, catalog, testDir: join(dir, "trials") });
  }

  /** Identifies this node in the names of archives. */
  get nodeId(): string {
    return hostOf(storeIdOf(this.#options.store));
  }

  /** Settles backups of processes that died. */
  async settle(): Promise<void> {
    await this.#spool.sweep();
    await settleLeftovers({ ...this.#options, storages: this.storages, catalog: this.#catalog });
  }

  /** Tests the operations of a storage. @throws SvcError `not_found`, `disk_full` */
  async testStorage(name: string, signal?: AbortSignal): Promise<StorageCheck[]> {
    const storage = this.storages.open(name);
    await using probe = await this.#spool.create();
    return await checkStorage(storage, probe, signal);
  }

  /** Like {@link StorageList.remove}; resolves to the policies and jobs that still use it. */
  async removeStorage(name: string, managedBy: string): Promise<StorageUse[]> {
    await this.storages.remove(name, managedBy);
    const { finder, states, jobsWith } = this.#options;
    const backedUp = (await finder.all()).filter((app) => states.policyOf(app).spec.storages.includes(name));
    return [
      ...backedUp.map(({ id, ownerUid }) => ({ kind: "policy" as const, id, owner: ownerUid })),
      ...jobsWith(name).map(({ id, ownerUid }) => ({ kind: "job" as const, id, owner: ownerUid })),
    ];
  }

  /** Like {@link listArchives}. @throws SvcError `not_found` for an app or a storage that the caller cannot see */
  list(request: ListRequest, caller: AppCaller): Promise<ListedArchives> {
    const { storages } = this;
    const options = { storages, catalog: this.#catalog, log: this.#options.log, nodeId: this.nodeId };
    return listArchives(options, request, caller);
  }

  /**
   * Creates a backup, and tests it if the app's policy tests each new backup.
   * @throws SvcError as {@link BackupMaker.make} and {@link BackupVerifier.verify}
   */
  async create(
    appId: string,
    request: CreateRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<BackupOutcome> {
    const outcome = await this.#make(appId, request, caller, work);
    const { verify } = this.#options.states.policyOf(await this.#options.finder.find(appId, caller)).spec;
    const { marks = false, since = "" } = request;
    if (!verify || marks || since !== "") return outcome;
    try {
      await this.#test(appId, outcome.results, caller, work);
      return outcome;
    } catch (error) {
      if (!(error instanceof SvcError) || error.reason !== "not_possible") throw error;
      return { ...outcome, warnings: [...outcome.warnings, `the backup was not tested: ${error.message}`] };
    }
  }

  async #make(
    appId: string,
    request: CreateRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<BackupOutcome> {
    const policy = this.#options.states.policyOf(await this.#options.finder.find(appId, caller)).spec;
    const { storages, mode, marks = false, since = "", ...retention } = request;
    const chosen = mode === "" ? policy.mode : mode;
    const storageNames = [storages, policy.storages, [localName]].find((names) => names.length > 0) ?? [];
    await this.#spool.sweep();
    const complete = { storages: storageNames, retention, mode: chosen, marks };
    const make = (exact: BackupRequest): Promise<BackupOutcome> =>
      cancelably(work, (within) => this.#maker.make(appId, exact, caller, within));
    if (since === "") return make(complete);
    const [storage = "", ...others] = storageNames;
    if (others.length > 0 || marks) throw invalidField("since", "requires exactly one storage, and no marks");
    await using archive = await this.#access.open(
      { appId, storage, name: since, identity: "" },
      caller,
      work.signal,
    );
    requireFullArchive(archive);
    const { ownerUid } = await this.#options.finder.find(appId, caller);
    if (archive.footer.host !== storeIdOf(this.#options.store) || archive.footer.app.owner_uid !== ownerUid)
      throw invalidField("since", `${since} is not an archive of this app`);
    return await make({ ...complete, since: { name: since, archive } });
  }

  /**
   * Creates a backup by the app's policy, and rotates archives.
   * @throws SvcError `unavailable` if a storage failed
   */
  async makeByPolicy(app: AppRecord, caller: AppCaller, work: WorkOptions): Promise<void> {
    const { spec } = this.#options.states.policyOf(app);
    const { storages, mode, verify, trigger: _, catchUp: __, ...retention } = spec;
    const { results } = await this.#make(app.id, { storages, mode, ...retention }, caller, work);
    const failures = failuresOf(results);
    if (verify && results.some(isReadable)) await this.#test(app.id, results, caller, work);
    if (failures !== "") throw new SvcError("unavailable", failures);
    if (verify) requireReadable(results);
  }

  /** Tests a restore of one of the new archives. @throws SvcError as {@link BackupVerifier.verify} */
  async #test(
    appId: string,
    results: readonly StorageResult[],
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<void> {
    if (results.every(({ error }) => error !== "")) return;
    const readable = requireReadable(results);
    await this.verifier.verify({ ...readable, appId, identity: "" }, true, caller, work);
  }

  /**
   * Creates a backup by the app's policy without rotation.
   * @throws as {@link create}, and if all storages failed
   */
  async makeOne(app: AppRecord, caller: AppCaller, work: WorkOptions): Promise<void> {
    const { results } = await this.#make(app.id, { storages: [], mode: "" }, caller, work);
    if (results.some(({ error }) => error === "")) return;
    throw new SvcError("unavailable", `the backup failed on all storages: ${failuresOf(results)}`);
  }

  /**
   * The newest archive of an app on each given storage, or on every storage if none is given. On a storage with
   * archives of this node, those of other nodes do not count. Archives of an earlier app with the same ID never count.
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
    const nowMs = this.#options.now();
    // An archive from the future was made while the clock was ahead.
    const isOwn = (each: ListedArchive): number => Number(each.isOfThisNode && each.createdAtMs <= nowMs);
    // Otherwise the newest stay first.
    const ownFirst = all.toSorted((a, b) => isOwn(b) - isOwn(a));
    const archives = ownFirst.filter(
      (each, at) => ownFirst.findIndex(({ storage }) => storage === each.storage) === at,
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
    await this.#catalog.setPolicy(appId, spec === undefined ? null : JSON.stringify(spec));
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
      recordAttempt: (appId, atMs) => this.#catalog.recordAttempt(appId, atMs),
      settle: () => this.settle(),
      make: async (app, signal) => {
        try {
          await this.makeByPolicy(app, callerOf(app), { signal });
          await this.#catalog.setPolicyError(app.id, null);
        } catch (error) {
          await this.#catalog.setPolicyError(app.id, messageForUsers(error));
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
    const readerOf = (archive: Archive): Promise<UserHelper> => this.#access.readerOf(archive, caller);
    const { storages } = this;
    const options = {
      spool: this.#spool,
      storages,
      quota: this.#quota,
      catalog: this.#catalog,
      age: this.#options.age,
      readerOf,
    };
    return uploadArchive(options, to, bytes, caller, work);
  }

  /** The archive's metadata, and its local record. */
  async show(ref: OpenableRef, caller: AppCaller, signal?: AbortSignal): Promise<ShownArchive> {
    await using archive = await this.#access.open(ref, caller, signal);
    const known = this.#catalog.archives(ref.appId).get(keyOf(ref));
    const { isEncrypted } = requireVisible(ref, caller);
    return { footer: archive.footer, sizeBytes: archive.sizeBytes, isEncrypted, known };
  }

  async delete(ref: ArchiveRef, caller: AppCaller, signal?: AbortSignal): Promise<void> {
    await this.#access.requireDeletable(ref, caller, signal);
    await this.storages.open(ref.storage).remove(ref, signal);
    await this.#catalog.forget(ref);
  }

  /** @throws SvcError `not_found` */
  async browse(
    ref: OpenableRef,
    page: { directory: string; after: number; limit: number },
    caller: AppCaller,
    signal?: AbortSignal,
  ): Promise<{ entries: ArchivedEntry[]; more: boolean }> {
    await using archive = await this.#access.open(ref, caller, signal);
    return await archive.browse(await this.#access.readerOf(archive, caller), page, signal);
  }

  /** The bytes of one file. Fails if they do not match the archive's checksum. */
  async *readFile(
    ref: OpenableRef,
    path: string,
    caller: AppCaller,
    signal?: AbortSignal,
  ): AsyncGenerator<{ sizeBytes: number; bytes: Uint8Array }> {
    await using archive = await this.#access.open(ref, caller, signal);
    const userHelper = await this.#access.readerOf(archive, caller);
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
    await using file = await this.#access.openFile(ref, caller, signal);
    const { sizeBytes } = file;
    const { start, end } = spanOf(sizeBytes);
    if (start > sizeBytes)
      throw invalidField("offset", `${start} is after the archive's end (${sizeBytes} bytes)`);
    yield { sizeBytes, bytes: new Uint8Array() };
    for await (const bytes of file.read(start, end, signal)) yield { sizeBytes, bytes };
  }
}

/** Encrypted archives cannot be opened without an identity. */
function isReadable({ name, error }: StorageResult): boolean {
  return error === "" && parseArchiveName(name)?.isEncrypted === false;
}

/** @throws SvcError `not_possible` */
function requireReadable(results: readonly StorageResult[]): StorageResult {
  const readable = results.find(isReadable);
  if (readable === undefined) throw new SvcError("not_possible", encryptedCannotBeTested);
  return readable;
}

/** Empty for none. */
function failuresOf(results: readonly StorageResult[]): string {
  const failed = results.filter(({ error }) => error !== "");
  return failed.map(({ storage, error }) => `${storage}: ${error}`).join("; ");
}
