/**
 * The backup states of apps: next and last backup, its storages, and verifications. Cached until the store
 * changes or a backup becomes due.
 */
import type { AppRecord } from "../../apps/records/app-record.ts";
import type { Clock } from "../../lib/clock.ts";
import { nextFiring } from "../../triggers/next-firing.ts";
import { TriggerParser, triggerProblem, type Trigger } from "../../triggers/trigger.ts";
import type { Zones } from "../../triggers/zone.ts";
import type { Log } from "../../lib/log.ts";
import {
  damaged,
  isCount,
  isFlag,
  isInstant,
  isName,
  isText,
  listOf,
  maybe,
  oneOf,
  orNull,
  readChecked,
  readDocument,
  type Fields,
} from "../../store/row-document.ts";
import { RowReader, type RowKind } from "../../store/row-reader.ts";
import type { Store } from "../../store/store.ts";
import { catchUpMs, packagePolicy, type BackupPolicySpec } from "./policy.ts";

export interface BackupState {
  readonly lastBackupAtMs: number | undefined;
  readonly storages: readonly string[];
  readonly lastVerifiedAtMs: number | undefined;
  readonly overdue: boolean;
}

export interface AppPolicy {
  readonly spec: BackupPolicySpec;
  /** Undefined without scheduled backups. */
  readonly trigger: Trigger | undefined;
  readonly isPackages: boolean;
  /** Empty for none. */
  readonly lastError: string;
}

export interface PolicyRow {
  app_id: string;
  policy: string | null;
  set_at: number | null;
  last_backup_at: number | null;
  last_storages: string | null;
  last_restored_at: number | null;
  last_error: string | null;
  tried_at: number | null;
}

/** A parsed row. */
interface ParsedPolicy extends Omit<PolicyRow, "policy" | "last_storages"> {
  /** Undefined: the package's policy. */
  readonly spec: BackupPolicySpec | undefined;
  readonly storages: readonly string[];
  /** True if the row cannot be read. */
  readonly unreadable?: true;
}

/** Older rows have no `catchUp`. */
type PolicyDocument = Omit<BackupPolicySpec, "catchUp"> & Partial<Pick<BackupPolicySpec, "catchUp">>;

const documentFields: Fields<PolicyDocument> = {
  trigger: (value) => value === "" || (isText(value) && triggerProblem(value) === undefined),
  storages: listOf(isText),
  mode: oneOf(["live", "pause", "stop"]),
  verify: isFlag,
  catchUp: maybe(oneOf(["none", "latest"])),
  ...{
    keep: maybe(isCount),
    keepDaily: maybe(isCount),
    keepWeekly: maybe(isCount),
    keepMonthly: maybe(isCount),
  },
};

const columns: Fields<PolicyRow> = {
  ...{ app_id: isName, policy: orNull(isText), last_storages: orNull(isText), last_error: orNull(isText) },
  ...{ set_at: orNull(isInstant), last_backup_at: orNull(isInstant) },
  ...{ last_restored_at: orNull(isInstant), tried_at: orNull(isInstant) },
};

export const policyRows: RowKind<PolicyRow, ParsedPolicy> = {
  table: "backup_policies",
  columns,
  nameOf: ({ app_id }) => `the backup policy of app "${app_id}"`,
  remedy: ({ app_id }) =>
    `svc backup policy ${app_id} set … replaces it, svc backup policy ${app_id} reset uses the package's`,
  read: (row) => {
    const problem = "it has an invalid last_storages";
    const storages = readChecked(row.last_storages ?? "[]", listOf(isText), problem);
    const document =
      row.policy === null ? undefined : readDocument<PolicyDocument>(row.policy, documentFields);
    const spec = document && { ...document, catchUp: document.catchUp ?? "none" };
    return { ...row, spec, storages };
  },
};

/** Placeholder for an unreadable policy: no scheduled backups. */
const placeholder = {
  spec: { trigger: "", storages: [], mode: "live", verify: false, catchUp: "none" },
  storages: [],
  ...{ set_at: null, last_backup_at: null, last_restored_at: null, tried_at: null },
  last_error: `${damaged}: set it again; until then there are no scheduled backups`,
  unreadable: true,
} satisfies Omit<ParsedPolicy, "app_id">;

interface Known {
  readonly app: AppRecord;
  readonly row: ParsedPolicy | undefined;
  readonly policy: AppPolicy;
  readonly state: BackupState | undefined;
  /** When the next backup is due, or an unfinished one was; infinite without scheduled backups. */
  readonly dueAtMs: number;
}

/** Milliseconds after which a due backup counts as overdue. */
const graceMs = 60 * 60_000;

export interface BackupStatesOptions {
  store: Pick<Store, "all" | "onChange">;
  zones: Zones;
  clock: Pick<Clock, "nowMs">;
  log?: Pick<Log, "error">;
}

export class BackupStates implements Disposable {
  readonly #options: BackupStatesOptions;
  readonly #subscription: Disposable;
  readonly #reader: RowReader<PolicyRow, ParsedPolicy>;
  readonly #parser = new TriggerParser();
  readonly #known = new Map<string, Known>();
  #rows = new Map<string, ParsedPolicy>();
  #rowsText = "";
  #isOld = true;
  /** The first time at which a checked backup becomes overdue. */
  #nextOverdueMs = Number.POSITIVE_INFINITY;
  #revision = 0;

