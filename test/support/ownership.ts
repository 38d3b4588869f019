/** Helpers to find or create objects of an app on the engine. */
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createOwnership, EngineOwnership } from "../../src/engine/ownership.ts";

/**
 * Creates the ownership of a store that exists only as an ID. @param unproven IDs of apps from before proofs existed
 */
export function ownershipIn(storeId: string, unproven: readonly string[] = []): EngineOwnership {
  return new EngineOwnership({
    ...{ storeId, key: `key of ${storeId}` },
    isUnverified: (id) => unproven.includes(id),
  });
}

/** The current ownership of a daemon's store. */
export function ownershipOf({ storeDir }: { storeDir: string }): EngineOwnership {
  return createOwnership({
    // The rows' type is the caller's knowledge of its own SQL.
    // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
    get: <T>(sql: string, ...params: (string | number | null)[]) => {
      using database = new DatabaseSync(join(storeDir, "svc.db"), { readOnly: true });
      return database.prepare(sql).get(...params) as T | undefined;
    },
  });
}
