/** Uploads an archive from another host to a storage: received completely, verified, then stored. */
import type { AppCaller } from "../../apps/records/app-registry.ts";
import type { WorkOptions } from "../../work/progress.ts";
import { SvcError, invalidField } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { Age } from "../encryption/age.ts";
import { ageVersionLine, openEncrypted } from "../encryption/encrypted-file.ts";
import { EncryptedForms } from "../encryption/encrypted-forms.ts";
import { Archive } from "./archive.ts";
import { createdAtMsOf, encryptedName, hostOf, newArchiveName, parseArchiveName } from "./archive-name.ts";
import type { BackupQuota } from "../policies/backup-quota.ts";
import type { ArchiveCatalog } from "./archive-catalog.ts";
import type { Spool } from "./spool.ts";
import { openLocalFile } from "../storages/local-storage.ts";
import type { StoredArchive, StoredFile } from "../storages/storage.ts";
import type { StorageList } from "../storages/storage-list.ts";

/** The target. */
export interface UploadTarget {
  storage: string;
  /** The age identity for an encrypted archive; else empty. */
  identity: string;
}

export interface UploadOptions {
  spool: Spool;
  storages: StorageList;
  quota: BackupQuota;
  catalog: ArchiveCatalog;
  age: Age;
  /** The user who reads it. */
  readerOf: (archive: Archive, caller: AppCaller) => Promise<UserHelper>;
}

/**
 * @throws SvcError `not_found` for the storage, `root_required` for an archive of somebody else's app,
 * `invalid_request` if the bytes are not a complete archive, `disk_full`,
 * `too_many` if the caller's quota is exceeded; errors of the storage
 */
export async function uploadArchive(
  { spool, storages, quota, catalog, age, readerOf }: UploadOptions,
  { storage, identity }: UploadTarget,
  bytes: AsyncIterable<Uint8Array>,
  caller: AppCaller,
  work: WorkOptions,
): Promise<StoredArchive> {
  const target = storages.open(storage);
  using space = await quota.open(caller.root ? undefined : caller.uid, [storage]);
  const isPermanent = storages.find(storage).location?.kind === "local";
  await using file = await spool.create({ space, isPermanent });
  for await (const piece of bytes) await file.append(piece);
  await file.end();
  const stored = await openLocalFile(file.path);
  const isEncrypted = await hasAgeHeader(stored);
  await using archive = await rejectDamaged(async () =>
    Archive.open(
      isEncrypted ? await openEncrypted(stored, { identity, uid: caller.uid }, age, work.signal) : stored,
      work.signal,
    ),
  );
  const { app, host, created_at } = archive.footer;
  if (!caller.root && app.owner_uid !== caller.uid) {
    const message = "the archive belongs to another user's app: only root may upload it";
    throw new SvcError("root_required", message);
  }
  const { recipients } = storages.find(storage);
  const plainName = newArchiveName({
    createdAtMs: createdAtMsOf(created_at),
    appId: app.id,
    ownerUid: app.owner_uid,
    host: hostOf(host),
  });
  const name = isEncrypted || recipients.length > 0 ? encryptedName(plainName) : plainName;
  const parsed = parseArchiveName(name);
  // The ID becomes a directory name.
  if (parsed?.appId !== app.id || !/^[a-z0-9][a-z0-9._-]*$/.test(app.id)) {
    throw invalidField("content", "the archive has an invalid app ID or host");
  }
  const reader = await readerOf(archive, caller);
  await rejectDamaged(() => archive.verify(reader, work));
  await using forms = new EncryptedForms({ archive: file, spool, age, isPermanent });
  const form = isEncrypted ? file : await forms.for(recipients, work);
  await space.requireTaken(storage);
  const ref = { storage, appId: app.id, name };
  await catalog.announce(ref, null);
  try {
    await target.put(ref, form.path, { signal: work.signal });
    // Rotation on this host must not remove it.
    await catalog.forget(ref);
  } catch (error) {
    await catalog.leave(ref);
    throw error;
  }
  return { ...parsed, name, sizeBytes: form.sizeBytes };
}

/** Received bytes that are not an archive are an invalid request, while a stored archive that is damaged is data loss. */
async function rejectDamaged<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof SvcError && error.reason === "archive_damaged")) throw error;
    throw invalidField("content", error.message);
  }
}

async function hasAgeHeader(file: StoredFile): Promise<boolean> {
  const beginning = Buffer.concat(await Array.fromAsync(file.read(0, ageVersionLine.length)));
  return beginning.toString("latin1") === ageVersionLine;
}
