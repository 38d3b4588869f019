/** Finds the runtime of an app, and describes the app for it. */
import type { Terminal } from "../../lib/terminal.ts";
import type { AppRuntime } from "../../runtimes/contract.ts";
import type { TerminalRequest } from "../../runtimes/capabilities.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import { noTerminal } from "../../runtimes/no-terminal.ts";
import type { AppPaths } from "./app-paths.ts";
import type { AppRecord, NewApp } from "./app-record.ts";
import { isReadable } from "./unreadable-app.ts";

export class AppRuntimes {
  readonly all: readonly AppRuntime[];
  readonly #byName: ReadonlyMap<string, AppRuntime>;
  readonly #paths: AppPaths;

  /** @param byName by the manifest's name for them */
  constructor(byName: ReadonlyMap<string, AppRuntime>, paths: AppPaths) {
    this.all = [...byName.values()];
    this.#byName = byName;
    this.#paths = paths;
  }

  readonly of = (app: Pick<NewApp, "id" | "runtime" | "placement">): AppRuntime => {
    const name = app.placement === null ? app.runtime : "swarm";
    const runtime = this.#byName.get(name);
    if (runtime === undefined) throw new Error(`app ${app.id} needs the runtime ${name}`);
    return runtime;
  };

  /** All runtimes that may run parts of an app: an unreadable app may be on a swarm. */
  readonly allOf = (app: AppRecord): readonly AppRuntime[] => {
    const swarm = this.#byName.get("swarm");
    const mayBeOnSwarm = !isReadable(app) && (app.runtime === "docker" || app.runtime === "compose");
    return mayBeOnSwarm && swarm !== undefined ? [swarm, this.of(app)] : [this.of(app)];
  };

  readonly runnable = (app: NewApp): RunnableApp => {
    const { id, name, ownerUid, runUid: uid, version, manifest, settings, startedSettings } = app;
    const { placement, adopted } = app;
    const [directory, runDir] = [this.#paths.appDir(id), this.#paths.appRunDir(id)];
    return {
      ...{ id, name, ownerUid, uid, directory, runDir, version, manifest, settings, startedSettings },
      ...(placement !== null && { placement }),
      ...(adopted !== null && { adopted }),
    };
  };

  /** @throws SvcError as {@link TerminalRuntime.openTerminal}; `not_possible` for an app whose runtime has no terminals */
  async openTerminal(app: AppRecord, request: TerminalRequest): Promise<Terminal> {
    const { terminals } = this.of(app);
    if (terminals === undefined) throw noTerminal(app.id);
    return terminals.openTerminal(this.runnable(app), request);
  }
}
