/**
 * Bounds the archives that a user has in each storage. For a directory of this host, archives in transfer count as they arrive. A
 * bucket is listed before an archive is sent there; until then the archives in transfer, which are on this host's disk, have the
 * same bound. If a bucket cannot be listed, only this second bound applies.
 */
import { SvcError } from "../../errors.ts";
import type { StorageList } from "../storages/storage-list.ts";

const listMs = 20_000;
/** How long a bucket's listing is cached. A user is rejected only after a new listing. */
const knownMs = 60_000;
/** Maximum archives of a user in one storage. */
const maxArchives = 10_000;

export interface BackupQuotaOptions {
  storages: StorageList;
  /** 0: unlimited. */
  maxBytesPerUser: number;
  now: () => number;
}

/** A user's archives in one storage. */
interface Stored {
  readonly bytes: number;
  readonly archives: number;
}

interface BucketContents {
  readonly listedAtMs: number;
  readonly byUser: Map<number, Stored>;
}

const nothing: Stored = { bytes: 0, archives: 0 };

export class BackupQuota {
  readonly #options: BackupQuotaOptions;
  /** By user and storage, while an archive is in transfer. */
  readonly #holdings = new Map<string, Holding>();
  /** By storage. */
  readonly #buckets = new Map<string, BucketContents>();

  constructor(options: BackupQuotaOptions) {
    this.#options = options;
  }

  /**
   * Reserves space for one archive of a user; dispose of it when the transfer has ended.
   * @param uid undefined: unlimited
   * @throws SvcError `too_many` if no storage has space
   */
  async open(uid: number | undefined, storages: readonly string[]): Promise<BackupSpace> {
    const space = new BackupSpace(
      uid === undefined ? [] : storages.map((storage) => [storage, this.#enter(uid, storage)]),
    );
    try {
      await space.take(0);
    } catch (error) {
      space[Symbol.dispose]();
      throw error;
    }
    return space;
  }

  #enter(uid: number, storage: string): Holding {
    const key = `${uid} ${storage}`;
    const holding = this.#holdings.get(key) ?? this.#holding(uid, storage, () => this.#holdings.delete(key));
    this.#holdings.set(key, holding);
    holding.reservations += 1;
    return holding;
  }

  #holding(uid: number, storage: string, onLeft: () => void): Holding {
    const { storages, maxBytesPerUser } = this.#options;
    const isHere = storages.find(storage).location?.kind === "local";
    const maxBytes = maxBytesPerUser === 0 ? Infinity : maxBytesPerUser;
    const location = `in the storage "${storage}"`;
    const rejection = ({ bytes, archives }: Stored): SvcError => {
      const way = "remove some, keep fewer of them, or ask for a higher limit";
      const message =
        archives >= maxArchives
          ? `uid ${uid} has ${archives} backups ${location}, and may have ${maxArchives} there: remove some, or keep fewer of them`
          : `uid ${uid} has ${bytes} bytes of backups ${location}, and with what is on its way [limits] ` +
            `max_backup_bytes_per_user (${maxBytes}) is reached: ${way}`;
      return new SvcError("too_many", message);
    };
    if (isHere) {
      const stored = async (): Promise<Stored> => (await this.#list(storage)).get(uid) ?? nothing;
      return new Holding({ maxBytes, stored, rejection, onLeft });
    }
    const sending = (): SvcError => {
      const message =
        `the backups of uid ${uid} on their way to the storage "${storage}" are larger than [limits] ` +
        `max_backup_bytes_per_user (${maxBytes}): wait for others to end, or ask for a higher limit`;
      return new SvcError("too_many", message);
    };
    const storedThere = (isNew: boolean): Promise<Stored> => this.#storedInBucket(uid, storage, isNew);
    const onTransferEnd = (bytes: number): void => this.#recordStored(uid, storage, bytes);
    const bucket = { storedThere, rejectionThere: rejection, onTransferEnd };
    return new Holding({
      maxBytes,
      stored: () => Promise.resolve(nothing),
      rejection: sending,
      onLeft,
      bucket,
    });
  }

  async #list(storage: string): Promise<Map<number, Stored>> {
    const listed = await this.#options.storages.open(storage).list(undefined, AbortSignal.timeout(listMs));
    const byUser = new Map<number, Stored>();
    for (const { ownerUid, sizeBytes } of listed) {
      const { bytes, archives } = byUser.get(ownerUid) ?? nothing;
      byUser.set(ownerUid, { bytes: bytes + sizeBytes, archives: archives + 1 });
    }
    return byUser;
  }

