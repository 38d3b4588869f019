/** The programs and threads that svc starts from files of their own. */
import { join } from "node:path";
import { pathToFileURL } from "node:url";

export interface Programs {
  /** Absolute path of the identity helper. */
  readonly identityHelper: string;
  /** Absolute path of the app supervisor. */
  readonly supervisor: string;
  /** The store's writer thread. */
  readonly storeWorker: URL;
}

/** Where they lie when svc runs from its sources: in their folders of `src/`. */
export function sourcePrograms(): Programs {
  return programsIn(join(import.meta.dirname, ".."), "worker.ts");
}

/** Where they lie beside a bundle: in folders of the same names. */
export function bundledPrograms(): Programs {
  return programsIn(import.meta.dirname, "worker.js");
}

function programsIn(dir: string, storeWorker: string): Programs {
  return {
    identityHelper: join(dir, "identity", "helper.mjs"),
    supervisor: join(dir, "runtimes", "process", "supervisor.mjs"),
    storeWorker: pathToFileURL(join(dir, "store", storeWorker)),
  };
}
