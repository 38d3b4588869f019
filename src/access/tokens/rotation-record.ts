/**
 * The record of a rotation in the database: digests and an instant, never a token. The file of the primary token decides: a window
 * belongs to the primary token that it names, and a window whose primary token is not in the file is void. The rename of that file
 * is therefore the only switch of a rotation, and a crash before or after it leaves a consistent state.
 */
import { SvcError } from "../../errors.ts";
import type { Log } from "../../lib/log.ts";
import { isInstant, isName, isText, listOf, objectOf, readChecked } from "../../store/row-document.ts";
import { RowReader, type RowKind } from "../../store/row-reader.ts";
import { StoreConflict, type Store } from "../../store/store.ts";

/** The grace period of one rotation. Digests are SHA-256 in hex. */
export interface RotationWindow {
  /** Digest of the new primary token. */
  readonly primary: string;
  /** Digest of the replaced primary token. */
  readonly replaced: string;
  /** When the replaced token ends, unix milliseconds. */
  readonly untilMs: number;
}

interface WindowsRow {
  key: string;
  value: string;
}

const isWindows = listOf(
  objectOf<RotationWindow>({ primary: isDigest, replaced: isDigest, untilMs: isInstant }),
);

const key = "token_rotation";
const noWindows = "[]";

export const windowRows: RowKind<WindowsRow, RotationWindow[]> = {
  table: "meta",
  where: `key = '${key}'`,
  columns: { key: isName, value: isText },
  nameOf: () => "the rotation of the primary token",
  remedy: () => "svc token rotate starts again",
  read: ({ value }) => readChecked(value, isWindows, "it is not a list of windows"),
};

export class RotationRecord {
  readonly #store: Store;
  readonly #reader: RowReader<WindowsRow, RotationWindow[]>;
  /** The record that this process last read or wrote. */
  #text: string;

  constructor(store: Store, log?: Pick<Log, "error">) {
    this.#store = store;
    this.#reader = new RowReader(windowRows, log);
    this.#text = this.#read();
  }

  /** Whether another process has written since. */
  get isStale(): boolean {
    return this.#read() !== this.#text;
  }

  /** The recorded windows; empty if the record cannot be read, so that no replaced token stays valid. */
  load(): RotationWindow[] {
    this.#text = this.#read();
    return this.#reader.read({ key, value: this.#text }) ?? [];
  }

  /**
   * The record is on disk when the promise resolves.
   * @throws SvcError `aborted` when another process has written since {@link load}, and as `Store.write`
   */
  async save(windows: readonly RotationWindow[]): Promise<void> {
    const text = JSON.stringify(windows);
    if (text === this.#text) return;
    const sql =
      "INSERT INTO meta (key, value) VALUES (?, ?) " +
      "ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value = ?";
    try {
      await this.#store.write([{ sql, params: [key, text, this.#text], changes: 1 }], { essential: true });
    } catch (error) {
      if (!(error instanceof StoreConflict)) throw error;
      throw new SvcError("conflict", "another process is rotating the token; try again", {
        cause: error,
      });
    }
    this.#text = text;
  }

  #read(): string {
    return (
      this.#store.get<{ value: string }>("SELECT value FROM meta WHERE key = ?", key)?.value ?? noWindows
    );
  }
}

function isDigest(value: unknown): boolean {
  return isText(value) && /^[0-9a-f]{64}$/.test(value);
}
