/**
 * The storages: the local one, and those that root has added. Only root may see and change their locations.
 */
import { SvcError, invalidField, notFound } from "../../errors.ts";
import { isAmazon } from "../../lib/amazon.ts";
import { BytePacer } from "../../lib/byte-streams.ts";
import type { Log } from "../../lib/log.ts";
import { secretMask } from "../../lib/secret-mask.ts";
import {
  damaged,
  isFlag,
  isInstant,
  isName,
  isText,
  isInteger,
  listOf,
  maybe,
  objectOf,
  oneOf,
  readDocument,
  type Fields,
} from "../../store/row-document.ts";
import { RowReader, type RowKind } from "../../store/row-reader.ts";
import type { Store } from "../../store/store.ts";
import type { Age } from "../encryption/age.ts";
import { LocalStorage } from "./local-storage.ts";
import { S3Storage } from "./s3-storage.ts";
import type { S3Thread } from "./s3-thread.ts";
import type { Storage } from "./storage.ts";

export interface S3Location {
  kind: "s3";
  endpoint: string;
  region: string;
  bucket: string;
  accessKey: string;
  secretKey: string;
  prefix: string;
  pathStyle?: boolean;
  /** PEM; empty for none. */
  ca: string;
}

export interface LocalLocation {
  kind: "local";
  dir: string;
}

export interface StorageEntry {
  name: string;
  /** Empty for the operator. */
  managedBy: string;
  /** Undefined if the row cannot be read; the recipients are then unknown, too. */
  location: LocalLocation | S3Location | undefined;
  maxBytesPerSec?: number;
  /** Archives are encrypted for these age public keys; empty: not encrypted. */
  recipients: readonly string[];
}

/** The name of the storage that always exists. */
export const localName = "local";

interface StorageRow {
  name: string;
  managed_by: string;
  location: string;
}

type StorageDocument = Pick<StorageEntry, "maxBytesPerSec"> & {
  location: LocalLocation | S3Location;
  /** Absent in older rows. */
  recipients?: readonly string[];
};

const isLocal = objectOf<LocalLocation>({ kind: oneOf(["local"]), dir: isText });
const isS3 = objectOf<S3Location>({
  kind: oneOf(["s3"]),
  endpoint: (value) => isText(value) && URL.canParse(value),
  ...{ region: isText, bucket: isText },
  ...{ accessKey: isText, secretKey: isText, prefix: isText, pathStyle: maybe(isFlag), ca: maybe(isText) },
});

const documentFields: Fields<StorageDocument> = {
  location: (value) => isLocal(value) || isS3(value),
  maxBytesPerSec: maybe(isInteger),
  recipients: maybe(listOf(isText)),
};

export const storageRows: RowKind<StorageRow, StorageEntry> = {
  table: "backup_storages",
  columns: { name: isName, managed_by: isText, location: isText, updated_at: isInstant },
  nameOf: ({ name }) => `storage "${name}"`,
  remedy: ({ name }) =>
    `svc backup storage remove ${name} removes the entry and keeps its archives; then add it again`,
  read: ({ name, managed_by, location }) => {
    const stored = readDocument<StorageDocument>(location, documentFields);
    return { ...stored, name, managedBy: managed_by, recipients: stored.recipients ?? [] };
  },
};

/** Why a storage cannot be used, with the remedy. */
export const storageProblem = `${damaged}, including its recipients: add it again completely, or remove it`;

export interface StorageListOptions {
  store: Store;
  /** Directory of the local storage. */
  dir: string;
  selfUid: number;
  s3: S3Thread;
  age: Pick<Age, "requireRecipients">;
  now: () => number;
  log?: Pick<Log, "error">;
}

/** Milliseconds without data before a connection to a storage counts as broken. */
const silenceMs = 30_000;

export class StorageList {
  readonly #options: StorageListOptions;
  readonly #reader: RowReader<StorageRow, StorageEntry>;
  /** By storage: concurrent transfers share its rate limit. */
  readonly #pacers = new Map<string, { maxBytesPerSec: number; pacer: BytePacer }>();

  constructor(options: StorageListOptions) {
    this.#options = options;
    this.#reader = new RowReader(storageRows, options.log);
  }

