/** The steps that build the schema of svc 0.2.0; migrations.ts continues the list. */
export const firstMigrations: readonly string[] = [
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
  -- One row per changing call: see src/observability/audit. Row seq is hashed together with the hash of row seq - 1.
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
  `
  -- Scheduled jobs: see src/scheduler. n stands for the job in the tables below, as there are many rows per job.
  CREATE TABLE jobs (
    n INTEGER PRIMARY KEY,
    owner_uid INTEGER NOT NULL CHECK (owner_uid BETWEEN 0 AND 4294967294),
    id TEXT NOT NULL CHECK (id <> ''),
    -- Empty for the operator.
    managed_by TEXT NOT NULL,
    document TEXT NOT NULL CHECK (json_valid(document)),
    updated_at INTEGER NOT NULL,
    -- Another one after each write, also of a job that was removed and added again.
    revision INTEGER NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX jobs_by_key ON jobs (owner_uid, id);

  -- The jobs that were written last, so that whoever keeps all jobs in memory reads those again and no others.
  CREATE TABLE job_changes (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    owner_uid INTEGER NOT NULL,
    id TEXT NOT NULL
  ) STRICT;
  CREATE TRIGGER job_added AFTER INSERT ON jobs BEGIN
    INSERT INTO job_changes (owner_uid, id) VALUES (NEW.owner_uid, NEW.id);
  END;
  CREATE TRIGGER job_changed AFTER UPDATE ON jobs BEGIN
    INSERT INTO job_changes (owner_uid, id) VALUES (NEW.owner_uid, NEW.id);
  END;
  CREATE TRIGGER job_removed AFTER DELETE ON jobs BEGIN
    INSERT INTO job_changes (owner_uid, id) VALUES (OLD.owner_uid, OLD.id);
  END;
  CREATE TRIGGER job_changes_pruned AFTER INSERT ON job_changes BEGIN
    DELETE FROM job_changes WHERE revision <= NEW.revision - 1000;
  END;

  -- AUTOINCREMENT: the number of a run that is gone is never given to another one.
  CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL REFERENCES jobs (n) ON DELETE CASCADE,
    trigger TEXT NOT NULL CHECK (trigger IN ('schedule', 'manual')),
    attempt INTEGER NOT NULL CHECK (attempt >= 1),
    scheduled_at INTEGER,
    started_at INTEGER NOT NULL,
    ended_at INTEGER CHECK ((ended_at IS NULL) = (status = 'RUNNING')),
    status TEXT NOT NULL
      CHECK (status IN ('RUNNING', 'SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED', 'INTERRUPTED')),
    exit_code INTEGER,
    http_status INTEGER,
    error TEXT NOT NULL DEFAULT '',
    truncated INTEGER NOT NULL DEFAULT 0 CHECK (truncated IN (0, 1)),
    -- The executor while it runs: see executors.ts.
    boot_id TEXT,
    pid INTEGER,
    start_ticks INTEGER
  ) STRICT;
  CREATE INDEX runs_by_job ON runs (job);
  -- One run of a job at a time: the second one's INSERT is the conflict that answers the first.
  CREATE UNIQUE INDEX runs_going ON runs (job) WHERE status = 'RUNNING';

  -- Apart from the runs, so that what goes over all of them does not read what they printed.
  CREATE TABLE run_outputs (
    run INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    output TEXT NOT NULL
  ) STRICT;

  CREATE TABLE job_skips (
    job INTEGER NOT NULL REFERENCES jobs (n) ON DELETE CASCADE,
    reason TEXT NOT NULL CHECK (reason IN ('running', 'late', 'down')),
    count INTEGER NOT NULL CHECK (count > 0),
    last_unix INTEGER NOT NULL,
    PRIMARY KEY (job, reason)
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- Refused calls: where their callers came from, and how many of them are one record.
  ALTER TABLE audit ADD COLUMN address TEXT;
  ALTER TABLE audit ADD COLUMN attempts INTEGER;
  `,
  `
  CREATE TABLE sources (
    name TEXT PRIMARY KEY NOT NULL,
    url TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE credentials (
    owner_uid INTEGER NOT NULL CHECK (owner_uid BETWEEN 0 AND 4294967294),
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('git', 'registry')),
    host TEXT NOT NULL,
    username TEXT NOT NULL,
    secret TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (owner_uid, name)
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- Grows with every write of an app, so that whoever keeps them in memory sees from one row whether to look at the others.
  CREATE TABLE apps_version (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL
  ) STRICT;
  INSERT INTO apps_version VALUES (1, 0);
  CREATE TRIGGER app_added AFTER INSERT ON apps BEGIN
    UPDATE apps_version SET version = version + 1;
  END;
  CREATE TRIGGER app_changed AFTER UPDATE ON apps BEGIN
    UPDATE apps_version SET version = version + 1;
  END;
  CREATE TRIGGER app_removed AFTER DELETE ON apps BEGIN
    UPDATE apps_version SET version = version + 1;
  END;
  `,
  `
  -- What tells this store from every other: see store-id.ts.
  CREATE TABLE store_id (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    value TEXT NOT NULL CHECK (value <> '')
  ) STRICT;
  INSERT INTO store_id VALUES (1, lower(hex(randomblob(8))));
  `,
  `
  -- 1: svc itself ended the run, by its stop or its death, so that the next daemon makes up for it.
  ALTER TABLE runs ADD COLUMN cut_short INTEGER NOT NULL DEFAULT 0 CHECK (cut_short IN (0, 1));
  DELETE FROM meta WHERE key = 'schedule.evaluated_until';
  `,
  `
  -- Another reason, which the CHECK of the old table refuses.
  CREATE TABLE job_skips_new (
    job INTEGER NOT NULL REFERENCES jobs (n) ON DELETE CASCADE,
    reason TEXT NOT NULL CHECK (reason <> ''),
    count INTEGER NOT NULL CHECK (count > 0),
    last_unix INTEGER NOT NULL,
    PRIMARY KEY (job, reason)
  ) STRICT, WITHOUT ROWID;
  INSERT INTO job_skips_new SELECT * FROM job_skips;
  DROP TABLE job_skips;
  ALTER TABLE job_skips_new RENAME TO job_skips;
  `,
  `
  -- A job belongs to the app that it was made for, not to the id: with the app's end it is disabled, in the same transaction,
  -- so that a later app of that id is none of its business. Not with an install that fails: that was no app yet.
  CREATE TRIGGER app_removed_from_jobs AFTER DELETE ON apps WHEN OLD.state <> 'INSTALLING' BEGIN
    UPDATE jobs SET document = json_set(document, '$.enabled', json('false')),
                    revision = (SELECT coalesce(max(revision), 0) + 1 FROM job_changes)
    WHERE document ->> '$.action.app' = OLD.id AND document ->> '$.enabled' = 1;
  END;
  `,
  `
  -- Users know a run by a number that counts those of its owner: that of all would tell how many others had.
  -- Runs on record stay what they were.
  ALTER TABLE runs ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
  UPDATE runs SET number = id;
  CREATE TABLE run_numbers (
    owner_uid INTEGER PRIMARY KEY,
    last INTEGER NOT NULL
  ) STRICT;
  INSERT INTO run_numbers SELECT owner_uid, max(runs.id) FROM runs JOIN jobs ON jobs.n = runs.job GROUP BY owner_uid;
  CREATE TRIGGER run_numbered AFTER INSERT ON runs BEGIN
    INSERT INTO run_numbers SELECT owner_uid, NEW.number FROM jobs WHERE n = NEW.job
    ON CONFLICT (owner_uid) DO UPDATE SET last = excluded.last;
  END;
  `,
  `
  -- See src/backups. A location holds the credentials of its storage.
  CREATE TABLE backup_storages (
    name TEXT PRIMARY KEY NOT NULL CHECK (name <> ''),
    -- Empty for the operator.
    managed_by TEXT NOT NULL,
    location TEXT NOT NULL CHECK (json_valid(location)),
    updated_at INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;

  -- The archives that this store has made: those that it may remove again. Before one is pushed it has a row already.
  CREATE TABLE backup_archives (
    storage TEXT NOT NULL,
    name TEXT NOT NULL,
    app_id TEXT NOT NULL,
    is_whole INTEGER NOT NULL CHECK (is_whole IN (0, 1)),
    verified_at INTEGER,
    restored_at INTEGER,
    PRIMARY KEY (storage, name)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE backup_policies (
    app_id TEXT PRIMARY KEY NOT NULL,
    -- NULL: what the package recommends.
    policy TEXT CHECK (policy IS NULL OR json_valid(policy)),
    last_backup_at INTEGER,
    last_restored_at INTEGER,
    last_error TEXT
  ) STRICT, WITHOUT ROWID;
  -- Another app that gets the id later has nothing to do with them.
  CREATE TRIGGER backup_policy_removed AFTER DELETE ON apps BEGIN
    DELETE FROM backup_policies WHERE app_id = OLD.id;
  END;
  `,
  `
  -- A uid may be another user's one day, who is to inherit no jobs. Empty for root's, and until the daemon starts.
  ALTER TABLE jobs ADD COLUMN owner_name TEXT NOT NULL DEFAULT '';
  `,
  `
  -- Who uploads an archive that is not whole yet: what a process left that ended is looked after by the next.
  ALTER TABLE backup_archives ADD COLUMN executor TEXT CHECK (executor IS NULL OR json_valid(executor));
  `,
  `
  -- When a policy was set, and the storages that took the newest backup, as JSON.
  ALTER TABLE backup_policies ADD COLUMN set_at INTEGER;
  ALTER TABLE backup_policies ADD COLUMN last_storages TEXT CHECK (last_storages IS NULL OR json_valid(last_storages));
  `,
  `
  -- See src/observability/alerts: what has begun, until its end is said.
  CREATE TABLE alerts (
    rule TEXT NOT NULL,
    -- A mount point or the id of an app.
    subject TEXT NOT NULL,
    message TEXT NOT NULL,
    fired_at INTEGER NOT NULL,
    resolved_at INTEGER,
    -- Whether its beginning was said.
    told INTEGER NOT NULL CHECK (told IN (0, 1)),
    PRIMARY KEY (rule, subject)
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- A push of ten thousand jobs is not to make its readers read all the others, too.
  DROP TRIGGER job_changes_pruned;
  CREATE TRIGGER job_changes_pruned AFTER INSERT ON job_changes BEGIN
    DELETE FROM job_changes WHERE revision <= NEW.revision - 20000;
  END;
  `,
  `
  -- See src/files/file-stages.ts: names that work on files uses until what it makes is whole.
  CREATE TABLE file_stages (
    name TEXT PRIMARY KEY NOT NULL,
    uid INTEGER NOT NULL,
    -- Paths that it may lie beside, as JSON.
    beside TEXT NOT NULL CHECK (json_valid(beside)),
    executor TEXT NOT NULL CHECK (json_valid(executor))
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- A push notes once that many jobs changed, under an empty id, and gives them the number of that note as their revision: a
  -- row for each of ten thousand would take longer than the jobs themselves.
  CREATE INDEX job_changes_of_many ON job_changes (revision) WHERE id = '';
  DROP TRIGGER job_added;
  DROP TRIGGER job_changed;
  CREATE TRIGGER job_added AFTER INSERT ON jobs
  WHEN NOT EXISTS (SELECT 1 FROM job_changes WHERE revision = NEW.revision AND id = '') BEGIN
    INSERT INTO job_changes (owner_uid, id) VALUES (NEW.owner_uid, NEW.id);
  END;
  CREATE TRIGGER job_changed AFTER UPDATE ON jobs
  WHEN NOT EXISTS (SELECT 1 FROM job_changes WHERE revision = NEW.revision AND id = '') BEGIN
    INSERT INTO job_changes (owner_uid, id) VALUES (NEW.owner_uid, NEW.id);
  END;
  `,
  `
  -- See src/engine/container-programs.ts: what was started in containers for somebody, until it has ended.
  CREATE TABLE container_programs (
    exec_id TEXT PRIMARY KEY NOT NULL,
    container_id TEXT NOT NULL,
    executor TEXT NOT NULL CHECK (json_valid(executor))
  ) STRICT, WITHOUT ROWID;
  `,
  `
  -- Only a push leaves the owner's name out of what it updates, and notes all of its jobs at once: to ask at each of ten
  -- thousand rows whether it is one of them takes as long as to write it.
  DROP TRIGGER job_changed;
  CREATE TRIGGER job_changed AFTER UPDATE OF owner_name ON jobs BEGIN
    INSERT INTO job_changes (owner_uid, id) VALUES (NEW.owner_uid, NEW.id);
  END;
  DROP TRIGGER app_removed_from_jobs;
  CREATE TRIGGER app_removed_from_jobs AFTER DELETE ON apps WHEN OLD.state <> 'INSTALLING' BEGIN
    UPDATE jobs SET owner_name = owner_name, document = json_set(document, '$.enabled', json('false')),
                    revision = (SELECT coalesce(max(revision), 0) + 1 FROM job_changes)
    WHERE document ->> '$.action.app' = OLD.id AND document ->> '$.enabled' = 1;
  END;
  `,
];
