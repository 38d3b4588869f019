/**
 * Disables the engine's restart policies: it would start containers that an earlier svc created, or that an operator
 * changed, without svc's check, including those of stopped apps.
 */
import { namedObject } from "../../engine/container-record.ts";
import type { EngineState } from "../../engine/engine-state.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import type { Log } from "../../lib/log.ts";

export interface EngineRestartsOptions {
  engine: DockerEngine;
  state: EngineState;
  ownership: EngineOwnership;
  log: Pick<Log, "info" | "warn">;
}

/** Works until it is disposed of. */
export function forbidEngineRestarts({ engine, state, ownership, log }: EngineRestartsOptions): Disposable {
  const forbid = async (id: string): Promise<void> => {
    try {
      await engine.call("change a restart policy", (docker) =>
        docker.getContainer(id).update({ RestartPolicy: { Name: "no" } }),
      );
      log.info({ id }, "disabled the engine's restart policy of an app's container");
    } catch (error) {
      log.warn({ id, err: error }, "failed to disable the engine's restart policy of an app's container");
    }
  };
  return state.onChange((change) => {
    if (change.kind !== "available" && change.kind !== "containers") return;
    for (const container of state.containersNow()?.containers ?? []) {
      const { id, restartPolicy } = container;
      const isChanged = change.kind === "available" || change.ids.has(id);
      if (!isChanged || restartPolicy === "no") continue;
      if (ownership.ownerOf("container", namedObject(container)) !== undefined) void forbid(id);
    }
  });
}