  async #storedInBucket(uid: number, storage: string, isNew: boolean): Promise<Stored> {
    const nowMs = this.#options.now();
    const known = this.#buckets.get(storage);
    if (!isNew && known !== undefined && nowMs - known.listedAtMs < knownMs)
      return known.byUser.get(uid) ?? nothing;
    try {
      const byUser = await this.#list(storage);
      this.#buckets.set(storage, { listedAtMs: nowMs, byUser });
      return byUser.get(uid) ?? nothing;
    } catch {
      // A bucket may only take archives; the push says whether it can be reached.
      return nothing;
    }
  }

  /** Also counts a failed transfer, because the bucket is listed again before a user is rejected. */
  #recordStored(uid: number, storage: string, bytes: number): void {
    const known = this.#buckets.get(storage)?.byUser;
    const before = known?.get(uid) ?? nothing;
    known?.set(uid, { bytes: before.bytes + bytes, archives: before.archives + 1 });
  }
}

interface HoldingOptions {
  maxBytes: number;
  stored: () => Promise<Stored>;
  rejection: (stored: Stored) => SvcError;
  onLeft: () => void;
  /** Absent for a directory of this host, whose contents are `stored`. */
  bucket?: {
    /** @param isNew whether to list the bucket again */
    storedThere: (isNew: boolean) => Promise<Stored>;
    rejectionThere: (stored: Stored) => SvcError;
    onTransferEnd: (bytes: number) => void;
  };
}

/** A user's archives in one storage, including archives in transfer. */
class Holding {
  readonly #options: HoldingOptions;
  /** The last count; undefined after a change. */
  #stored: Stored | undefined;
  #reservedBytes = 0;
  #changes = 0;
  reservations = 0;

  constructor(options: HoldingOptions) {
    this.#options = options;
  }

  /** @throws SvcError `too_many`; the bytes count even then */
  async add(bytes: number): Promise<void> {
    this.#reservedBytes += bytes;
    if (this.#hasSpace()) return;
    // Archives may have been removed in the meantime.
    await this.#count();
    if (!this.#hasSpace()) throw this.#options.rejection(this.#stored ?? nothing);
  }

  /** Checks the bound including the bucket's contents. @throws SvcError `too_many` */
  async requireSpaceInBucket(): Promise<void> {
    const { bucket } = this.#options;
    if (bucket === undefined || this.#fits(await bucket.storedThere(false))) return;
    const stored = await bucket.storedThere(true);
    if (!this.#fits(stored)) throw bucket.rejectionThere(stored);
  }

  /** Ends a transfer, successful or not. */
  leave(bytes: number): void {
    this.#options.bucket?.onTransferEnd(bytes);
    this.#reservedBytes -= bytes;
    this.#stored = undefined;
    this.#changes += 1;
    this.reservations -= 1;
    if (this.reservations === 0) this.#options.onLeft();
  }

  async #count(): Promise<void> {
    let changes: number;
    do {
      changes = this.#changes;
      this.#stored = await this.#options.stored();
      // The list may lack archives that arrived during the listing.
    } while (changes !== this.#changes);
  }

  #hasSpace(): boolean {
    return this.#stored !== undefined && this.#fits(this.#stored);
  }

  #fits({ bytes, archives }: Stored): boolean {
    return (
      bytes + this.#reservedBytes <= this.#options.maxBytes && archives + this.reservations <= maxArchives
    );
  }
}

/** The reservation for one archive in all of its storages. */
export class BackupSpace implements Disposable {
  readonly #holdings: Map<string, Holding>;
  readonly #refusals = new Map<string, Error>();
  #bytes = 0;

  constructor(holdings: Iterable<[storage: string, holding: Holding]>) {
    this.#holdings = new Map(holdings);
  }

  /** Adds bytes. @throws SvcError `too_many` if no storage has space for them */
  async take(bytes: number): Promise<void> {
    this.#bytes += bytes;
    for (const [storage, holding] of this.#holdings) {
      if (this.#refusals.has(storage)) continue;
      try {
        await holding.add(bytes);
      } catch (error) {
        holding.leave(this.#bytes);
        this.#refusals.set(storage, error as Error);
      }
    }
    const [first] = this.#refusals.values();
    if (first !== undefined && this.#refusals.size === this.#holdings.size) throw first;
  }

  /** Call before the transfer to a storage. @throws SvcError `too_many` if the storage has no space for the archive */
  async requireTaken(storage: string): Promise<void> {
    const rejection = this.#refusals.get(storage);
    if (rejection !== undefined) throw rejection;
    await this.#holdings.get(storage)?.requireSpaceInBucket();
  }

  [Symbol.dispose](): void {
    for (const [storage, holding] of this.#holdings) {
      if (!this.#refusals.has(storage)) holding.leave(this.#bytes);
    }
  }
}
