import { firstMigrations } from "./first-migrations.ts";

/**
 * The schema, as the list of steps that build it. `PRAGMA user_version` of a database is the number of steps it has
 * run. A released step is never edited; new ones are appended. Each runs in its own transaction, with foreign keys
 * checked at its end.
 *
 * Documents whose shape belongs to a domain folder are JSON in one column. Values that the database searches or
 * constrains have their own column. Instants are unix milliseconds. Tables are STRICT with CHECKs, so that the
 * integrity check at startup also detects damage inside a row.
 */
export const migrations: readonly string[] = [
  ...firstMigrations,
  `
  -- When what a policy wants was last begun by itself: what was missed is made up for once, also when that fails.
  ALTER TABLE backup_policies ADD COLUMN tried_at INTEGER;
  `,
  `
  -- By hand a disabled job ran all the same, and in a later app of that id: it keeps in mind which app it has lost, until
  -- somebody writes it again.
  DROP TRIGGER app_removed_from_jobs;
  CREATE TRIGGER app_removed_from_jobs AFTER DELETE ON apps WHEN OLD.state <> 'INSTALLING' BEGIN
    UPDATE jobs SET owner_name = owner_name,
                    document = json_set(document, '$.enabled', json('false'), '$.lostApp', OLD.id),
                    revision = (SELECT coalesce(max(revision), 0) + 1 FROM job_changes)
    WHERE document ->> '$.action.app' = OLD.id;
  END;
  `,
  `
  -- A document that is no JSON made each removal of an app fail.
  DROP TRIGGER app_removed_from_jobs;
  CREATE TRIGGER app_removed_from_jobs AFTER DELETE ON apps WHEN OLD.state <> 'INSTALLING' BEGIN
    UPDATE jobs SET owner_name = owner_name,
                    document = json_set(document, '$.enabled', json('false'), '$.lostApp', OLD.id),
                    revision = (SELECT coalesce(max(revision), 0) + 1 FROM job_changes)
    WHERE CASE WHEN json_valid(document) THEN document ->> '$.action.app' = OLD.id END;
  END;
  `,
  `
  -- Each user has a share of the audit trail, so records are also pruned from its middle. A gap stands for the records from
  -- first_seq to last_seq and keeps the hash of the last one, on which the next record builds: see src/observability/audit.
  CREATE TABLE audit_gaps (
    last_seq INTEGER PRIMARY KEY,
    first_seq INTEGER NOT NULL CHECK (first_seq <= last_seq),
    hash BLOB NOT NULL CHECK (length(hash) = 32)
  ) STRICT;
  CREATE INDEX audit_gaps_by_first ON audit_gaps (first_seq);
  -- Adjacent gaps are one, so that there are never more gaps than records.
  CREATE TRIGGER audit_gap_added AFTER INSERT ON audit_gaps BEGIN
    UPDATE audit_gaps SET first_seq = (SELECT first_seq FROM audit_gaps WHERE last_seq = NEW.first_seq - 1)
    WHERE last_seq = NEW.last_seq AND EXISTS (SELECT 1 FROM audit_gaps WHERE last_seq = NEW.first_seq - 1);
    DELETE FROM audit_gaps WHERE last_seq = NEW.first_seq - 1;
    UPDATE audit_gaps SET first_seq = (SELECT first_seq FROM audit_gaps WHERE last_seq = NEW.last_seq)
    WHERE first_seq = NEW.last_seq + 1;
    DELETE FROM audit_gaps WHERE last_seq = NEW.last_seq AND NEW.last_seq >=
      (SELECT first_seq FROM audit_gaps WHERE last_seq > NEW.last_seq ORDER BY last_seq LIMIT 1);
  END;

  -- How many records each user has in the trail.
  CREATE TABLE audit_shares (
    uid INTEGER PRIMARY KEY,
    records INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX audit_shares_by_records ON audit_shares (records);
  CREATE INDEX audit_by_uid ON audit (uid);
  INSERT INTO audit_shares SELECT uid, count(*) FROM audit GROUP BY uid;
  CREATE TRIGGER audit_added AFTER INSERT ON audit BEGIN
    INSERT INTO audit_shares VALUES (NEW.uid, 1) ON CONFLICT (uid) DO UPDATE SET records = records + 1;
  END;
  CREATE TRIGGER audit_pruned AFTER DELETE ON audit BEGIN
    UPDATE audit_shares SET records = records - 1 WHERE uid = OLD.uid;
    DELETE FROM audit_shares WHERE uid = OLD.uid AND records <= 0;
  END;
  `,
  `
  -- See src/runtimes/docker/user-images.ts: which local images apps of regular users may use.
  CREATE TABLE user_images (
    uid INTEGER NOT NULL,
    -- The whole name, such as docker.io/library/nginx:1.27.
    reference TEXT NOT NULL,
    image_id TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (uid, reference, image_id)
  ) STRICT, WITHOUT ROWID;
  -- Apps from before: their images are recorded when the engine is first used.
  CREATE TABLE apps_without_recorded_images (
    app_id TEXT PRIMARY KEY NOT NULL,
    owner_uid INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  INSERT INTO apps_without_recorded_images SELECT id, owner_uid FROM apps WHERE owner_uid <> 0;
  -- A later app with the same ID gets nothing.
  CREATE TRIGGER app_removed_from_unrecorded AFTER DELETE ON apps BEGIN
    DELETE FROM apps_without_recorded_images WHERE app_id = OLD.id;
  END;
  `,
  `
  -- See src/operations/operation-record.ts: calls of long methods, the running ones and those of the last day.
  CREATE TABLE operation_records (
    id TEXT PRIMARY KEY NOT NULL,
    owner_uid INTEGER NOT NULL,
    app_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED', 'INTERRUPTED')),
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    document TEXT NOT NULL CHECK (json_valid(document)),
    log TEXT NOT NULL CHECK (json_valid(log))
  ) STRICT;
  CREATE INDEX operation_records_of_owner ON operation_records (owner_uid, started_at);
  `,
  `
  -- See src/engine/ownership.ts. Whoever knows the key can claim objects on the container engine for an app.
  CREATE TABLE engine_key (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    value TEXT NOT NULL CHECK (length(value) = 64)
  ) STRICT;
  INSERT INTO engine_key VALUES (1, lower(hex(randomblob(32))));
  -- Apps whose objects on the engine have neither proofs nor names made with the key, as they were installed earlier.
  CREATE TABLE unproven_apps (id TEXT PRIMARY KEY NOT NULL) STRICT, WITHOUT ROWID;
  INSERT INTO unproven_apps SELECT id FROM apps;
  CREATE TRIGGER app_removed_from_unproven AFTER DELETE ON apps BEGIN
    DELETE FROM unproven_apps WHERE id = OLD.id;
  END;
  `,
  `
  -- What tells an archive that this store has made from one that was put in its place. NULL: made before, or elsewhere.
  ALTER TABLE backup_archives ADD COLUMN footer_sha256 TEXT;
  `,
  `
  -- See src/store/schema-digest.ts. Each migration stores its value.
  CREATE TABLE schema_digest (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    value TEXT NOT NULL CHECK (length(value) = 64)
  ) STRICT;
  `,
];

/** The first version of the schema with a digest. */
export const schemaDigestVersion =
  migrations.findIndex((step) => step.includes("CREATE TABLE schema_digest")) + 1;
