/**
 * Under which other names work on files makes things before they are seen. Whoever does the work removes them; when daemon
 * and helper end in the same moment, as with the host's power, the next daemon does, by what was written down here.
 */
import type { Identities } from "../identity/identities.ts";
import type { Stage, StageRecord } from "../identity/host-work.ts";
import { SvcError } from "../errors.ts";
import type { Log } from "../lib/log.ts";
import { isExecutorAlive, readExecutor, type Executor } from "../store/executors.ts";
import { isName, isText, isUid, listOf, readChecked } from "../store/row-document.ts";
import { RowReader, type RowKind } from "../store/row-reader.ts";
import type { Store } from "../store/store.ts";

interface StageRow {
  name: string;
  uid: number;
  beside: string;
  executor: string;
}

export const stageRows: RowKind<StageRow, Stage & { executor: Executor }> = {
  table: "file_stages",
  columns: { name: isName, uid: isUid, beside: isText, executor: isText },
  nameOf: ({ name, uid }) => `the work of uid ${uid} on files ("${name}")`,
  remedy: () => "restart the daemon, which forgets it and says in its log what lies where",
  read: ({ name, uid, beside, executor }) => {
    const paths = readChecked(beside, listOf(isText), "it has no right beside");
    return { name, uid, beside: paths, executor: readExecutor(executor) };
  },
};

export interface FileStagesOptions {
  store: Store;
  executor: Executor;
  identities: Identities;
  log: Pick<Log, "warn" | "error">;
}

export class FileStages implements StageRecord, AsyncDisposable {
  readonly #options: FileStagesOptions;
  readonly #reader: RowReader<StageRow, Stage & { executor: Executor }>;
  #sweeping: Promise<void> | undefined;

  constructor(options: FileStagesOptions) {
    this.#options = options;
    this.#reader = new RowReader(stageRows, options.log);
  }

  /** Removes, behind everything else, what processes left that have ended. */
  start(): void {
    this.#sweeping = this.#sweep().catch((error: unknown) => {
      this.#options.log.warn({ err: error }, "what was left of work on files was not removed");
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#sweeping;
  }

  async keep({ name, uid, beside }: Stage): Promise<void> {
    const { store, executor, log } = this.#options;
    const params = [name, uid, JSON.stringify(beside), JSON.stringify(executor)];
    const sql = "INSERT INTO file_stages (name, uid, beside, executor) VALUES (?, ?, ?, ?)";
    // Moving things away is what helps against a full disk: it is not to fail for want of a record.
    await store
      .write([{ sql, params }])
      .catch((error: unknown) => log.warn({ err: error }, "a stage was not recorded"));
  }

  async forget(name: string): Promise<void> {
    const statement = { sql: "DELETE FROM file_stages WHERE name = ?", params: [name] };
    await this.#options.store
      .write([statement], { essential: true })
      .catch((error: unknown) => this.#options.log.warn({ err: error }, "a stage was not forgotten"));
  }

  async #sweep(): Promise<void> {
    const { store, identities, log } = this.#options;
    for (const row of store.all<StageRow>("SELECT * FROM file_stages")) {
      const stage = this.#reader.read(row);
      if (stage === undefined) {
        // Where it lies cannot be gone by; to keep the row would help nobody.
        log.warn({ ...row }, "what was left of work on files is not known any more");
        await this.forget(row.name);
        continue;
      }
      if (await isExecutorAlive(stage.executor)) continue;
      const { name, uid, beside } = stage;
      try {
        const hands = await identities.hostFiles(uid);
        await hands.discard({ name, uid, beside });
      } catch (error) {
        // Neither a user who is gone nor a disk that is not there comes back by asking again at every start.
        log.warn({ uid, beside, err: error }, "what was left of work on files was not removed");
        if (!(error instanceof SvcError)) throw error;
      }
      await this.forget(name);
    }
  }
}