  constructor(options: BackupStatesOptions) {
    this.#options = options;
    this.#reader = new RowReader(policyRows, options.log);
    this.#subscription = options.store.onChange(() => (this.#isOld = true));
  }

  /** Changes whenever a state may have changed. */
  get revision(): number {
    this.#refresh();
    return this.#revision;
  }

  /** Makes writes of this process visible at once. */
  invalidate(): void {
    this.#isOld = true;
  }

  /** Undefined without backups and policy. */
  of(app: AppRecord): BackupState | undefined {
    return this.#read(app).state;
  }

  policyOf(app: AppRecord): AppPolicy {
    return this.#read(app).policy;
  }

  /** The next scheduled backup; undefined if there is none. */
  nextRunMs(app: AppRecord): number | undefined {
    const { trigger } = this.policyOf(app);
    if (trigger === undefined) return undefined;
    const { zones, clock } = this.#options;
    return nextFiring(trigger, zones.local(), clock.nowMs())?.unixMs;
  }

  /** When a scheduled backup was last started, unix milliseconds; null: never. */
  triedAtMs(app: AppRecord): number | null {
    return this.#read(app).row?.tried_at ?? null;
  }

  /** Whether a missed backup should be caught up on. */
  isMissed(app: AppRecord): boolean {
    const { policy, row, dueAtMs } = this.#read(app);
    const nowMs = this.#options.clock.nowMs();
    if (policy.trigger === undefined || policy.spec.catchUp !== "latest" || dueAtMs > nowMs) return false;
    const fromMs = Math.max(lastOf(app, row), row?.tried_at ?? 0, nowMs - catchUpMs);
    const due = nextFiring(policy.trigger, this.#options.zones.local(), fromMs);
    return due !== undefined && due.unixMs <= nowMs;
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
  }

  #refresh(): void {
    const { store, clock } = this.#options;
    if (this.#isOld) {
      this.#isOld = false;
      const rows = store.all<PolicyRow>("SELECT * FROM backup_policies ORDER BY app_id");
      const text = JSON.stringify(rows);
      if (text !== this.#rowsText) {
        this.#rowsText = text;
        this.#rows = new Map(
          rows.map((row) => [row.app_id, this.#reader.read(row) ?? { ...placeholder, app_id: row.app_id }]),
        );
        this.#revision++;
      }
    }
    if (clock.nowMs() < this.#nextOverdueMs) return;
    this.#nextOverdueMs = Number.POSITIVE_INFINITY;
    this.#revision++;
  }

  #read(app: AppRecord): Known {
    this.#refresh();
    const row = this.#rows.get(app.id);
    const before = this.#known.get(app.id);
    const isOverdue = this.#options.clock.nowMs() >= (before === undefined ? 0 : overdueAtMs(before));
    const isSame =
      before?.app === app && before.row === row && (before.state?.overdue ?? false) === isOverdue;
    const known = before !== undefined && isSame ? before : this.#judge(app, row);
    if (known.state?.overdue !== true)
      this.#nextOverdueMs = Math.min(this.#nextOverdueMs, overdueAtMs(known));
    if (known !== before) {
      // Drops entries of removed apps.
      if (this.#known.size > maxKnown) this.#known.clear();
      this.#known.set(app.id, known);
    }
    return known;
  }

  #judge(app: AppRecord, row: ParsedPolicy | undefined): Known {
    const { zones, clock } = this.#options;
    const policy = this.#policy(app, row);
    const due = policy.trigger && nextFiring(policy.trigger, zones.local(), lastOf(app, row));
    // Must not count as backed up.
    const dueAtMs = row?.unreadable === true ? 0 : (due?.unixMs ?? Number.POSITIVE_INFINITY);
    const state: BackupState = {
      lastBackupAtMs: row?.last_backup_at ?? undefined,
      storages: row?.storages ?? [],
      lastVerifiedAtMs: row?.last_restored_at ?? undefined,
      overdue: clock.nowMs() >= overdueAtMs({ dueAtMs }),
    };
    const isWorthIt =
      row?.unreadable === true ||
      state.lastBackupAtMs !== undefined ||
      state.lastVerifiedAtMs !== undefined ||
      policy.trigger !== undefined;
    return { app, row, policy, dueAtMs, state: isWorthIt ? state : undefined };
  }

  #policy({ manifest }: AppRecord, row: ParsedPolicy | undefined): AppPolicy {
    const isPackages = row?.spec === undefined;
    const spec = row?.spec ?? packagePolicy(manifest);
    // A package may have an invalid trigger, which never fires.
    const isTrigger = spec.trigger !== "" && triggerProblem(spec.trigger) === undefined;
    return {
      spec,
      isPackages,
      trigger: isTrigger ? this.#parser.parse(spec.trigger) : undefined,
      lastError: row?.last_error ?? "",
    };
  }
}

/** When it becomes overdue, or became overdue. */
function overdueAtMs({ dueAtMs }: Pick<Known, "dueAtMs">): number {
  return dueAtMs + graceMs;
}

/** The time from which the next backup is computed. */
function lastOf(app: AppRecord, row: ParsedPolicy | undefined): number {
  return Math.max(row?.last_backup_at ?? 0, row?.set_at ?? app.createdAtMs);
}

const maxKnown = 10_000;
