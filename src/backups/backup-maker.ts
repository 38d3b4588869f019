/** One read of an app, one archive, pushed to any number of storages; each of them has a result of its own. */
import { Readable } from "node:stream";
import { finished } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import type { AppCaller } from "../apps/app-registry.ts";
import type { AppRecord } from "../apps/app-record.ts";
import type { Apps } from "../apps/apps.ts";
import { backedUpTrees, backupExcludes, volumePolicy, volumeTree } from "../apps/backed-up-trees.ts";
import type { BackupMode } from "../apps/backup-hold.ts";
import type { WorkOptions } from "../apps/progress.ts";
import type { VolumeSource, WrittenArchive } from "../identity/identity-work.ts";
import type { Identities } from "../identity/identities.ts";
import type { EngineVolumes, RunnableApp } from "../runtimes/runtime.ts";
import { manifestFileName } from "../packages/manifest.ts";
import type { Age } from "./age/age.ts";
import type { Archive } from "./archive.ts";
import { EncryptedForms } from "./age/encrypted-forms.ts";
import { encodeFooter } from "./archive-footer.ts";
import { encryptedName, hostOf, newArchiveName } from "./archive-name.ts";
import type { BackupQuota, BackupRoom } from "./backup-quota.ts";
import type { ArchiveRef, Catalogue } from "./catalogue.ts";
import { rotate } from "./rotate.ts";
import type { Retention } from "./rotation.ts";
import type { Spool, SpoolFile } from "./spool.ts";
import type { StorageList } from "./storages/storage-list.ts";
import type { Log } from "../lib/log.ts";

/** For what is done at one storage after a push that failed. */
const withdrawMs = 20_000;

const maxWarnings = 100;

/** Who waits for less than that needs no total. */
const measureAfterMs = 3_000;

/** What was read of an app, and the trees that it came of. */
interface ReadApp extends WrittenArchive {
  trees: string[];
}

export interface BackupRequest {
  /** At least one. */
  storages: readonly string[];
  retention: Retention;
  mode: BackupMode;
  /** See `CreateBackupRequest`. */
  marks: boolean;
  /** The archive that it shall be the difference to, and its name; absent for a whole one. */
  since?: { name: string; archive: Archive };
}

export interface StorageResult {
  storage: string;
  /** Empty when it failed. */
  name: string;
  sizeBytes: number;
  /** Empty when it succeeded. */
  error: string;
  removed: string[];
}

export interface BackupOutcome {
  results: StorageResult[];
  warnings: string[];
  contentBytes: number;
  entries: number;
}

export interface BackupMakerOptions {
  apps: Apps;
  identities: Identities;
  storages: StorageList;
  quota: BackupQuota;
  catalogue: Catalogue;
  spool: Spool;
  age: Age;
  storeId: string;
  svcVersion: string;
  userName: (uid: number) => Promise<string>;
  now: () => number;
  log: Pick<Log, "warn">;
  /** Hears what became of each backup. */
  onEnd: (end: BackupEnd) => void;
}

/** A backup that was made at one storage, or came to nothing. */
export interface BackupEnd {
  appId: string;
  ownerUid: number;
  /** Empty for one that no storage was given. */
  storage: string;
  /** Empty when it was made. */
  error: string;
}

export class BackupMaker {
  readonly #options: BackupMakerOptions;

  constructor(options: BackupMakerOptions) {
    this.#options = options;
  }

