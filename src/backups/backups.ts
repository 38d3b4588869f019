/** Backups of apps: what handlers call. Everything here goes by who asks: another user's archive is not found. */
import { randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import type { AppCaller } from "../apps/app-registry.ts";
import type { AppRecord } from "../apps/app-record.ts";
import { volumeOfTree } from "../apps/backed-up-trees.ts";
import type { Apps } from "../apps/apps.ts";
import { cancelably, type WorkOptions } from "../apps/progress.ts";
import type { AppImage, LayOut } from "../apps/restore.ts";
import { invalidField, notFound, SvcError } from "../errors.ts";
import type { Identity } from "../identity/identity.ts";
import type { ArchivedEntry } from "../identity/identity-work.ts";
import type { Identities } from "../identity/identities.ts";
import { manifestFileName, type Manifest } from "../packages/manifest.ts";
import type { ManifestParser } from "../packages/manifest-parser.ts";
import { maxManifestBytes } from "../packages/manifest-reader.ts";
import type { PackageOrigin } from "../packages/resolved-package.ts";
import type { Zones } from "../scheduler/trigger/zone.ts";
import type { Executor } from "../store/executors.ts";
import { storeIdOf } from "../store/store-id.ts";
import type { Store } from "../store/store.ts";
import type { Age } from "./age/age.ts";
import { openEncrypted } from "./age/encrypted-file.ts";
import { Archive } from "./archive.ts";
import type { ArchiveFooter } from "./archive-footer.ts";
import { parseArchiveName, type ArchiveName } from "./archive-name.ts";
import { listArchives, type ListedArchives, type ListRequest } from "./archive-list.ts";
import type { AppPolicy, BackupStates } from "./backup-states.ts";
import { BackupQuota } from "./backup-quota.ts";
import {
  BackupMaker,
  type BackupEnd,
  type BackupOutcome,
  type BackupRequest,
  type StorageResult,
} from "./backup-maker.ts";
import { settleLeftovers } from "./leftovers.ts";
import { Catalogue, keyOf, type ArchiveRef, type CataloguedArchive } from "./catalogue.ts";
import { checkPolicy, sealedFromTrials, type BackupPolicySpec } from "./policy.ts";
import { PolicyPass } from "./policy-pass.ts";
import type { Retention } from "./rotation.ts";
import { Spool } from "./spool.ts";
import type { StoredArchive, StoredFile } from "./storages/storage.ts";
import { uploadArchive, type UploadTarget } from "./upload.ts";
import type { S3Thread } from "./storages/s3-thread.ts";
import { checkStorage, type StorageCheck } from "./storages/storage-check.ts";
import { localName, StorageList } from "./storages/storage-list.ts";
import type { Log } from "../lib/log.ts";

export interface CreateRequest extends Retention {
  /** Those of the app's policy when empty, else the local one. */
  storages: readonly string[];
  /** The policy's when empty. */
  mode: "" | "live" | "pause" | "stop";
  /** See `CreateBackupRequest`. */
  marks?: boolean;
  since?: string;
}

export interface RestoreRequest {
  stopApp: boolean;
  asNew: boolean;
  /** Only with `asNew`. */
  newName: string;
  /** Everything when empty. */
  paths: readonly string[];
  dryRun: boolean;
}

export interface ShownArchive {
  footer: ArchiveFooter;
  sizeBytes: number;
  isEncrypted: boolean;
  /** Here; undefined when nothing is. */
  known: CataloguedArchive | undefined;
}

/** An archive, and what opens it: what an age identity file holds, or nothing. Never kept, never shown. */
export interface OpenableRef extends ArchiveRef {
  identity: string;
}

export interface RestoreOutcome {
  appId: string;
  restoredBytes: number;
  entries: number;
  restarted: boolean;
  version: string;
  /** What the archive does not have as it was. */
  warnings: string[];
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
  apps: Apps;
  states: BackupStates;
  zones: Zones;
  identities: Identities;
  manifests: ManifestParser;
  age: Age;
  s3: S3Thread;
  svcVersion: string;
  /** In each storage that is a directory; 0 for as much as there is room for. */
  maxBytesPerUser: number;
  userName: (uid: number) => Promise<string>;
  now: () => number;
  log: Pick<Log, "info" | "warn" | "error">;
  /** Hears what became of each backup. */
  onEnd: (end: BackupEnd) => void;
  /** The scheduled jobs that name a storage. */
  jobsWith: (storage: string) => readonly { readonly id: string; readonly ownerUid: number }[];
}

/** What names a storage. */
export interface StorageUse {
  readonly kind: "policy" | "job";
  /** Of the app or the job. */
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
    this.#quota = new BackupQuota({ storages, maxBytesPerUser: options.maxBytesPerUser });
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

  /** Ends what processes left behind that died in the middle of a backup. */
  async settle(): Promise<void> {
    await this.#spool.sweep();
    await settleLeftovers({ ...this.#options, storages: this.storages, catalogue: this.#catalogue });
  }

  /** Tries what a storage is asked for. @throws SvcError `not_found`, `disk_full` */
  async testStorage(name: string, signal?: AbortSignal): Promise<StorageCheck[]> {
    const storage = this.storages.open(name);
    await using probe = await this.#spool.create();
    return await checkStorage(storage, probe, signal);
  }

  /** As {@link StorageList.remove}; resolves with what names it still. */
  async removeStorage(name: string, managedBy: string): Promise<StorageUse[]> {
    await this.storages.remove(name, managedBy);
    const { apps, states, jobsWith } = this.#options;
    const backedUp = (await apps.all()).filter((app) => states.policyOf(app).spec.storages.includes(name));
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
    const policy = this.#options.states.policyOf(await this.#options.apps.record(appId, caller)).spec;
    const { storages, mode, marks = false, since = "", ...asked } = request;
    const chosen = mode === "" ? policy.mode : mode;
    const wanted = [storages, policy.storages, [localName]].find((names) => names.length > 0) ?? [];
    await this.#spool.sweep();
    const whole = { storages: wanted, retention: asked, mode: chosen, marks };
    const make = (exact: BackupRequest): Promise<BackupOutcome> =>
      cancelably(work, (within) => this.#maker.make(appId, exact, caller, within));
    if (since === "") return make(whole);
    const [storage = "", ...others] = wanted;
    if (others.length > 0 || marks) throw invalidField("since", "needs one storage, and no marks");
    await using archive = await this.#open(
      { appId, storage, name: since, identity: "" },
      caller,
      work.signal,
    );
    requireWhole(archive);
    const { ownerUid } = await this.#options.apps.record(appId, caller);
    if (archive.footer.host !== storeIdOf(this.#options.store) || archive.footer.app.owner_uid !== ownerUid)
      throw invalidField("since", `${since} was not made of this app`);
    return await make({ ...whole, since: { name: since, archive } });
  }

  /** What the policy of an app wants, with what it keeps. @throws SvcError `unavailable` when a storage did not take it */
  async makeByPolicy(app: AppRecord, caller: AppCaller, work: WorkOptions): Promise<void> {
    const { spec } = this.#options.states.policyOf(app);
    const { storages, mode, verify, trigger: _, catchUp: __, ...retention } = spec;
    const { results } = await this.create(app.id, { storages, mode, ...retention }, caller, work);
    const failures = failuresOf(results);
    const taken = results.filter(({ error }) => error === "");
    // What is encrypted opens for nobody who is there now.
    const readable = taken.find(({ name }) => parseArchiveName(name)?.isEncrypted === false);
    if (verify && readable !== undefined)
      await this.verify({ ...readable, appId: app.id, identity: "" }, true, caller, work);
    if (failures !== "") throw new SvcError("unavailable", failures);
    if (verify && readable === undefined) throw new SvcError("not_possible", sealedFromTrials);
  }

  /** One as the policy of an app says, which replaces none. @throws what {@link create} throws, and when no storage took it */
  async makeOne(app: AppRecord, caller: AppCaller, work: WorkOptions): Promise<void> {
    const { results } = await this.create(app.id, { storages: [], mode: "" }, caller, work);
    if (results.some(({ error }) => error === "")) return;
    throw new SvcError("unavailable", `no storage took the backup: ${failuresOf(results)}`);
  }

  /** The newest archive of an app on each of these storages; on all where none are named. Not those of an owner that had the id before. */
  async newest(
    appId: string,
    storages: readonly string[],
    caller: AppCaller,
  ): Promise<Omit<ListedArchives, "nextPageToken">> {
    const names = storages.length > 0 ? storages : [""];
    const page = { appId, limit: Number.MAX_SAFE_INTEGER, pageToken: "" };
    const lists = await Promise.all(names.map((storage) => this.list({ ...page, storage }, caller)));
    const app = await this.#options.apps.record(appId, caller);
    const all = lists.flatMap(({ archives }) => archives).filter(({ ownerUid }) => ownerUid === app.ownerUid);
    // The newest come first.
    const archives = all.filter(
      (each, at) => all.findIndex(({ storage }) => storage === each.storage) === at,
    );
    return { archives, errors: lists.flatMap(({ errors }) => errors) };
  }

  /** @throws SvcError `not_found` */
  async policy(appId: string, caller: AppCaller): Promise<AppPolicy & { nextRunMs: number | undefined }> {
    const app = await this.#options.apps.record(appId, caller);
    const { states } = this.#options;
    return { ...states.policyOf(app), nextRunMs: states.nextRunMs(app) };
  }

  /** @param spec undefined for what the package recommends @throws SvcError `not_found`, `invalid_request` */
  async setPolicy(appId: string, spec: BackupPolicySpec | undefined, caller: AppCaller): Promise<void> {
    await this.#options.apps.record(appId, caller);
    if (spec !== undefined) {
      checkPolicy(spec, this.storages.all());
    }
    await this.#catalogue.setPolicy(appId, spec === undefined ? null : JSON.stringify(spec));
  }

  /** What the scheduler runs every minute. */
  policyPass(): PolicyPass {
    const { apps, states, zones, selfUid, now } = this.#options;
    const callerOf = ({ ownerUid }: AppRecord): AppCaller => ({
      ...{ uid: ownerUid, ownerUid },
      root: ownerUid === selfUid || ownerUid === 0,
    });
    return new PolicyPass({
      ...{ apps, states, zones, callerOf, now },
      tried: (appId, atMs) => this.#catalogue.tried(appId, atMs),
      settle: () => this.settle(),
      make: async (app, signal) => {
        try {
          await this.makeByPolicy(app, callerOf(app), { signal });
          await this.#catalogue.setPolicyError(app.id, null);
        } catch (error) {
          const why =
            error instanceof SvcError ? error.message : "an internal error, which the daemon's log has";
          await this.#catalogue.setPolicyError(app.id, why);
          throw error;
        }
      },
    });
  }

  /** An archive from elsewhere. @throws SvcError see {@link uploadArchive} */
  upload(
    to: UploadTarget,
    bytes: AsyncIterable<Uint8Array>,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<StoredArchive> {
    const readerOf = (archive: Archive): Promise<Identity> => this.#reader(archive, caller);
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

  /** What it says of itself, and what is known of it here. */
  async show(ref: OpenableRef, caller: AppCaller, signal?: AbortSignal): Promise<ShownArchive> {
    await using archive = await this.#open(ref, caller, signal);
    const known = this.#catalogue.archives(ref.appId).get(keyOf(ref));
    const { isEncrypted } = requireVisible(ref, caller);
    return { footer: archive.footer, sizeBytes: archive.sizeBytes, isEncrypted, known };
  }

  /** @throws SvcError `archive_damaged`, `not_possible` for a trial that only root could make of what is not root's */
  async verify(
    ref: OpenableRef,
    deep: boolean,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<VerifyOutcome> {
    await using archive = await this.#open(ref, caller, work.signal);
    requireWhole(archive);
    const identity = await this.#reader(archive, caller);
    if (deep && identity.user.uid === 0) await this.#requireOfRoot(archive, caller);
    const read = deep
      ? await this.#restoreForTrial(archive, identity, work)
      : await archive.verify(identity, work);
    await this.#catalogue.proven(ref, deep);
    return { ...read, restored: deep };
  }

  /**
   * @throws SvcError `app_running`, `archive_damaged`, `denied` for an archive of an app that has another owner; see
   *   `Restorer.restore` and `Restorer.restoreAsNew`
   */
  async restore(
    ref: OpenableRef,
    request: RestoreRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<RestoreOutcome> {
    const { apps } = this.#options;
    if (request.asNew && request.paths.length > 0) throw invalidField("paths", "a new app gets everything");
    await using archive = await this.#open(ref, caller, work.signal);
    const { footer } = archive;
    const reader = await this.#reader(archive, caller);
    const image = await this.#imageOf(archive, reader, work.signal);
    const target = request.asNew ? undefined : await apps.installed(ref.appId, caller);
    const paths = request.paths.map((path) => path.replace(/\/+$/, ""));
    const { warnings } = footer;
    const outcome = { appId: ref.appId, version: image.version, restarted: false, warnings };
    if (target !== undefined && target.ownerUid !== footer.app.owner_uid) {
      const message = `the backup is of uid ${footer.app.owner_uid}, and app "${target.id}" is uid ${target.ownerUid}'s; restore it as a new app`;
      throw new SvcError("not_possible", message);
    }
    if (target === undefined && paths.length > 0) throw notFound("app", ref.appId);
    // Of what it does not hold only an app can have the rest.
    if (target === undefined || paths.length > 0) requireWhole(archive);
    if (request.dryRun) {
      if (target !== undefined) apps.restorer.requireRestorable(target, image, { ...request, paths });
      const found =
        paths.length > 0 ? await archive.locate(reader, paths, work) : await archive.verify(reader, work);
      return { ...outcome, restoredBytes: found.contentBytes, entries: found.entries };
    }
    let read = { contentBytes: 0, entries: 0 };
    const layOut: LayOut = async (place, placeWork) => {
      read = await archive.layOut(place, paths, placeWork);
    };
    if (target !== undefined) {
      const { restarted } = await cancelably(work, (within) =>
        apps.restorer.restore(target, image, layOut, { ...request, paths }, within),
      );
      outcome.restarted = restarted;
    } else {
      const { asNew: isCopy, newName } = request;
      const as = { baseId: ref.appId, name: newName, ownerUid: footer.app.owner_uid, caller, isCopy };
      outcome.appId = await cancelably(work, (within) =>
        apps.restorer.restoreAsNew(image, layOut, as, within),
      );
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

  /** The bytes of one file. Ends with an error when they are not those that the archive was made with. */
  async *readFile(
    ref: OpenableRef,
    path: string,
    caller: AppCaller,
    signal?: AbortSignal,
  ): AsyncGenerator<{ sizeBytes: number; bytes: Uint8Array }> {
    await using archive = await this.#open(ref, caller, signal);
    const identity = await this.#reader(archive, caller);
    const file = await archive.findFile(identity, path, signal);
    const { sizeBytes } = file;
    yield { sizeBytes, bytes: new Uint8Array() };
    const bytes: Readable = archive.readFile(identity, file, signal);
    for await (const piece of bytes) yield { sizeBytes, bytes: piece as Buffer };
  }

  /** The archive as it is. */
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
      throw invalidField("offset", `${start} is behind the archive's ${sizeBytes} bytes`);
    yield { sizeBytes, bytes: new Uint8Array() };
    for await (const bytes of file.read(start, end, signal)) yield { sizeBytes, bytes };
  }

  /** What is in the archive decides whose it is; its name is only believed when it says the same. */
  async #open(ref: OpenableRef, caller: AppCaller, signal?: AbortSignal): Promise<Archive> {
    const named = requireVisible(ref, caller);
    const stored = await this.storages.open(ref.storage).open(ref, signal);
    const file = named.isEncrypted
      ? await openEncrypted(stored, { ...ref, uid: caller.uid }, this.#options.age, signal)
      : stored;
    const archive = await Archive.open(file, signal, stored.sizeBytes);
    const { id, owner_uid } = archive.footer.app;
    if (id === ref.appId && owner_uid === named.ownerUid) return archive;
    await archive[Symbol.asyncDispose]();
    if (!caller.root) throw notFound("backup", ref.name);
    throw new SvcError(
      "archive_damaged",
      `the archive is one of app "${id}" of uid ${owner_uid}, and its name says otherwise`,
    );
  }

  /** One that cannot be read is removed by those alone who see everything. */
  async #requireOwner(ref: ArchiveRef, caller: AppCaller, signal?: AbortSignal): Promise<void> {
    requireVisible(ref, caller);
    await using _file = caller.root
      ? await this.storages.open(ref.storage).open(ref, signal)
      : await this.#openStored(ref, caller, signal);
  }

  /** What a storage has. Of an encrypted archive the name decides whose it is: it gives nothing away without an identity. */
  async #openStored(ref: ArchiveRef, caller: AppCaller, signal?: AbortSignal): Promise<StoredFile> {
    if (!requireVisible(ref, caller).isEncrypted) {
      await using _archive = await this.#open({ ...ref, identity: "" }, caller, signal);
    }
    return this.storages.open(ref.storage).open(ref, signal);
  }

  /** Whoever the files belonged to reads them, where there is such a user; else whoever asks. */
  async #reader({ footer }: Archive, caller: AppCaller): Promise<Identity> {
    const { identities } = this.#options;
    try {
      return await identities.as(footer.app.run_uid);
    } catch (error) {
      if (!(error instanceof SvcError)) throw error;
      return identities.as(caller.uid);
    }
  }

  /** Root lays out nothing for a trial that was not root's, or would not be in the app that is here. */
  async #requireOfRoot({ footer }: Archive, caller: AppCaller): Promise<void> {
    const { id, run_uid: uid } = footer.app;
    const way = "root does not lay it out for a trial; verify it without `deep`";
    if (uid !== 0) {
      const message = `the backup's files are of uid ${uid}, who has no account here, and ${way}, or make the account`;
      throw new SvcError("not_possible", message);
    }
    const here = await this.#options.apps.installed(id, caller);
    if (here === undefined || here.runUid === 0) return;
    const message = `the backup's files are root's, app "${id}" is uid ${here.runUid}'s here, and ${way}`;
    throw new SvcError("not_possible", message);
  }

  /** The manifest is that of the checkout, held to the rules of every other. */
  async #imageOf(archive: Archive, identity: Identity, signal?: AbortSignal): Promise<AppImage> {
    const { app, trees } = archive.footer;
    const file = await archive.findFile(identity, `repo/${manifestFileName}`, signal);
    if (file.sizeBytes > maxManifestBytes)
      throw new SvcError("package_invalid", "the archive's manifest is too large");
    const text = Buffer.concat(
      await Array.fromAsync(archive.readFile(identity, file, signal) as AsyncIterable<Buffer>),
    );
    const manifest: Manifest = await this.#options.manifests.parse(text.toString(), identity.user.uid);
    return {
      name: app.name,
      origin: app.origin as unknown as PackageOrigin,
      version: app.version,
      manifest,
      settings: app.settings,
      accepted: app.accepted as AppImage["accepted"],
      trees: trees.filter((tree) => volumeOfTree(tree) === undefined),
      volumes: trees.flatMap((tree) => volumeOfTree(tree) ?? []),
    };
  }

  async #restoreForTrial(archive: Archive, identity: Identity, work: WorkOptions) {
    await mkdir(this.#trialDir, { recursive: true, mode: 0o711 });
    const tree = await this.#options.identities.tree(join(this.#trialDir, randomUUID()), identity.user.uid);
    await tree.create();
    try {
      const into = archive.footer.trees;
      await tree.makeDirs(into);
      return await archive.layOutForTrial(identity, tree.root, work);
    } finally {
      await tree.destroy();
    }
  }
}

/** @throws SvcError `not_possible` for what is only the difference to another one */
function requireWhole({ footer }: Archive): void {
  if (footer.since === undefined) return;
  const message = `the archive has only what changed since ${footer.since}: it goes into the app that that one was restored to, whole`;
  throw new SvcError("not_possible", message);
}

/** @throws SvcError `not_found` for what is called another app's or another user's */
function requireVisible(ref: ArchiveRef, caller: AppCaller): ArchiveName {
  const named = parseArchiveName(ref.name);
  const isVisible = caller.root || named?.ownerUid === caller.uid;
  if (named?.appId !== ref.appId || !isVisible) throw notFound("backup", ref.name);
  return named;
}

/** Empty when there are none. */
function failuresOf(results: readonly StorageResult[]): string {
  const failed = results.filter(({ error }) => error !== "");
  return failed.map(({ storage, error }) => `${storage}: ${error}`).join("; ");
}
