/**
 * The schema, as the list of steps that built it: `PRAGMA user_version` of a database is the number of steps it has
 * taken. A released step is never edited; what comes later is appended. Each runs in a transaction of its own, with
 * foreign keys checked at its end.
 *
 * Documents whose shape a domain folder owns are JSON in one column; what is looked up or guarded by the database is a
 * column of its own. Instants are unix milliseconds. Tables are STRICT with CHECKs, so that the integrity check at
 * start-up also sees damage inside a row.
 */
export const migrations: readonly string[] = [
  `
  CREATE TABLE meta (
    key TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE apps (
    id TEXT PRIMARY KEY NOT NULL,
    owner_uid INTEGER NOT NULL CHECK (owner_uid BETWEEN 0 AND 4294967294),
    name TEXT NOT NULL,
    runtime TEXT NOT NULL,
    package_id TEXT NOT NULL,
    -- Origin, manifest digest and the rest of what src/apps keeps of an app.
    record TEXT NOT NULL CHECK (json_valid(record)),
    -- The chosen values alone, without the manifest's defaults.
    settings TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(settings)),
    desired TEXT NOT NULL DEFAULT 'stopped' CHECK (desired IN ('running', 'stopped')),
    state TEXT NOT NULL,
    state_reason TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX apps_by_owner ON apps (owner_uid);

  -- app_id refers to no row on purpose: an install starts before its app exists, a removal ends after it is gone.
  CREATE TABLE operations (
    id INTEGER PRIMARY KEY,
    app_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    phase TEXT NOT NULL,
    detail TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(detail)),
    -- The executor: see executors.ts.
    boot_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    started_at INTEGER NOT NULL
  ) STRICT;
  -- One operation at a time per app: the second one's INSERT is the conflict that becomes app_busy.
  CREATE UNIQUE INDEX operations_by_app ON operations (app_id);
  `,
  `
  -- One row per changing call: see src/audit. Row seq is hashed together with the hash of row seq - 1.
  CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    method TEXT NOT NULL,
    protocol TEXT NOT NULL,
    uid INTEGER NOT NULL,
    user TEXT NOT NULL,
    kind TEXT NOT NULL,
    owner_uid INTEGER,
    peer_uid INTEGER,
    token_digest TEXT,
    target TEXT NOT NULL,
    result TEXT NOT NULL,
    reason TEXT,
    duration_ms INTEGER NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32)
  ) STRICT;
  -- The one filter that is asked often and matches little. Every index is walked by the check at each start.
  CREATE INDEX audit_by_target ON audit (target);

  -- Both ends of the chain. The anchor is the newest row that was pruned; before any was, it is number 0 with a hash of zeros.
  CREATE TABLE audit_chain (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    anchor_seq INTEGER NOT NULL,
    anchor_hash BLOB NOT NULL CHECK (length(anchor_hash) = 32),
    head_seq INTEGER NOT NULL CHECK (head_seq >= anchor_seq),
    head_hash BLOB NOT NULL CHECK (length(head_hash) = 32)
  ) STRICT;
  INSERT INTO audit_chain VALUES (1, 0, zeroblob(32), 0, zeroblob(32));
  `,
];
