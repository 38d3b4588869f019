/**
 * Records the temporary names under which file operations prepare their results. The operation removes them; if
 * daemon and helper are killed together, as by a power failure, the next daemon removes what is recorded here.
 */
import type { UserHelpers } from "../run-as/user-helpers.ts";
import type { Stage, StageRecord } from "../run-as/host-work.ts";
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
  remedy: () => "restart the daemon, which deletes the record and logs the paths of leftover files",
  read: ({ name, uid, beside, executor }) => {
    const paths = readChecked(beside, listOf(isText), "its field beside is not valid");
    return { name, uid, beside: paths, executor: readExecutor(executor) };
  },
};

export interface FileStagesOptions {
  store: Store;
  executor: Executor;
  userHelpers: UserHelpers;
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

  /** Removes, in the background, leftovers of processes that have ended. */
  start(): void {
    this.#sweeping = this.#sweep().catch((error: unknown) => {
      this.#options.log.warn({ err: error }, "failed to remove leftovers of file operations");
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#sweeping;
  }

  async keep({ name, uid, beside }: Stage): Promise<void> {
    const { store, executor, log } = this.#options;
    const params = [name, uid, JSON.stringify(beside), JSON.stringify(executor)];
    const sql = "INSERT INTO file_stages (name, uid, beside, executor) VALUES (?, ?, ?, ?)";
    // Moving files away helps against a full disk, so it must not fail because the record cannot be written.
    await store
      .write([{ sql, params }])
      .catch((error: unknown) => log.warn({ err: error }, "failed to record a stage"));
  }

  async forget(name: string): Promise<void> {
    const statement = { sql: "DELETE FROM file_stages WHERE name = ?", params: [name] };
    await this.#options.store
      .write([statement], { essential: true })
      .catch((error: unknown) =>
        this.#options.log.warn({ err: error }, "failed to delete the record of a stage"),
      );
  }

  async #sweep(): Promise<void> {
    const { store, userHelpers, log } = this.#options;
    for (const row of store.all<StageRow>("SELECT * FROM file_stages")) {
      const stage = this.#reader.read(row);
      if (stage === undefined) {
        // The row's location is invalid, so nobody can remove the leftovers.
        log.warn({ ...row }, "leftovers of file operations have an invalid location");
        await this.forget(row.name);
        continue;
      }
      if (await isExecutorAlive(stage.executor)) continue;
      const { name, uid, beside } = stage;
      try {
        const files = await userHelpers.hostFiles(uid);
        await files.discard({ name, uid, beside });
      } catch (error) {
        // Retrying at every start would not bring back a deleted user or a missing disk.
        log.warn({ uid, beside, err: error }, "failed to remove leftovers of file operations");
        if (!(error instanceof SvcError)) throw error;
      }
      await this.forget(name);
    }
  }
}
