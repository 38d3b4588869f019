/** Logs of installed apps. */
import { invalidField } from "../../errors.ts";
import { readLog, type LogPart, type LogStart } from "../../logs/log-chunk.ts";
import type { AppsContext } from "../apps-context.ts";
import type { AppRecord } from "../records/app-record.ts";
import { followApp } from "./log-follower.ts";

export interface AppLogStart extends LogStart {
  /** Only lines of this service. */
  readonly service?: string | undefined;
}

export class AppLogs {
  readonly #options: Pick<AppsContext, "registry" | "runtimeOf" | "runnable">;

  constructor(options: Pick<AppsContext, "registry" | "runtimeOf" | "runnable">) {
    this.#options = options;
  }

  /**
   * The last lines of the log, or those after a position.
   * @throws SvcError `invalid_request` for a service that the app lacks
   */
  async read(app: AppRecord, { service, ...from }: AppLogStart, signal: AbortSignal): Promise<LogPart> {
    requireProject(app, service);
    const { runtimeOf, runnable } = this.#options;
    return readLog(from, (tail) => runtimeOf(app).logs(runnable(app), { tail, service, signal }));
  }

  /** The same lines, and then each new one, across restarts, until `signal` aborts or the app is removed. */
  follow(app: AppRecord, from: AppLogStart, signal: AbortSignal): AsyncIterable<LogPart> {
    requireProject(app, from.service);
    const { registry, runtimeOf, runnable } = this.#options;
    // A later app with the same ID is another app.
    const isInstalled = (): boolean => registry.get(app.id)?.createdAtMs === app.createdAtMs;
    return followApp(runtimeOf(app), runnable(app), { ...from, signal, isInstalled });
  }
}

function requireProject({ id, runtime }: AppRecord, service: string | undefined): void {
  if (service !== undefined && runtime !== "compose")
    throw invalidField("service", `app "${id}" is not a compose project`);
}