  /**
   * @throws SvcError `not_found` for an app or a storage, `app_busy`, `disk_full`, `build_failed` for the package's dump,
   *   `too_many` when the owner may have no more in any of the storages; what goes wrong at a storage is in its result
   */
  async make(
    appId: string,
    request: BackupRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<BackupOutcome> {
    const { apps, onEnd } = this.#options;
    const { ownerUid } = await apps.record(appId, caller);
    try {
      const storages = [...new Set(request.storages)];
      for (const name of storages) this.#options.storages.find(name);
      using room = await this.#options.quota.open(caller.root ? undefined : ownerUid, storages);
      const outcome = await this.#make(appId, { ...request, storages }, room, caller, work);
      for (const { storage, error } of outcome.results) onEnd({ appId, ownerUid, storage, error });
      return outcome;
    } catch (error) {
      // What only the log may say is not told.
      const message = error instanceof SvcError ? error.message : "the daemon's log has the reason";
      onEnd({ appId, ownerUid, storage: "", error: message });
      throw error;
    }
  }

  async #make(
    appId: string,
    request: BackupRequest,
    room: BackupRoom,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<BackupOutcome> {
    const { apps, catalogue, spool, age, storeId, now } = this.#options;
    const createdAtMs = now();
    const places = request.storages.map((storage) => this.#options.storages.find(storage));
    const isKeptHere = (isSealed: boolean): boolean =>
      places.some(
        ({ location, recipients }) => location?.kind === "local" && recipients.length > 0 === isSealed,
      );
    await using file = await spool.create({ room, isKept: isKeptHere(false) });
    await using forms = new EncryptedForms({ archive: file, spool, age, isKept: isKeptHere(true) });
    const { result, warnings: later } = await apps.holdForBackup(
      appId,
      request.mode,
      async (held, runnable, volumes) => {
        // Beside the making; how it goes is looked at when it is pushed.
        for (const { recipients } of places) void forms.for(recipients, work);
        return { app: held, written: await this.#read(held, runnable, { volumes, request }, file, work) };
      },
      caller,
      work,
    );
    const { app, written } = result;
    await this.#finish(app, written, request, createdAtMs, file);
    const plainName = newArchiveName({ createdAtMs, appId, ownerUid: app.ownerUid, host: hostOf(storeId) });
    const results = await Promise.all(
      request.storages.map((storage) =>
        this.#push(storage, { app, plainName, room }, forms, request.retention, work),
      ),
    );
    const taken = results.filter(({ error }) => error === "").map(({ storage }) => storage);
    if (taken.length > 0 && request.since === undefined) await catalogue.backedUp(appId, taken);
    const { contentBytes, entries } = written;
    const warnings = [...later, ...written.warnings].slice(0, maxWarnings);
    return { results, warnings, contentBytes, entries };
  }

  /** The owner's identity reads; what comes is the daemon's to write down. */
  async #read(
    app: AppRecord,
    { directory, uid }: RunnableApp,
    { volumes: engine, request }: { volumes: EngineVolumes | undefined; request: BackupRequest },
    file: SpoolFile,
    { signal, onProgress }: WorkOptions,
  ): Promise<ReadApp> {
    const identity = await this.#options.identities.as(uid);
    const trees = backedUpTrees(app.manifest);
    const { own, shared } = (await engine?.list(app.id)) ?? { own: [], shared: [] };
    const volumes = own
      .filter((key) => volumePolicy(app.manifest, key).backup)
      .map((key): VolumeSource => ({
        tree: volumeTree(key),
        excludes: volumePolicy(app.manifest, key).excludes,
        tar: () => engine?.read(app.id, key, signal) ?? Readable.from([]),
      }));
    let totalBytes: bigint | undefined;
    const read = new AbortController();
    const measure = async (): Promise<void> => {
      // Looking at each of many small files takes a tenth as long as reading them.
      await sleep(measureAfterMs, undefined, { signal: read.signal });
      const stop = signal ? AbortSignal.any([read.signal, signal]) : read.signal;
      const { sizes } = await identity.measure(directory, trees, { signal: stop });
      totalBytes = BigInt(sizes.reduce((sum, size) => sum + size, 0));
    };
    // What volumes of the engine take is known when they have been read.
    const measuring = volumes.length > 0 ? Promise.resolve() : measure();
    // The total is for people who wait; the backup goes on without.
    measuring.catch(() => undefined);
    const output = file.writable();
    const kept = finished(output);
    // Looked at below; a full disk is an error of its own.
    kept.catch(() => undefined);
    const archiving = identity.writeArchive(directory, trees, output, {
      exclude: backupExcludes(app.manifest),
      volumes,
      marks: request.marks,
      ...(request.since && { since: request.since.archive.index(signal) }),
      // Whoever restores looks into it first.
      unmarked: [`repo/${manifestFileName}`],
      signal,
      onProgress: (done) =>
        onProgress?.({
          step: "read",
          message: "",
          doneBytes: BigInt(done),
          ...(totalBytes !== undefined && { totalBytes }),
        }),
    });
    const written = await archiving.finally(() => read.abort());
    output.end();
    await kept;
    const left = shared.map(
      (name) => `the volume ${name} has a driver or a name of its own, and is not in the backup`,
    );
    return {
      ...written,
      warnings: [...left, ...written.warnings].slice(0, maxWarnings),
      trees: [...trees, ...volumes.map(({ tree }) => tree)],
    };
  }

  async #finish(
    app: AppRecord,
    { warnings, trees, ...parts }: ReadApp,
    { mode, since }: BackupRequest,
    createdAtMs: number,
    file: SpoolFile,
  ): Promise<void> {
    const { storeId, svcVersion, userName } = this.#options;
    const footer = await encodeFooter({
      format: since === undefined ? 1 : 2,
      svc_version: svcVersion,
      created_at: new Date(createdAtMs).toISOString(),
      mode,
      host: storeId,
      app: {
        id: app.id,
        name: app.name,
        package_id: app.packageId,
        runtime: app.runtime,
        version: app.version,
        owner_uid: app.ownerUid,
        owner: await userName(app.ownerUid),
        run_uid: app.runUid,
        origin: { ...app.origin },
        settings: app.settings,
        accepted: { licenses: [...app.accepted.licenses], permissions: [...app.accepted.permissions] },
      },
      trees,
      ...(since && { since: since.name }),
      parts,
      warnings,
    });
    await file.append(footer);
    await file.end();
  }

  async #push(
    storage: string,
    { app, plainName, room }: { app: AppRecord; plainName: string; room: BackupRoom },
    forms: EncryptedForms,
    retention: Retention,
    work: WorkOptions,
  ): Promise<StorageResult> {
    const { storages, catalogue, log } = this.#options;
    const { signal, onProgress } = work;
    let [name, sizeBytes] = [plainName, 0];
    try {
      room.requireTaken(storage);
      const { recipients } = storages.find(storage);
      if (recipients.length > 0) name = encryptedName(plainName);
      const key = { appId: app.id, name };
      const ref = { storage, ...key };
      const place = storages.open(storage);
      const file = await forms.for(recipients, work);
      sizeBytes = file.sizeBytes;
      await catalogue.announce(ref);
      try {
        await place.put(key, file.path, {
          signal,
          onProgress: (done) =>
            onProgress?.({
              step: "push",
              message: storage,
              doneBytes: BigInt(done),
              totalBytes: BigInt(sizeBytes),
            }),
        });
      } catch (error) {
        await this.#withdraw(ref);
        throw error;
      }
      await catalogue.confirm(ref);
    } catch (error) {
      log.warn({ err: error, storage, app: app.id }, "a backup could not be pushed to a storage");
      const why = error instanceof SvcError ? error.message : "an internal error, which the daemon's log has";
      return { storage, name: "", sizeBytes: 0, error: why, removed: [] };
    }
    const removed = await rotate(this.#options, storage, app, retention);
    return { storage, name, sizeBytes, error: "", removed };
  }

  /** What a push that failed may have left; a storage that does not answer is asked again later. */
  async #withdraw(ref: ArchiveRef): Promise<void> {
    const { storages, catalogue } = this.#options;
    try {
      const place = storages.open(ref.storage);
      const signal = AbortSignal.timeout(withdrawMs);
      await place.remove(ref, signal);
      await place.abandon(ref, signal);
      await catalogue.forget(ref);
    } catch {
      await catalogue.leave(ref);
    }
  }
}
