/** Opens stored archives for callers: regular users open only archives of their own apps. */
import type { AppCaller } from "../../apps/records/app-registry.ts";
import { notFound, SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { Age } from "../encryption/age.ts";
import { openEncrypted } from "../encryption/encrypted-file.ts";
import type { StoredFile } from "../storages/storage.ts";
import type { StorageList } from "../storages/storage-list.ts";
import { Archive } from "./archive.ts";
import { type ArchiveName, createdAtMsOf, hostOf, parseArchiveName } from "./archive-name.ts";
import type { ArchiveCatalog, ArchiveRef } from "./archive-catalog.ts";

/** An archive with the content of an age identity file, or empty. The identity is never stored or shown. */
export interface OpenableRef extends ArchiveRef {
  identity: string;
}

export interface ArchiveAccessOptions {
  storages: StorageList;
  catalog: Pick<ArchiveCatalog, "storedDigest">;
  /** See `storeIdOf`. */
  storeId: string;
  age: Age;
  userHelpers: UserHelpers;
  userName: (uid: number) => Promise<string>;
}

export class ArchiveAccess {
  readonly #options: ArchiveAccessOptions;

  constructor(options: ArchiveAccessOptions) {
    this.#options = options;
  }

  /**
   * The archive's footer determines its owner. Its name must agree: a storage must not return an older archive, either.
   * An archive that this store created must be unchanged.
   */
  async open(ref: OpenableRef, caller: AppCaller, signal?: AbortSignal): Promise<Archive> {
    const named = requireVisible(ref, caller);
    const stored = await this.#options.storages.open(ref.storage).open(ref, signal);
    const file = named.isEncrypted
      ? await openEncrypted(stored, { ...ref, uid: caller.uid }, this.#options.age, signal)
      : stored;
    const archive = await Archive.open(file, signal, stored.sizeBytes);
    const { app, host, created_at } = archive.footer;
    const { id, owner_uid } = app;
    const isNamed =
      id === ref.appId &&
      owner_uid === named.ownerUid &&
      hostOf(host) === named.host &&
      createdAtMsOf(created_at) === named.createdAtMs;
    const isOthers =
      !caller.root &&
      !this.#options.storages.isBesideStore(ref.storage) &&
      (await this.#otherName(archive)) !== undefined;
    const isReplaced = (this.#options.catalog.storedDigest(ref) ?? archive.digest) !== archive.digest;
    if (isNamed && !isOthers && !isReplaced) return archive;
    await archive[Symbol.asyncDispose]();
    if (isNamed && !isOthers) throw replaced();
    if (!caller.root) throw notFound("backup", ref.name);
    throw new SvcError(
      "archive_damaged",
      `the archive belongs to app "${id}" of uid ${owner_uid}, created ${created_at} by node ${hostOf(host)}, which differs from its name`,
    );
  }

  /**
   * The name of this host's user with the uid of the archive's owner, if it differs: the uid may belong to
   * another user here.
   * @returns undefined if the names are equal or one is unknown
   */
  async #otherName({ footer }: Archive): Promise<string | undefined> {
    const { owner_uid: uid, owner } = footer.app;
    if (uid === 0 || owner === "" || footer.host === this.#options.storeId) return undefined;
    const name = await this.#options.userName(uid);
    return name === "" || name === owner ? undefined : name;
  }

  /** Prevents root from giving files to another user who has the same uid on this host. */
  async requireSameOwner(archive: Archive, caller: AppCaller): Promise<void> {
    const { owner_uid: uid, owner } = archive.footer.app;
    const name = uid === caller.uid ? undefined : await this.#otherName(archive);
    if (name === undefined) return;
    const message =
      `cannot restore the backup: its owner is "${owner}" (uid ${uid}) on another host, and uid ${uid} is "${name}" here; ` +
      `use a host where "${owner}" has this uid`;
    throw new SvcError("not_possible", message);
  }

  /** Only root may remove an unreadable archive. */
  async requireDeletable(ref: ArchiveRef, caller: AppCaller, signal?: AbortSignal): Promise<void> {
    const { isEncrypted, host } = requireVisible(ref, caller);
    const isOfHere =
      host === hostOf(this.#options.storeId) || this.#options.storages.isBesideStore(ref.storage);
    if (isEncrypted && !isOfHere && !caller.root) {
      // The name has only the uid on the other host, which may belong to another user here.
      throw new SvcError(
        "root_required",
        "the encrypted backup is from another host: only root may delete it",
      );
    }
    await using _file = caller.root
      ? await this.#options.storages.open(ref.storage).open(ref, signal)
      : await this.openFile(ref, caller, signal);
  }

  /**
   * Opens a stored file. For an encrypted archive the name determines the owner: the content is protected by
   * the identity.
   */
  async openFile(ref: ArchiveRef, caller: AppCaller, signal?: AbortSignal): Promise<StoredFile> {
    if (!requireVisible(ref, caller).isEncrypted) {
      await using _archive = await this.open({ ...ref, identity: "" }, caller, signal);
    }
    return this.#options.storages.open(ref.storage).open(ref, signal);
  }

  /** The user who reads an archive: the owner of its files if that user exists here, else the caller. */
  async readerOf({ footer }: Archive, caller: AppCaller): Promise<UserHelper> {
    const { userHelpers } = this.#options;
    try {
      return await userHelpers.as(footer.app.run_uid);
    } catch (error) {
      if (!(error instanceof SvcError)) throw error;
      return userHelpers.as(caller.uid);
    }
  }
}

function replaced(): SvcError {
  return new SvcError(
    "archive_damaged",
    "the archive was replaced: it differs from the one that this node stored under its name",
  );
}

/** @throws SvcError `not_possible` for a differential archive */
export function requireFullArchive({ footer }: Archive): void {
  if (footer.since === undefined) return;
  const message = `the archive has only the changes since ${footer.since}: restore it completely, into the app that was restored from ${footer.since}`;
  throw new SvcError("not_possible", message);
}

/** @throws SvcError `not_found` for a name of another app or user */
export function requireVisible(ref: ArchiveRef, caller: AppCaller): ArchiveName {
  const named = parseArchiveName(ref.name);
  const isVisible = caller.root || named?.ownerUid === caller.uid;
  if (named?.appId !== ref.appId || !isVisible) throw notFound("backup", ref.name);
  return named;
}
