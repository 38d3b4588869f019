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
  return { ...programsIn(dir, { thread: "ts", program: "mjs" }), packages: join(dir, "../examples") };
}

/**
 * Where they lie beside a bundle: in folders of the same names.
 *
 * @param dir of the bundle
 */
export function bundledPrograms(dir = import.meta.dirname): Programs {
  return { ...programsIn(dir, { thread: "js", program: "cjs" }), packages: join(dir, "examples") };
}

/** @param extension of the files of threads, and of programs */
function programsIn(
  dir: string,
  extension: { thread: "ts" | "js"; program: "mjs" | "cjs" },
): Omit<Programs, "packages"> {
  const { thread, program } = extension;
  return {
    identityHelper: join(dir, "identity", `helper.${program}`),
    supervisor: join(dir, "runtimes", "process", `supervisor.${program}`),
    storeWorker: pathToFileURL(join(dir, "store", `worker.${thread}`)),
    settingsThread: pathToFileURL(join(dir, "packages", `settings-thread.${thread}`)),
    hostThread: pathToFileURL(join(dir, "host", `process-thread.${thread}`)),
    ageThread: pathToFileURL(join(dir, "backups/age", `age-thread.${thread}`)),
    s3Worker: pathToFileURL(join(dir, "backups/storages", `s3-worker.${thread}`)),
  };
}
