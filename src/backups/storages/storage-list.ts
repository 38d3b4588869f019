/** The storages: the one of this host, and those that its people named. Their locations are root's to write and to see. */
import { SvcError, invalidField, notFound } from "../../errors.ts";
import { isAmazon } from "../../lib/amazon.ts";
import { BytePacer } from "../../lib/byte-pacer.ts";
import type { Log } from "../../lib/log.ts";
import { secretMask } from "../../lib/secret-mask.ts";
import {
  damaged,
  isFlag,
  isInstant,
  isName,
  isText,
  isWhole,
  listOf,
  maybe,
  objectOf,
  oneOf,
  readDocument,
  type Fields,
} from "../../store/row-document.ts";
import { RowReader, type RowKind } from "../../store/row-reader.ts";
import type { Store } from "../../store/store.ts";
import type { Age } from "../age/age.ts";
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
  /** Undefined where the row cannot be read; for whom it encrypts is not known either then. */
  location: LocalLocation | S3Location | undefined;
  maxBytesPerSec?: number;
  /** What goes there is encrypted for them; none: it is not. */
  recipients: readonly string[];
}

/** The name of the storage that is always there. */
export const localName = "local";

interface StorageRow {
  name: string;
  managed_by: string;
  location: string;
}

type StorageDocument = Pick<StorageEntry, "maxBytesPerSec"> & {
  location: LocalLocation | S3Location;
  /** Absent in rows of before. */
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
  maxBytesPerSec: maybe(isWhole),
  recipients: maybe(listOf(isText)),
};

export const storageRows: RowKind<StorageRow, StorageEntry> = {
  table: "backup_storages",
  columns: { name: isName, managed_by: isText, location: isText, updated_at: isInstant },
  nameOf: ({ name }) => `storage "${name}"`,
  remedy: ({ name }) =>
    `svc backup storage remove ${name} forgets it, but for its archives; then add it again`,
  read: ({ name, managed_by, location }) => {
    const stored = readDocument<StorageDocument>(location, documentFields);
    return { ...stored, name, managedBy: managed_by, recipients: stored.recipients ?? [] };
  },
};

/** Why a storage cannot be used, and what its people can do. */
export const storageProblem = `${damaged}, also for whom it encrypts: write it again with all that it needs, or remove it`;

export interface StorageListOptions {
  store: Store;
  /** Where the archives of the storage lie that is always there. */
  dir: string;
  selfUid: number;
  s3: S3Thread;
  age: Pick<Age, "requireRecipients">;
  now: () => number;
  log?: Pick<Log, "error">;
}

/** How long a connection to a storage may say nothing. */
const silenceMs = 30_000;

export class StorageList {
  readonly #options: StorageListOptions;
  readonly #reader: RowReader<StorageRow, StorageEntry>;
  /** By storage: what goes on at once shares its rate. */
  readonly #pacers = new Map<string, { maxBytesPerSec: number; pacer: BytePacer }>();

  constructor(options: StorageListOptions) {
    this.#options = options;
    this.#reader = new RowReader(storageRows, options.log);
  }

  /** The local one first, the others by name. */
  all(): StorageEntry[] {
    const rows = this.#options.store.all<StorageRow>("SELECT * FROM backup_storages ORDER BY name");
    const stored = rows.map((row) => this.#reader.read(row) ?? standInOf(row));
    const local = stored.find(({ name }) => name === localName) ?? this.#local();
    return [local, ...stored.filter(({ name }) => name !== localName)];
  }

  /** @throws SvcError `not_found` */
  find(name: string): StorageEntry {
    const entry = this.all().find((each) => each.name === name);
    if (entry === undefined) throw notFound("storage", name);
    return entry;
  }

  /** @throws SvcError `not_found`, `store_damaged` */
  open(name: string): Storage {
    const { location, maxBytesPerSec } = this.find(name);
    if (location === undefined) throw new SvcError("store_damaged", `storage "${name}": ${storageProblem}`);
    if (location.kind === "local") {
      return new LocalStorage(location.dir, this.#options.selfUid, this.#pacerOf(name, maxBytesPerSec));
    }
    const { kind: _, prefix, pathStyle = !isAmazon(location.endpoint), ...place } = location;
    return new S3Storage(this.#options.s3, { ...place, pathStyle, maxBytesPerSec, silenceMs }, prefix);
  }

  /**
   * Makes or replaces one.
   * @throws SvcError `not_possible` for one that somebody else manages, `invalid_request`
   */
  async upsert(entry: StorageEntry): Promise<StorageEntry> {
    const before = this.all().find(({ name }) => name === entry.name);
    if (before !== undefined && before.managedBy !== entry.managedBy) throw managed(before);
    if (entry.location?.kind === "local" && entry.location.dir === "/") {
      throw invalidField("local.dir", "must be a directory for archives alone");
    }
    if (entry.location?.kind === "s3") checkEndpoint(entry.location.endpoint);
    await this.#options.age.requireRecipients(entry.recipients);
    const { managedBy: _, name: __, ...document } = keepSecrets(entry, before);
    await this.#options.store.write([
      {
        sql: `INSERT INTO backup_storages (name, managed_by, location, updated_at) VALUES (?, ?, ?, ?)
              ON CONFLICT (name) DO UPDATE SET location = excluded.location, updated_at = excluded.updated_at`,
        params: [entry.name, entry.managedBy, JSON.stringify(document), this.#options.now()],
      },
    ]);
    return this.find(entry.name);
  }

  /** @param managedBy when not empty: only if it is managed by them. @throws SvcError `not_found`, `protected` */
  async remove(name: string, managedBy: string): Promise<void> {
    const entry = this.find(name);
    const isStored =
      this.#options.store.get("SELECT 1 FROM backup_storages WHERE name = ?", name) !== undefined;
    if (!isStored) throw new SvcError("not_possible", `the storage "${name}" is always there`);
    if (managedBy !== "" && entry.managedBy !== managedBy) throw managed(entry);
    await this.#options.store.write([
      { sql: "DELETE FROM backup_storages WHERE name = ?", params: [name] },
      // Another place that gets the name later has none of them.
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

/** `"***"` stands for what is stored, as long as it goes to the same server. */
function keepSecrets(entry: StorageEntry, before: StorageEntry | undefined): StorageEntry {
  const { location } = entry;
  if (location?.kind !== "s3") return entry;
  const stored = before?.location?.kind === "s3" ? before.location : undefined;
  const kept = (field: "accessKey" | "secretKey", name: string): string => {
    if (location[field] !== secretMask) return location[field];
    if (stored?.endpoint === location.endpoint) return stored[field];
    throw invalidField(
      name,
      `"${secretMask}" stands for what is stored, and nothing is stored for this endpoint`,
    );
  };
  return {
    ...entry,
    location: {
      ...location,
      accessKey: kept("accessKey", "s3.access_key"),
      secretKey: kept("secretKey", "s3.secret_key"),
    },
  };
}

function standInOf({ name, managed_by }: StorageRow): StorageEntry {
  return { name, managedBy: managed_by, location: undefined, recipients: [] };
}

/** Credentials in it would show wherever it does. */
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
