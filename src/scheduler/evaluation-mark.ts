/** Until when jobs were evaluated, kept for the next daemon: `catch_up: latest` makes up for the time since. */
import type { Store } from "../store/store.ts";

const key = "schedule.evaluated_until";

export interface EvaluationMark {
  /** The last minute that was evaluated, unix milliseconds; undefined when none is known. */
  read(): number | undefined;
  /** @throws what the store throws */
  write(minuteMs: number): Promise<void>;
}

export function createEvaluationMark(store: Store): EvaluationMark {
  return {
    read() {
      const value = Number(store.get<{ value: string }>("SELECT value FROM meta WHERE key = ?", key)?.value);
      return Number.isSafeInteger(value) ? value : undefined;
    },
    async write(minuteMs) {
      await store.write([
        {
          sql: `INSERT INTO meta (key, value) VALUES (?, ?)
                ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
          params: [key, String(minuteMs)],
        },
      ]);
    },
  };
}
