/** The programs and threads that svc starts from files of their own, and the packages that come with it. */
import { join } from "node:path";
import { pathToFileURL } from "node:url";

export interface Programs {
  /** Absolute path of the identity helper. */
  readonly identityHelper: string;
  /** Absolute path of the app supervisor. */
  readonly supervisor: string;
  /** The store's writer thread. */
  readonly storeWorker: URL;
  /** The thread that holds settings against their schema, and reads long YAML. */
  readonly settingsThread: URL;
  /** The thread that looks at the host's processes. */
  readonly hostThread: URL;
  /** The thread that encrypts archives, and decrypts them. */
  readonly ageThread: URL;
  /** The thread that talks to S3 servers. */
  readonly s3Worker: URL;
  /** Absolute path of the directory with the index of packages that comes with svc. */
  readonly packages: string;
}

/** Where they lie when svc runs from its sources: in their folders of `src/`. */
export function sourcePrograms(): Programs {
  const dir = join(import.meta.dirname, "..");
  return { ...programsIn(dir, "ts"), packages: join(dir, "../examples") };
}

/** Where they lie beside a bundle: in folders of the same names. */
export function bundledPrograms(): Programs {
  return { ...programsIn(import.meta.dirname, "js"), packages: join(import.meta.dirname, "examples") };
}

/** @param extension of the threads' files: those are compiled, the programs are not */
function programsIn(dir: string, extension: "ts" | "js"): Omit<Programs, "packages"> {
  return {
    identityHelper: join(dir, "identity", "helper.mjs"),
    supervisor: join(dir, "runtimes", "process", "supervisor.mjs"),
    storeWorker: pathToFileURL(join(dir, "store", `worker.${extension}`)),
    settingsThread: pathToFileURL(join(dir, "packages", `settings-thread.${extension}`)),
    hostThread: pathToFileURL(join(dir, "host", `process-thread.${extension}`)),
    ageThread: pathToFileURL(join(dir, "backups/age", `age-thread.${extension}`)),
    s3Worker: pathToFileURL(join(dir, "backups/storages", `s3-worker.${extension}`)),
  };
}
