/**
 * Credentials for private git hosts and registries. A credential is used only for apps of its owner. Its secret is in the store,
 * which only the daemon can read, and is never returned.
 */
import { invalidField, notFound, SvcError } from "../errors.ts";
import { CredentialKinds, type CredentialKind } from "../../gen/svc/v1/values.ts";
import type { Log } from "../lib/log.ts";
import { secretMask } from "../lib/secret-mask.ts";
import { damaged, isInstant, isName, isText, isUid, oneOf } from "../store/row-document.ts";
import { RowReader, type RowKind } from "../store/row-reader.ts";
import { StoreConflict, type Statement, type Store } from "../store/store.ts";

/** The part of a user context that decides about credentials. */
export interface CredentialCaller {
  readonly uid: number;
  /** True: may list and remove the credentials of all users. */
  readonly root: boolean;
  /** Owner of what is created. */
  readonly ownerUid: number;
}

/** A credential without its secret. */
export interface CredentialView {
  readonly name: string;
  readonly kind: CredentialKind;
  /** `host` or `host:port`, lower case. */
  readonly host: string;
  readonly username: string;
  readonly ownerUid: number;
  readonly updatedAtMs: number;
}

export interface CredentialSpec {
  readonly name: string;
  readonly kind: CredentialKind;
  readonly host: string;
  readonly username: string;
  /** `"***"` keeps the stored secret. */
  readonly secret: string;
}

/** A login for a host. */
export interface Login {
  readonly username: string;
  readonly secret: string;
  /** Differs for every credential and every change of one, so that content fetched with different logins is cached separately. */
  readonly scope: string;
}

/** Returns the login for a host and an owner's apps; undefined for none. */
export type FindLogin = (host: string, ownerUid: number) => Login | undefined;

/** A row of `credentials`. */
interface CredentialRow {
  owner_uid: number;
  name: string;
  kind: string;
  host: string;
  username: string;
  secret: string;
  updated_at: number;
}

const isKind = oneOf(CredentialKinds);

export const credentialRows: RowKind<CredentialRow, CredentialView> = {
  table: "credentials",
  columns: {
    ...{ owner_uid: isUid, name: isName, kind: isKind, host: isText },
    ...{ username: isText, secret: isText, updated_at: isInstant },
  },
  nameOf: ({ name, owner_uid }) => `credential "${name}" of uid ${owner_uid}`,
  remedy: ({ name }) => `its owner's svc credential remove ${name} removes it; then add it again`,
  read: viewOfRow,
};

export interface CredentialsOptions {
  store: Store;
  now: () => number;
  /** Does not apply to root. */
  maxPerUser: number;
  log?: Pick<Log, "error">;
}

export class Credentials {
  readonly #options: CredentialsOptions;
  readonly #reader: RowReader<CredentialRow, CredentialView>;

  constructor(options: CredentialsOptions) {
    this.#options = options;
    this.#reader = new RowReader(credentialRows, options.log);
  }

  /** The credentials that the caller may see, sorted by owner and name. */
  list(caller: CredentialCaller): CredentialView[] {
    const rows = this.#options.store.all<CredentialRow>("SELECT * FROM credentials ORDER BY owner_uid, name");
    return rows
      .filter(({ owner_uid: uid }) => (caller.root && isUid(uid)) || uid === caller.uid)
      .map((row) => this.#reader.read(row) ?? placeholderOf(row));
  }

  /**
   * Creates or replaces a credential of the caller.
   * @throws SvcError `invalid_request` if `"***"` refers to a secret that is not stored or belongs to another host;
   *   `too_many` if the caller has the maximum number of credentials
   */
  async upsert(spec: CredentialSpec, caller: CredentialCaller): Promise<CredentialView> {
    const { name, kind, username } = spec;
    const host = spec.host.toLowerCase();
    const stored = this.#get(caller.ownerUid, name);
    const secret = spec.secret === secretMask ? storedSecret({ name, kind, host }, stored) : spec.secret;
    const beforeMs = isInstant(stored?.updated_at) ? (stored?.updated_at ?? 0) : 0;
    const updatedAtMs = Math.max(this.#options.now(), beforeMs + 1);
    const max = caller.root ? Number.MAX_SAFE_INTEGER : this.#options.maxPerUser;
    await this.#write([
      {
        sql: `INSERT INTO credentials (owner_uid, name, kind, host, username, secret, updated_at)
              SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
              WHERE (SELECT count(*) FROM credentials WHERE owner_uid = ?1 AND name <> ?2) < ?8
              ON CONFLICT (owner_uid, name) DO UPDATE SET kind = excluded.kind, host = excluded.host,
                username = excluded.username, secret = excluded.secret, updated_at = excluded.updated_at`,
        params: [caller.ownerUid, name, kind, host, username, secret, updatedAtMs, max],
        changes: 1,
      },
    ]);
    return { name, kind, host, username, ownerUid: caller.ownerUid, updatedAtMs };
  }

