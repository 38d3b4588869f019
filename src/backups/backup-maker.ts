/** Reads an app once, and sends the archive to any number of storages, each with a separate result. */
import { Readable } from "node:stream";
import { finished } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { messageForUsers, SvcError } from "../errors.ts";
import type { AppCaller } from "../apps/records/app-registry.ts";
import type { AppRecord } from "../apps/records/app-record.ts";
import type { AppFinder } from "../apps/records/app-finder.ts";
import {
  backedUpTrees,
  backupExcludes,
  volumePolicy,
  volumeTree,
} from "../apps/lifecycle/backed-up-trees.ts";
import { backupPlan } from "../apps/changes/step-plans.ts";
import type { BackupHold, BackupMode } from "../apps/lifecycle/backup-hold.ts";
import type { WorkOptions } from "../work/progress.ts";
import { withStepNumbers } from "../work/step-numbers.ts";
import type { VolumeSource, WrittenArchive } from "../run-as/user-helper-types.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import type { EngineVolumes } from "../runtimes/capabilities.ts";
import type { RunnableApp } from "../runtimes/runnable-app.ts";
import { manifestFileName } from "../packages/manifest/manifest.ts";
import type { Age } from "./encryption/age.ts";
import type { Archive } from "./archives/archive.ts";
import { EncryptedForms } from "./encryption/encrypted-forms.ts";
import { encodeFooter, footerDigest } from "./archives/archive-footer.ts";
import { encryptedName, hostOf, newArchiveName } from "./archives/archive-name.ts";
import type { BackupQuota, BackupSpace } from "./policies/backup-quota.ts";
import type { ArchiveRef, ArchiveCatalog } from "./archives/archive-catalog.ts";
import { removeExpired } from "./policies/remove-expired.ts";
import type { Retention } from "./policies/retention.ts";
import type { Spool, SpoolFile } from "./archives/spool.ts";
import type { StorageList } from "./storages/storage-list.ts";
import type { Log } from "../lib/log.ts";

/** Milliseconds for cleaning up a storage after a failed upload. */
const withdrawMs = 20_000;

const maxWarnings = 100;

/** Milliseconds before the total size is measured; short backups do not need it. */
const measureAfterMs = 3_000;

/** The archive of an app, and the trees that it contains. */
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
  /** The base of a differential archive; absent for a full archive. */
  since?: { name: string; archive: Archive };
}

export interface StorageResult {
  storage: string;
  /** Empty after a failure. */
  name: string;
  sizeBytes: number;
  /** Empty after a success. */
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
  finder: AppFinder;
  backupHold: BackupHold;
  userHelpers: UserHelpers;
  storages: StorageList;
  quota: BackupQuota;
  catalog: ArchiveCatalog;
  spool: Spool;
  age: Age;
  storeId: string;
  svcVersion: string;
  userName: (uid: number) => Promise<string>;
  now: () => number;
  log: Pick<Log, "warn">;
  /** Called with the result of each backup. */
  onEnd: (end: BackupEnd) => void;
}

/** The result of a backup on one storage. */
export interface BackupEnd {
  appId: string;
  ownerUid: number;
  /** Empty if the backup failed before any storage. */
  storage: string;
  /** Empty after a success. */
  error: string;
}

export class BackupMaker {
  readonly #options: BackupMakerOptions;

  constructor(options: BackupMakerOptions) {
    this.#options = options;
  }

