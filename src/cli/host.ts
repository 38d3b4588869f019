/** What the process gives to the command line: passed in by `main.ts`, replaced in tests. */
import type { Readable } from "node:stream";
import type { ReadStream, WriteStream } from "node:tty";

export interface CliHost {
  /** Arguments after the program's name. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The effective user id. */
  readonly uid: number;
  readonly home: string;
  /** Where the host's own files lie: `/`, but in tests. */
  readonly root: string;
  readonly stdin: Readable & Pick<ReadStream, "isTTY"> & Partial<Pick<ReadStream, "setRawMode">>;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  /** Whether systemd's journal reads stderr. */
  readonly isJournal?: boolean;
  /** Ends the process, until disposed, when nobody reads stdout any more: for output that may pause for hours. */
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
  /** What starts this program again, without arguments. */
  readonly command: readonly string[];
  /** Where the units for systemd lie that come with it. */
  readonly unitsDir: string;
  /** As `setUp` takes it. */
  readonly codeFile?: string | undefined;
  /** Where the pages of `docs/` lie that come with it. */
  readonly docsDir: string;
  /** The entry point of the thread that holds settings against their schema. */
  readonly settingsThread: () => Promise<URL>;
}

/** A terminal, a pipe or a file. */
export type OutputStream = NodeJS.WritableStream & {
  readonly isTTY?: boolean;
  readonly columns?: WriteStream["columns"];
  readonly rows?: WriteStream["rows"];
};

/** Where the apps of a daemon are kept, whether it runs or not. */
export interface StorePaths {
  readonly system: string;
  /** The store of the user's own; the system's for root. */
  readonly user: string;
}

/** Where a daemon may listen, in the order in which the command line looks (D30). */
export interface SocketPaths {
  /** `.svc/` of the checkout, where `npm start` has its daemon; absent in an installed program. */
  readonly checkoutDir: string | undefined;
  readonly system: string;
  /** The socket of the user's own daemon; the system's for root. */
  readonly user: string;
}
