/**
 * Takes the right to restart from the engine: containers that an earlier svc made, or that an operator changed, would be
 * started without svc's check (decisions 39), stopped apps among them.
 */
import { storeLabel } from "../docker/attribution.ts";
import type { EngineState } from "../docker/engine-state.ts";
import type { DockerEngine } from "../docker/engine.ts";
import type { Log } from "../lib/log.ts";

export interface EngineRestartsOptions {
  engine: DockerEngine;
  state: EngineState;
  storeId: string;
  log: Pick<Log, "info" | "warn">;
}

/** From now on, until it is disposed of. */
export function forbidEngineRestarts({ engine, state, storeId, log }: EngineRestartsOptions): Disposable {
  const forbid = async (id: string): Promise<void> => {
    try {
      await engine.call("change a restart policy", (docker) =>
        docker.getContainer(id).update({ RestartPolicy: { Name: "no" } }),
      );
      log.info({ id }, "the engine restarts a container of an app no more");
    } catch (error) {
      log.warn({ id, err: error }, "the engine may restart a container of an app");
    }
  };
  return state.onChange((change) => {
    if (change.kind !== "available" && change.kind !== "containers") return;
    for (const { id, labels, restartPolicy } of state.containersNow()?.containers ?? []) {
      const isChanged = change.kind === "available" || change.ids.has(id);
      if (isChanged && labels[storeLabel] === storeId && restartPolicy !== "no") void forbid(id);
    }
  });
}
