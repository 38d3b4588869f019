/** What was found and is to be said, kept so that a restart neither repeats nor forgets it. */
import type { Statement, Store } from "../store/store.ts";

/** Something that has lasted long enough. It is kept until its end is said. */
export interface Alert {
  readonly rule: string;
  readonly subject: string;
  readonly message: string;
  /** Unix milliseconds. */
  readonly firedAtMs: number;
  /** Undefined while it goes on. */
  readonly resolvedAtMs: number | undefined;
  /** Whether its beginning was said. */
  readonly isTold: boolean;
}

interface AlertRow {
  rule: string;
  subject: string;
  message: string;
  fired_at: number;
  resolved_at: number | null;
  told: number;
}

export class AlertStore {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** By rule and subject. */
  all(): Alert[] {
    return this.#store.all<AlertRow>("SELECT * FROM alerts ORDER BY rule, subject").map((row) => ({
      rule: row.rule,
      subject: row.subject,
      message: row.message,
      firedAtMs: row.fired_at,
      resolvedAtMs: row.resolved_at ?? undefined,
      isTold: row.told === 1,
    }));
  }

  async write(put: readonly Alert[], remove: readonly Alert[]): Promise<void> {
    const statements: Statement[] = [
      ...put.map(({ rule, subject, message, firedAtMs, resolvedAtMs, isTold }) => ({
        sql: `INSERT INTO alerts (rule, subject, message, fired_at, resolved_at, told) VALUES (?, ?, ?, ?, ?, ?)
              ON CONFLICT (rule, subject) DO UPDATE SET message = excluded.message, fired_at = excluded.fired_at,
                resolved_at = excluded.resolved_at, told = excluded.told`,
        params: [rule, subject, message, firedAtMs, resolvedAtMs ?? null, Number(isTold)],
      })),
      ...remove.map(({ rule, subject }) => ({
        sql: "DELETE FROM alerts WHERE rule = ? AND subject = ?",
        params: [rule, subject],
      })),
    ];
    if (statements.length > 0) await this.#store.write(statements);
  }
}
