/** Stores alerts, so that a restart neither repeats nor loses one. */
import { isBit, isInstant, isName, isText, orNull } from "../../store/row-document.ts";
import { RowReader, type RowKind } from "../../store/row-reader.ts";
import type { Log } from "../../lib/log.ts";
import type { Statement, Store } from "../../store/store.ts";

/** A condition that lasted long enough. It is stored until its end was reported. */
export interface Alert {
  readonly rule: string;
  readonly subject: string;
  readonly message: string;
  /** Unix milliseconds. */
  readonly firedAtMs: number;
  /** Undefined while the condition holds. */
  readonly resolvedAtMs: number | undefined;
  /** Whether the start was reported. */
  readonly isReported: boolean;
}

interface AlertRow {
  rule: string;
  subject: string;
  message: string;
  fired_at: number;
  resolved_at: number | null;
  told: number;
}

export const alertRows: RowKind<AlertRow, Alert> = {
  table: "alerts",
  columns: {
    ...{ rule: isName, subject: isName, message: isText, fired_at: isInstant },
    ...{ resolved_at: orNull(isInstant), told: isBit },
  },
  nameOf: ({ rule, subject }) => `alert "${rule}" of "${subject}"`,
  remedy: () => "restart the daemon, which removes the alert and checks its rule again",
  read: (row) => ({
    rule: row.rule,
    subject: row.subject,
    message: row.message,
    firedAtMs: row.fired_at,
    resolvedAtMs: row.resolved_at ?? undefined,
    isReported: row.told === 1,
  }),
};

export class AlertStore {
  readonly #store: Store;
  readonly #reader: RowReader<AlertRow, Alert>;

  constructor(store: Store, log?: Pick<Log, "error">) {
    this.#store = store;
    this.#reader = new RowReader(alertRows, log);
  }

  /** By rule and subject. */
  all(): Alert[] {
    return this.#reader.readAll(this.#rows());
  }

  /** Removes unreadable rows: a condition that still holds is found again. */
  async forgetUnreadable(): Promise<void> {
    const damaged = this.#rows().filter((row) => this.#reader.read(row) === undefined);
    await this.write([], damaged);
  }

  #rows(): AlertRow[] {
    return this.#store.all<AlertRow>("SELECT * FROM alerts ORDER BY rule, subject");
  }

  async write(put: readonly Alert[], remove: readonly Pick<Alert, "rule" | "subject">[]): Promise<void> {
    const statements: Statement[] = [
      ...put.map(({ rule, subject, message, firedAtMs, resolvedAtMs, isReported }) => ({
        sql: `INSERT INTO alerts (rule, subject, message, fired_at, resolved_at, told) VALUES (?, ?, ?, ?, ?, ?)
              ON CONFLICT (rule, subject) DO UPDATE SET message = excluded.message, fired_at = excluded.fired_at,
                resolved_at = excluded.resolved_at, told = excluded.told`,
        params: [rule, subject, message, firedAtMs, resolvedAtMs ?? null, Number(isReported)],
      })),
      ...remove.map(({ rule, subject }) => ({
        sql: "DELETE FROM alerts WHERE rule = ? AND subject = ?",
        params: [rule, subject],
      })),
    ];
    if (statements.length > 0) await this.#store.write(statements);
  }
}
