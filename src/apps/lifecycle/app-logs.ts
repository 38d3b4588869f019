/** Logs of installed apps. */
import { readLog, type LogPart, type LogStart } from "../../logs/log-chunk.ts";
import type { AppsContext } from "../apps-context.ts";
import type { AppRecord } from "../records/app-record.ts";
import { followApp } from "./log-follower.ts";

export class AppLogs {
  readonly #options: Pick<AppsContext, "registry" | "runtimeOf" | "runnable">;

  constructor(options: Pick<AppsContext, "registry" | "runtimeOf" | "runnable">) {
    this.#options = options;
  }

  /** The last lines of the log, or those after a position. */
  read(app: AppRecord, from: LogStart, signal: AbortSignal): Promise<LogPart> {
    const { runtimeOf, runnable } = this.#options;
    return readLog(from, (tail) => runtimeOf(app).logs(runnable(app), { tail, signal }));
  }

  /** The same lines, and then each new one, across restarts, until `signal` aborts or the app is removed. */
  follow(app: AppRecord, from: LogStart, signal: AbortSignal): AsyncIterable<LogPart> {
    const { registry, runtimeOf, runnable } = this.#options;
    // A later app with the same ID is another app.
    const isInstalled = (): boolean => registry.get(app.id)?.createdAtMs === app.createdAtMs;
    return followApp(runtimeOf(app), runnable(app), { ...from, signal, isInstalled });
  }
}