  /** @param ownerUid the owner; default: the caller. @throws SvcError `not_found`, also for a credential of another user */
  async remove(name: string, ownerUid: number | undefined, caller: CredentialCaller): Promise<void> {
    const uid = ownerUid ?? caller.ownerUid;
    if (!caller.root && uid !== caller.uid) throw notFound("credential", name);
    const [removed] = await this.#options.store.write(
      [{ sql: "DELETE FROM credentials WHERE owner_uid = ? AND name = ?", params: [uid, name] }],
      { essential: true },
    );
    if (removed?.changes !== 1) throw notFound("credential", name);
  }

  /** The login for `host` and the apps of `ownerUid`; of several, the one that was written last. */
  loginFor(kind: CredentialKind, host: string, ownerUid: number): Login | undefined {
    const row = this.#options.store.get<CredentialRow>(
      "SELECT * FROM credentials WHERE owner_uid = ? AND kind = ? AND host = ? ORDER BY updated_at DESC LIMIT 1",
      ownerUid,
      kind,
      host.toLowerCase(),
    );
    if (row === undefined) return undefined;
    const { username, secret } = row;
    return { username, secret, scope: `credential ${row.owner_uid} ${row.name} ${row.updated_at}` };
  }

  /** @throws SvcError `too_many` if the bound is reached */
  async #write(statements: readonly Statement[]): Promise<void> {
    const { store, maxPerUser: max } = this.#options;
    try {
      await store.write(statements);
    } catch (error) {
      if (!(error instanceof StoreConflict) || error.reason !== "changes") throw error;
      throw new SvcError(
        "too_many",
        `you have ${max} credentials, and [limits] max_credentials_per_user is ${max}: remove one, or ask for a higher limit`,
      );
    }
  }

  #get(ownerUid: number, name: string): CredentialRow | undefined {
    return this.#options.store.get<CredentialRow>(
      "SELECT * FROM credentials WHERE owner_uid = ? AND name = ?",
      ownerUid,
      name,
    );
  }
}

/** @throws SvcError `invalid_request` if no secret is stored for that host and kind */
function storedSecret(
  { name, kind, host }: Pick<CredentialSpec, "name" | "kind" | "host">,
  stored: CredentialRow | undefined,
): string {
  if (stored === undefined) {
    throw invalidField("secret", `"${secretMask}" keeps a stored secret, and "${name}" has none yet`);
  }
  if (stored.host !== host || stored.kind !== kind) {
    // A caller that could point a stored secret to another host could read it there.
    throw invalidField("secret", `the stored secret is for ${stored.host}: give it again for ${host}`);
  }
  return stored.secret;
}

function placeholderOf(row: CredentialRow): CredentialView {
  const kind = isKind(row.kind) ? row.kind : "git";
  return viewOfRow({
    ...row,
    kind,
    username: damaged,
    updated_at: isInstant(row.updated_at) ? row.updated_at : 0,
  });
}

function viewOfRow(row: CredentialRow): CredentialView {
  return {
    name: row.name,
    kind: row.kind as CredentialKind,
    host: row.host,
    username: row.username,
    ownerUid: row.owner_uid,
    updatedAtMs: row.updated_at,
  };
}
