/** The process environment of the command line: passed in by `main.ts`, replaced in tests. */
import type { Readable } from "node:stream";
import type { ReadStream, WriteStream } from "node:tty";

export interface CliHost {
  /** Arguments after the program's name. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The effective user id. */
  readonly uid: number;
  readonly home: string;
  /** Root directory of the host's files: `/`, except in tests. */
  readonly root: string;
  readonly stdin: Readable & Pick<ReadStream, "isTTY"> & Partial<Pick<ReadStream, "setRawMode">>;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  /** Whether stderr is connected to the systemd journal. */
  readonly isJournal?: boolean;
  /** Exits the process when nothing reads stdout any more, until disposed: for output that may pause for hours. */
  readonly watchReader: () => Promise<Disposable>;
  /** Aborts at Ctrl-C or SIGTERM. */
  readonly interrupted: AbortSignal;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** The version of this program. */
  readonly version: string;
  readonly program: ProgramFiles;
  readonly sockets: SocketPaths;
  readonly stores: StorePaths;
}

export interface ProgramFiles {
  /** The command that starts this program again, without arguments. */
  readonly command: readonly string[];
  /** The directory of the systemd units that ship with the program. */
  readonly unitsDir: string;
  /** The directory of the `docs/` pages that ship with the program. */
  readonly docsDir: string;
  /** The entry point of the thread that validates settings against their schema. */
  readonly settingsThread: () => Promise<URL>;
}

/** A terminal, a pipe or a file. */
export type OutputStream = NodeJS.WritableStream & {
  readonly isTTY?: boolean;
  readonly columns?: WriteStream["columns"];
  readonly rows?: WriteStream["rows"];
};

/** Where a daemon's apps are stored, whether it runs or not. */
export interface StorePaths {
  readonly system: string;
  /** The store of the user's daemon; for root, the system's. */
  readonly user: string;
}

/** Sockets of daemons, in the order in which the command line tries them. */
export interface SocketPaths {
  /** `.svc/` of the checkout, where `npm start` runs its daemon; absent in an installed program. */
  readonly checkoutDir: string | undefined;
  readonly system: string;
  /** The socket of the user's daemon; for root, the system's. */
  readonly user: string;
}
