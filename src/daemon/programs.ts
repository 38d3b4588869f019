/** The programs and threads that svc starts from separate files, and the packages that come with it. */
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";

export interface Programs {
  /** Absolute path of the helper program that runs as a user. */
  readonly userHelper: string;
  /** Absolute path of the app supervisor. */
  readonly supervisor: string;
  /** The store's writer thread. */
  readonly storeWorker: URL;
  /** The thread that validates settings against their schema, and parses long YAML. */
  readonly settingsThread: URL;
  /** The thread that reads the host's processes. */
  readonly hostThread: URL;
  /** The thread that encrypts and decrypts archives. */
  readonly ageThread: URL;
  /** The thread that talks to S3 servers. */
  readonly s3Worker: URL;
  /** The command line of svc. */
  readonly command: readonly string[];
  /** Absolute path of the directory with the index of packages that comes with svc. */
  readonly packages: string;
}

/** Paths when svc runs from its sources. @param command the command line of svc */
export function sourcePrograms(command: Programs["command"]): Programs {
  const dir = join(import.meta.dirname, "..");
  const thread = (path: string): URL => pathToFileURL(join(dir, `${path}.ts`));
  return { ...helperPrograms(dir, "mjs"), ...threads(thread), command, packages: join(dir, "../examples") };
}

/**
 * Paths in a bundle; threads are among its chunks.
 * @param command the command line of svc
 * @param dir directory of the bundle
 */
export function bundledPrograms(command: Programs["command"], dir = import.meta.dirname): Programs {
  const thread = (path: string): URL => pathToFileURL(join(dir, "chunks", `${basename(path)}.js`));
  return { ...helperPrograms(dir, "cjs"), ...threads(thread), command, packages: join(dir, "examples") };
}

function helperPrograms(dir: string, extension: string): Pick<Programs, "userHelper" | "supervisor"> {
  return {
    userHelper: join(dir, `run-as/helper.${extension}`),
    supervisor: join(dir, `runtimes/process/supervisor.${extension}`),
  };
}

function threads(
  find: (path: string) => URL,
): Omit<Programs, "userHelper" | "supervisor" | "command" | "packages"> {
  return {
    storeWorker: find("store/worker"),
    settingsThread: find("packages/settings/settings-thread"),
    hostThread: find("host/processes/process-thread"),
    ageThread: find("backups/encryption/age-thread"),
    s3Worker: find("backups/storages/s3-worker"),
  };
}