  /** The local storage first, the others by name. */
  all(): StorageEntry[] {
    const rows = this.#options.store.all<StorageRow>("SELECT * FROM backup_storages ORDER BY name");
    const stored = rows.map((row) => this.#reader.read(row) ?? placeholderOf(row));
    const local = stored.find(({ name }) => name === localName) ?? this.#local();
    return [local, ...stored.filter(({ name }) => name !== localName)];
  }

  /** @throws SvcError `not_found` */
  find(name: string): StorageEntry {
    const entry = this.all().find((each) => each.name === name);
    if (entry === undefined) throw notFound("storage", name);
    return entry;
  }

  /** Whether it is the directory next to the database, whose archives were created here or uploaded. */
  isBesideStore(name: string): boolean {
    const { location } = this.find(name);
    return location?.kind === "local" && location.dir === this.#options.dir;
  }

  /** @throws SvcError `not_found`, `store_damaged` */
  open(name: string): Storage {
    const { location, maxBytesPerSec } = this.find(name);
    if (location === undefined) throw new SvcError("store_damaged", `storage "${name}": ${storageProblem}`);
    if (location.kind === "local") {
      const { dir, selfUid } = this.#options;
      const pacer = this.#pacerOf(name, maxBytesPerSec);
      return new LocalStorage(name, location.dir, selfUid, { pacer, isBesideStore: location.dir === dir });
    }
    const { kind: _, prefix, pathStyle = !isAmazon(location.endpoint), ...place } = location;
    return new S3Storage(this.#options.s3, { ...place, pathStyle, maxBytesPerSec, silenceMs }, prefix);
  }

  /**
   * Adds or replaces a storage.
   * @throws SvcError `not_possible` for a storage of another manager, `invalid_request`
   */
  async upsert(entry: StorageEntry): Promise<StorageEntry> {
    const before = this.all().find(({ name }) => name === entry.name);
    if (before !== undefined && before.managedBy !== entry.managedBy) throw managed(before);
    if (entry.location?.kind === "local" && entry.location.dir === "/") {
      throw invalidField("local.dir", "must not be /; use a directory that holds only archives");
    }
    if (entry.location?.kind === "s3") checkEndpoint(entry.location.endpoint);
    await this.#options.age.requireRecipients(entry.recipients);
    const { managedBy: _, name: __, ...document } = retainSecrets(entry, before);
    await this.#options.store.write([
      {
        sql: `INSERT INTO backup_storages (name, managed_by, location, updated_at) VALUES (?, ?, ?, ?)
              ON CONFLICT (name) DO UPDATE SET location = excluded.location, updated_at = excluded.updated_at`,
        params: [entry.name, entry.managedBy, JSON.stringify(document), this.#options.now()],
      },
    ]);
    return this.find(entry.name);
  }

  /**
   * @param managedBy if not empty: only if this manager manages it.
   * @throws SvcError `not_found`, `protected`
   */
  async remove(name: string, managedBy: string): Promise<void> {
    const entry = this.find(name);
    const isStored =
      this.#options.store.get("SELECT 1 FROM backup_storages WHERE name = ?", name) !== undefined;
    if (!isStored) throw new SvcError("not_possible", `the storage "${name}" cannot be removed`);
    if (managedBy !== "" && entry.managedBy !== managedBy) throw managed(entry);
    await this.#options.store.write([
      { sql: "DELETE FROM backup_storages WHERE name = ?", params: [name] },
      // A later storage with the same name does not have these archives.
      { sql: "DELETE FROM backup_archives WHERE storage = ?", params: [name] },
    ]);
  }

  #pacerOf(name: string, maxBytesPerSec: number | undefined): BytePacer | undefined {
    if (maxBytesPerSec === undefined) return undefined;
    const known = this.#pacers.get(name);
    if (known?.maxBytesPerSec === maxBytesPerSec) return known.pacer;
    const pacer = new BytePacer(maxBytesPerSec);
    this.#pacers.set(name, { maxBytesPerSec, pacer });
    return pacer;
  }

  #local(): StorageEntry {
    const location = { kind: "local", dir: this.#options.dir } as const;
    return { name: localName, managedBy: "", location, recipients: [] };
  }
}

/** `"***"` keeps the stored secret, if the server stays the same. */
function retainSecrets(entry: StorageEntry, before: StorageEntry | undefined): StorageEntry {
  const { location } = entry;
  if (location?.kind !== "s3") return entry;
  const stored = before?.location?.kind === "s3" ? before.location : undefined;
  const unmasked = (field: "accessKey" | "secretKey", name: string): string => {
    if (location[field] !== secretMask) return location[field];
    if (stored?.endpoint === location.endpoint) return stored[field];
    throw invalidField(name, `"${secretMask}" keeps the stored value, but none is stored for this endpoint`);
  };
  return {
    ...entry,
    location: {
      ...location,
      accessKey: unmasked("accessKey", "s3.access_key"),
      secretKey: unmasked("secretKey", "s3.secret_key"),
    },
  };
}

function placeholderOf({ name, managed_by }: StorageRow): StorageEntry {
  return { name, managedBy: managed_by, location: undefined, recipients: [] };
}

/** Credentials in a URL would be shown with it. */
function checkEndpoint(endpoint: string): void {
  const url = URL.parse(endpoint);
  if (url === null) throw invalidField("s3.endpoint", "must be an http or https URL");
  const isPlain = url.username === "" && url.password === "" && url.search === "" && url.hash === "";
  if (!isPlain) throw invalidField("s3.endpoint", "must have neither credentials nor a query");
}

function managed({ name, managedBy }: StorageEntry) {
  const by = managedBy === "" ? "the operator" : `"${managedBy}"`;
  return new SvcError("not_possible", `the storage "${name}" is managed by ${by}`);
}
