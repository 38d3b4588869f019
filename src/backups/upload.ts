/** An archive from elsewhere, on its way into a storage: taken whole, read whole, and only then put there. */
import type { AppCaller } from "../apps/app-registry.ts";
import type { WorkOptions } from "../apps/progress.ts";
import { SvcError } from "../errors.ts";
import type { Identity } from "../identity/identity.ts";
import type { Age } from "./age/age.ts";
import { ageVersionLine, openEncrypted } from "./age/encrypted-file.ts";
import { EncryptedForms } from "./age/encrypted-forms.ts";
import { Archive } from "./archive.ts";
import { damaged } from "./archive-footer.ts";
import { encryptedName, hostOf, newArchiveName, parseArchiveName } from "./archive-name.ts";
import type { BackupQuota } from "./backup-quota.ts";
import type { Catalogue } from "./catalogue.ts";
import type { Spool } from "./spool.ts";
import { openLocalFile } from "./storages/local-storage.ts";
import type { StoredArchive, StoredFile } from "./storages/storage.ts";
import type { StorageList } from "./storages/storage-list.ts";

/** Where it goes. */
export interface UploadTarget {
  storage: string;
  /** What opens it where it is encrypted; else empty. */
  identity: string;
}

export interface UploadOptions {
  spool: Spool;
  storages: StorageList;
  quota: BackupQuota;
  catalogue: Catalogue;
  age: Age;
  /** With whose identity it is read. */
  readerOf: (archive: Archive, caller: AppCaller) => Promise<Identity>;
}

/**
 * @throws SvcError `not_found` for the storage, `root_required` for an archive of somebody else's app, `archive_damaged`, `disk_full`,
 *   `too_many` for more than the caller may have there, and what the storage says
 */
export async function uploadArchive(
  { spool, storages, quota, catalogue, age, readerOf }: UploadOptions,
  { storage, identity }: UploadTarget,
  bytes: AsyncIterable<Uint8Array>,
  caller: AppCaller,
  work: WorkOptions,
): Promise<StoredArchive> {
  const place = storages.open(storage);
  using room = await quota.open(caller.root ? undefined : caller.uid, [storage]);
  const isKept = storages.find(storage).location?.kind === "local";
  await using file = await spool.create({ room, isKept });
  for await (const piece of bytes) await file.append(piece);
  await file.end();
  const stored = await openLocalFile(file.path);
  const isEncrypted = await hasAgeHeader(stored);
  await using archive = await Archive.open(
    isEncrypted ? await openEncrypted(stored, { identity, uid: caller.uid }, age, work.signal) : stored,
    work.signal,
  );
  const { app, host, created_at } = archive.footer;
  if (!caller.root && app.owner_uid !== caller.uid) {
    const message = "the archive is of an app of another user: only root may put it there";
    throw new SvcError("root_required", message);
  }
  const { recipients } = storages.find(storage);
  const plainName = newArchiveName({
    createdAtMs: Date.parse(created_at) || 0,
    appId: app.id,
    ownerUid: app.owner_uid,
    host: hostOf(host),
  });
  const name = isEncrypted || recipients.length > 0 ? encryptedName(plainName) : plainName;
  const parsed = parseArchiveName(name);
  // It becomes the name of a directory.
  if (parsed?.appId !== app.id || !/^[a-z0-9][a-z0-9._-]*$/.test(app.id)) {
    throw damaged("names an app or a host that no app and no host can have");
  }
  await archive.verify(await readerOf(archive, caller), work);
  await using forms = new EncryptedForms({ archive: file, spool, age, isKept });
  const form = isEncrypted ? file : await forms.for(recipients, work);
  const ref = { storage, appId: app.id, name };
  await catalogue.announce(ref);
  try {
    await place.put(ref, form.path, { signal: work.signal });
    // It is not this host's to remove again.
    await catalogue.forget(ref);
  } catch (error) {
    await catalogue.leave(ref);
    throw error;
  }
  return { ...parsed, name, sizeBytes: form.sizeBytes };
}

async function hasAgeHeader(file: StoredFile): Promise<boolean> {
  const beginning = Buffer.concat(await Array.fromAsync(file.read(0, ageVersionLine.length)));
  return beginning.toString("latin1") === ageVersionLine;
}
