/**
 * Programs that svc started in containers for clients: the engine would keep them running after the client
 * disconnected.
 */
import { readFile } from "node:fs/promises";
import { constants } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import type { Exec } from "dockerode";
import { SvcError } from "../errors.ts";
import { createProcessOpener } from "../sys/pidfd.ts";
import type { Log } from "../lib/log.ts";
import { isExecutorAlive, readExecutor, type Executor } from "../store/executors.ts";
import { isName, isText } from "../store/row-document.ts";
import { RowReader, type RowKind } from "../store/row-reader.ts";
import type { Store } from "../store/store.ts";
import type { DockerEngine } from "./engine.ts";
import type { EngineEvents } from "./events.ts";

export interface ContainerProgramsOptions {
  readonly engine: DockerEngine;
  readonly events: Pick<EngineEvents, "listen">;
  readonly store: Pick<Store, "all" | "write">;
  readonly executor: Executor;
  readonly log: Pick<Log, "warn" | "error">;
}

interface ProgramRow {
  exec_id: string;
  container_id: string;
  executor: string;
}

export const programRows: RowKind<ProgramRow, Executor> = {
  table: "container_programs",
  columns: { exec_id: isName, container_id: isName, executor: isText },
  nameOf: ({ exec_id, container_id }) => `program ${exec_id} in container ${container_id}`,
  remedy: () => "restart the daemon, which ends it",
  read: ({ executor }) => readExecutor(executor),
};

/** Milliseconds between checks, about 6 s in all: the engine confirms a start before the program runs. */
const untilStarted = [20, 80, 200, 400, 800, 1500, 3000];
/** From SIGHUP to SIGKILL: milliseconds between checks, about 2 s in all. */
const grace = [20, 80, 200, 400, 600, 700];
const afterKillMs = 500;
const { SIGHUP, SIGCONT, SIGKILL } = constants.signals;

/** Programs that a killed process left behind are ended by the next one, once the engine is reachable. */
export class ContainerPrograms implements AsyncDisposable {
  readonly #options: ContainerProgramsOptions;
  readonly #reader: RowReader<ProgramRow, Executor>;
  readonly #listening: Disposable;
  #sweeping: Promise<void> | undefined;

  constructor(options: ContainerProgramsOptions) {
    this.#options = options;
    this.#reader = new RowReader(programRows, options.log);
    this.#listening = options.events.listen({
      onConnect: () => {
        this.#sweeping ??= this.#sweep().finally(() => (this.#sweeping = undefined));
      },
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#listening[Symbol.dispose]();
    await this.#sweeping;
  }

  /** Records a program before it starts. */
  async begin(execId: string, containerId: string): Promise<void> {
    const sql = "INSERT INTO container_programs (exec_id, container_id, executor) VALUES (?, ?, ?)";
    const params = [execId, containerId, JSON.stringify(this.#options.executor)];
    await this.#options.store.write([{ sql, params }]);
  }

  inspect(execId: string): Promise<Awaited<ReturnType<Exec["inspect"]>>> {
    return this.#options.engine.call("inspect a program in a container", (docker) =>
      docker.getExec(execId).inspect(),
    );
  }

  /** Ends a program with SIGHUP, as a closed terminal window does, and then with SIGKILL. Never throws. */
  async end(execId: string, containerId: string): Promise<void> {
    try {
      if (!(await this.#hangUp(execId, containerId))) return;
    } catch (error) {
      // The container is gone, and the program with it.
      if (!(error instanceof SvcError) || error.code !== "not_found") return;
    }
    const statement = { sql: "DELETE FROM container_programs WHERE exec_id = ?", params: [execId] };
    await this.#options.store
      .write([statement], { essential: true })
      .catch((error: unknown) =>
        this.#options.log.warn({ err: error }, "failed to delete the record of a program in a container"),
      );
  }

  /** @returns whether the program has ended */
  async #hangUp(execId: string, containerId: string): Promise<boolean> {
    const pid = await this.#startedPid(execId);
    if (pid === undefined) return true;
    await signal(pid, containerId, [SIGHUP, SIGCONT]);
    for (const ms of grace) {
      await wait(ms);
      if (!(await this.inspect(execId)).Running) return true;
    }
    await signal(pid, containerId, [SIGKILL]);
    await wait(afterKillMs);
    return !(await this.inspect(execId)).Running;
  }

  /** @returns its PID on the engine's host; undefined when it ended or never started */
  async #startedPid(execId: string): Promise<number | undefined> {
    for (const ms of untilStarted) {
      const { Running, Pid, ExitCode } = await this.inspect(execId);
      if (Running && Pid > 0) return Pid;
      if (!Running && ExitCode !== null) return undefined;
      await wait(ms);
    }
    return undefined;
  }

  async #sweep(): Promise<void> {
    const { store, log } = this.#options;
    try {
      for (const row of store.all<ProgramRow>("SELECT * FROM container_programs")) {
        const executor = this.#reader.read(row);
        // If the program's executor is unknown, nobody else would end it.
        if (executor !== undefined && (await isExecutorAlive(executor))) continue;
        await this.end(row.exec_id, row.container_id);
      }
    } catch (error) {
      log.warn({ err: error }, "failed to stop leftover programs in containers");
    }
  }
}

/** The PID is valid on the engine's host, which is this host if the process has the container's cgroup. */
async function signal(pid: number, containerId: string, signals: readonly number[]): Promise<void> {
  try {
    using handle = createProcessOpener()(pid);
    const cgroup = await readFile(`/proc/${pid}/cgroup`, "utf8");
    if (!cgroup.includes(containerId)) return;
    for (const number of signals) handle.signal(number);
  } catch {
    // The program has ended.
  }
}
