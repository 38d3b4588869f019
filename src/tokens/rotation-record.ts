/**
 * What the database keeps of a rotation: digests and an instant, never a token. The file of the primary token decides
 * what counts: a window belongs to the primary token that it names, and one whose primary is not in the file is void.
 * So the rename of that file is the one switch of a rotation, and a crash on either side of it leaves one whole state.
 */
import { SvcError } from "../errors.ts";
import type { Log } from "../lib/log.ts";
import { isInstant, isName, isText, listOf, objectOf, readChecked } from "../store/row-document.ts";
import { RowReader, type RowKind } from "../store/row-reader.ts";
import { StoreConflict, type Store } from "../store/store.ts";

/** The grace of one rotation. Digests are SHA-256 in hex. */
export interface RotationWindow {
  /** Of the primary token that the rotation made. */
  readonly primary: string;
  /** Of the primary token that it replaced. */
  readonly replaced: string;
  /** When the replaced one ends, unix milliseconds. */
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
  remedy: () => "svc token rotate begins anew",
  read: ({ value }) => readChecked(value, isWindows, "it is no list of windows"),
};

export class RotationRecord {
  readonly #store: Store;
  readonly #reader: RowReader<WindowsRow, RotationWindow[]>;
  /** What this process last read or wrote. */
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

  /** The windows that are recorded now: none where the record cannot be read, so that no replaced token stays good by it. */
  load(): RotationWindow[] {
    this.#text = this.#read();
    return this.#reader.read({ key, value: this.#text }) ?? [];
  }

  /**
   * Durable when it resolves.
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
