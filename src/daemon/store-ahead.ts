/**
 * Starts the check of the database on a thread while the rest of the daemon loads: each takes as long as Node's own
 * start.
 */
import { inspectAhead, type InspectionAhead } from "../store/store.ts";
import type { Config } from "./config.ts";
import type { Programs } from "./programs.ts";

/** Like `inspectAhead`. */
export function inspectStoreAhead(config: Config, programs: Programs): Promise<InspectionAhead | undefined> {
  return inspectAhead(config.store.dir, programs.storeWorker);
}