  /**
   * @throws SvcError `not_found` for an app or a storage, `app_busy`, `disk_full`, `build_failed` for the
   * package's dump,
   * `too_many` if the owner's quota is exceeded in all storages. Errors of a storage are in its result
   */
  async make(
    appId: string,
    request: BackupRequest,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<BackupOutcome> {
    const { finder, onEnd } = this.#options;
    const { ownerUid, manifest } = await finder.find(appId, caller);
    const numbered = withStepNumbers(work, backupPlan(manifest));
    try {
      const storages = [...new Set(request.storages)];
      for (const name of storages) this.#options.storages.find(name);
      using space = await this.#options.quota.open(caller.root ? undefined : ownerUid, storages);
      const outcome = await this.#make(appId, { ...request, storages }, space, caller, numbered);
      for (const { storage, error } of outcome.results) onEnd({ appId, ownerUid, storage, error });
      return outcome;
    } catch (error) {
      // Internal errors are only logged.
      const message = error instanceof SvcError ? error.message : "the daemon's log has the reason";
      onEnd({ appId, ownerUid, storage: "", error: message });
      throw error;
    }
  }

  async #make(
    appId: string,
    request: BackupRequest,
    space: BackupSpace,
    caller: AppCaller,
    work: WorkOptions,
  ): Promise<BackupOutcome> {
    const { finder, backupHold, catalog, spool, age, storeId, now } = this.#options;
    const createdAtMs = now();
    const targets = request.storages.map((storage) => this.#options.storages.find(storage));
    const staysLocal = (isSealed: boolean): boolean =>
      targets.some(
        ({ location, recipients }) => location?.kind === "local" && recipients.length > 0 === isSealed,
      );
    await using file = await spool.create({ space, isPermanent: staysLocal(false) });
    await using forms = new EncryptedForms({ archive: file, spool, age, isPermanent: staysLocal(true) });
    const { result, warnings: holdWarnings } = await backupHold.hold(
      (await finder.find(appId, caller)).id,
      request.mode,
      async (lockedApp, runnable, volumes) => {
        // Runs in parallel; errors are reported at the upload.
        for (const { recipients } of targets) void forms.for(recipients, work);
        return {
          app: lockedApp,
          written: await this.#read(lockedApp, runnable, { volumes, request }, file, work),
        };
      },
      work,
    );
    const { app, written } = result;
    const digest = await this.#finish(app, written, request, createdAtMs, file);
    const plainName = newArchiveName({ createdAtMs, appId, ownerUid: app.ownerUid, host: hostOf(storeId) });
    const uploads = await Promise.all(
      request.storages.map((storage) =>
        this.#push(storage, { app, plainName, digest, space }, forms, request.retention, work),
      ),
    );
    const results = uploads.map((upload) => upload.result);
    const taken = results.filter(({ error }) => error === "").map(({ storage }) => storage);
    if (taken.length > 0 && request.since === undefined) await catalog.recordBackup(appId, taken);
    const { contentBytes, entries } = written;
    const expiryWarnings = uploads.flatMap((upload) => upload.warnings);
    const warnings = [...expiryWarnings, ...holdWarnings, ...written.warnings].slice(0, maxWarnings);
    return { results, warnings, contentBytes, entries };
  }

  /** The owner's helper process reads the app; the daemon writes the archive. */
  async #read(
    app: AppRecord,
    { directory, uid }: RunnableApp,
    { volumes: engine, request }: { volumes: EngineVolumes | undefined; request: BackupRequest },
    file: SpoolFile,
    { signal, onProgress }: WorkOptions,
  ): Promise<ReadApp> {
    const userHelper = await this.#options.userHelpers.as(uid);
    const trees = backedUpTrees(app.manifest);
    const { own = [], shared = [], anonymous = [] } = (await engine?.list(app.id)) ?? {};
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
      // Measuring many small files takes a tenth of the time of reading them.
      await sleep(measureAfterMs, undefined, { signal: read.signal });
      const stop = signal ? AbortSignal.any([read.signal, signal]) : read.signal;
      const { sizes } = await userHelper.measure(directory, trees, { signal: stop });
      totalBytes = BigInt(sizes.reduce((sum, size) => sum + size, 0));
    };
    // The size of engine volumes is known only after reading them.
    const measuring = volumes.length > 0 ? Promise.resolve() : measure();
    // The total is only shown as progress; the backup continues without it.
    measuring.catch(() => undefined);
    const output = file.writable();
    const outputEnd = finished(output);
    // Awaited below; a full disk has a separate error.
    outputEnd.catch(() => undefined);
    const archiving = userHelper.writeArchive(directory, trees, output, {
      exclude: backupExcludes(app.manifest),
      volumes,
      marks: request.marks,
      ...(request.since && { since: request.since.archive.index(signal) }),
      // A restore reads it first.
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
    await outputEnd;
    const left = [
      ...shared.map((name) => `volume ${name} is not in the backup, because it has a custom driver or name`),
      ...anonymous.map(
        (place) =>
          `${place} is not in the backup, because its volume has no name; mount a named volume there`,
      ),
    ];
    return {
      ...written,
      warnings: [...left, ...written.warnings].slice(0, maxWarnings),
      trees: [...trees, ...volumes.map(({ tree }) => tree)],
    };
  }

  /** Resolves to the digest of the archive. */
  async #finish(
    app: AppRecord,
    { warnings, trees, ...parts }: ReadApp,
    { mode, since }: BackupRequest,
    createdAtMs: number,
    file: SpoolFile,
  ): Promise<string> {
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
    return footerDigest(footer);
  }

  async #push(
    storage: string,
    {
      app,
      plainName,
      digest,
      space,
    }: { app: AppRecord; plainName: string; digest: string; space: BackupSpace },
    forms: EncryptedForms,
    retention: Retention,
    work: WorkOptions,
  ): Promise<{ result: StorageResult; warnings: string[] }> {
    const { storages, catalog, log } = this.#options;
    const { signal, onProgress } = work;
    let [name, sizeBytes] = [plainName, 0];
    try {
      await space.requireTaken(storage);
      const { recipients } = storages.find(storage);
      if (recipients.length > 0) name = encryptedName(plainName);
      const key = { appId: app.id, name };
      const ref = { storage, ...key };
      const target = storages.open(storage);
      const file = await forms.for(recipients, work);
      sizeBytes = file.sizeBytes;
      await catalog.announce(ref, digest);
      try {
        await target.put(key, file.path, {
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
      await catalog.confirm(ref);
    } catch (error) {
      log.warn({ err: error, storage, app: app.id }, "failed to upload a backup to a storage");
      const failed = { storage, name: "", sizeBytes: 0, error: messageForUsers(error), removed: [] };
      return { result: failed, warnings: [] };
    }
    const { removed, warnings } = await removeExpired(this.#options, { storage, name }, app, retention);
    return { result: { storage, name, sizeBytes, error: "", removed }, warnings };
  }

  /** Removes the rest of a failed upload; unresponsive storages are retried later. */
  async #withdraw(ref: ArchiveRef): Promise<void> {
    const { storages, catalog } = this.#options;
    try {
      const opened = storages.open(ref.storage);
      const signal = AbortSignal.timeout(withdrawMs);
      await opened.remove(ref, signal);
      await opened.abandon(ref, signal);
      await catalog.forget(ref);
    } catch {
      await catalog.leave(ref);
    }
  }
}
