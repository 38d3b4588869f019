/** What a user may keep in each storage that is a directory of this host: with archives that are there, and what is on its way. */
import { SvcError } from "../errors.ts";
import type { StorageList } from "./storages/storage-list.ts";

const listMs = 20_000;

export interface BackupQuotaOptions {
  storages: StorageList;
  /** 0 for as much as there is room for. */
  maxBytesPerUser: number;
}

export class BackupQuota {
  readonly #options: BackupQuotaOptions;
  /** By user and storage, while something is on its way there. */
  readonly #holdings = new Map<string, Holding>();

  constructor(options: BackupQuotaOptions) {
    this.#options = options;
  }

  /**
   * Room for one archive of a user, to be disposed of when it is in its storages or will not be.
   * @param uid undefined for whom nothing bounds
   * @throws SvcError `too_many` when no storage has any
   */
  async open(uid: number | undefined, storages: readonly string[]): Promise<BackupRoom> {
    const bounded =
      uid === undefined || this.#options.maxBytesPerUser === 0
        ? []
        : storages.filter((name) => this.#options.storages.find(name).location?.kind === "local");
    const room = new BackupRoom(
      bounded.map((storage) => [storage, this.#enter(uid ?? 0, storage)]),
      bounded.length === storages.length,
    );
    try {
      await room.take(0);
    } catch (error) {
      room[Symbol.dispose]();
      throw error;
    }
    return room;
  }

  #enter(uid: number, storage: string): Holding {
    const key = `${uid} ${storage}`;
    const holding = this.#holdings.get(key) ?? this.#holding(uid, storage, () => this.#holdings.delete(key));
    this.#holdings.set(key, holding);
    holding.rooms += 1;
    return holding;
  }

  #holding(uid: number, storage: string, onLeft: () => void): Holding {
    const { storages, maxBytesPerUser: maxBytes } = this.#options;
    const kept = async (): Promise<number> => {
      const there = await storages.open(storage).list(undefined, AbortSignal.timeout(listMs));
      return there.reduce((sum, { ownerUid, sizeBytes }) => sum + (ownerUid === uid ? sizeBytes : 0), 0);
    };
    const refusal = (keptBytes: number): SvcError => {
      const message =
        `uid ${uid} has ${keptBytes} bytes of backups in the storage "${storage}", and with what is on its way [limits] ` +
        `max_backup_bytes_per_user (${maxBytes}) is reached: remove some, keep fewer of them, or ask for a higher limit`;
      return new SvcError("too_many", message);
    };
    return new Holding({ maxBytes, kept, refusal, onLeft });
  }
}

interface HoldingOptions {
  maxBytes: number;
  kept: () => Promise<number>;
  refusal: (keptBytes: number) => SvcError;
  onLeft: () => void;
}

/** What one user has in one storage. */
class Holding {
  readonly #options: HoldingOptions;
  /** As it was last counted; undefined once that has changed. */
  #keptBytes: number | undefined;
  #comingBytes = 0;
  #changes = 0;
  rooms = 0;

  constructor(options: HoldingOptions) {
    this.#options = options;
  }

  /** @throws SvcError `too_many`, and the bytes count nevertheless */
  async add(bytes: number): Promise<void> {
    this.#comingBytes += bytes;
    if (this.#hasRoom()) return;
    // Some may have been removed meanwhile.
    await this.#count();
    if (!this.#hasRoom()) throw this.#options.refusal(this.#keptBytes ?? 0);
  }

  /** Those that came are kept now, or gone. */
  leave(bytes: number): void {
    this.#comingBytes -= bytes;
    this.#keptBytes = undefined;
    this.#changes += 1;
    this.rooms -= 1;
    if (this.rooms === 0) this.#options.onLeft();
  }

  async #count(): Promise<void> {
    let changes: number;
    do {
      changes = this.#changes;
      this.#keptBytes = await this.#options.kept();
      // What was put there since may be missing.
    } while (changes !== this.#changes);
  }

  #hasRoom(): boolean {
    return this.#keptBytes !== undefined && this.#keptBytes + this.#comingBytes <= this.#options.maxBytes;
  }
}

/** For one archive, in each of its storages. */
export class BackupRoom implements Disposable {
  readonly #holdings: Map<string, Holding>;
  readonly #isBoundedAll: boolean;
  readonly #refusals = new Map<string, Error>();
  #bytes = 0;

  /** @param isBoundedAll whether there is no storage beside these */
  constructor(holdings: Iterable<[storage: string, holding: Holding]>, isBoundedAll: boolean) {
    this.#holdings = new Map(holdings);
    this.#isBoundedAll = isBoundedAll;
  }

  /** So many bytes more. @throws SvcError `too_many` when no storage takes them any more */
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
    if (first !== undefined && this.#isBoundedAll && this.#refusals.size === this.#holdings.size) throw first;
  }

  /** @throws SvcError `too_many` when this storage did not take all of it */
  requireTaken(storage: string): void {
    const refusal = this.#refusals.get(storage);
    if (refusal !== undefined) throw refusal;
  }

  [Symbol.dispose](): void {
    for (const [storage, holding] of this.#holdings) {
      if (!this.#refusals.has(storage)) holding.leave(this.#bytes);
    }
  }
}
