/**
 * The file of the unix socket. It appears atomically with its final mode, and replaces a stale file, but
 * never a live daemon's (checked by a kernel lock and a connect attempt). Only the daemon's own file is
 * removed.
 */
import { once } from "node:events";
import { constants } from "node:fs";
import { chmod, lstat, open, rename, rm } from "node:fs/promises";
import { connect, type ListenOptions, type Server } from "node:net";
import { dirname } from "node:path";
import { SvcError } from "../../errors.ts";
import { tryLock } from "../../sys/file-lock.ts";
import { makeDirectory } from "../../lib/make-directory.ts";

export interface SocketFileOptions {
  /** Absolute. */
  readonly path: string;
  /** 0o666 for the system's daemon, 0o600 for a user's. */
  readonly mode: number;
  /** Mode of the directory if it is created. */
  readonly directoryMode: number;
  /** Whether only this user may enter the directory or have created it. */
  readonly isPrivate?: boolean;
}

/** `sun_path` of unix(7) has 108 bytes including its end; the socket is created with the suffix `.new`. */
const maxPathBytes = 103;
/** Pending connections, the default maximum of Linux; the kernel rejects further ones. */
const acceptBacklog = 4096;
const probeTimeoutMs = 2000;

/**
 * A bound socket. Disposing removes its file and releases the lock; the server belongs to its owner. The file
 * of an adopted socket stays.
 */
export class SocketFile implements AsyncDisposable {
  readonly path: string;
  readonly #lock: AsyncDisposable;
  readonly #identity: { readonly dev: number; readonly ino: number } | undefined;

  private constructor(path: string, lock: AsyncDisposable, identity?: { dev: number; ino: number }) {
    this.path = path;
    this.#lock = lock;
    this.#identity = identity;
  }

  /**
   * Makes `server` listen.
   * @throws SvcError `unavailable` if another daemon serves the path; system errors
   */
  static async listen(server: Server, options: SocketFileOptions): Promise<SocketFile> {
    const { path } = options;
    if (Buffer.byteLength(path) > maxPathBytes) {
      throw new Error(`the path of the socket has more than ${maxPathBytes} bytes: ${path}`);
    }
    await prepareDirectory(dirname(path), options);
    await using opening = new AsyncDisposableStack();
    opening.use(await takeLock(path));
    await rejectLiveSocket(path);
    const fresh = `${path}.new`;
    await rm(fresh, { force: true });
    await listenOn(server, { path: fresh });
    await chmod(fresh, options.mode);
    // Created under another name and renamed, so that it never has another mode, and replaces a stale file
    // atomically.
    const { dev, ino } = await lstat(fresh);
    await rename(fresh, path);
    return new SocketFile(path, opening.move(), { dev, ino });
  }

  /**
   * Makes `server` listen on a socket that is bound to `path` already.
   * @throws SvcError `unavailable` if another daemon serves the path
   */
  static async adopt(server: Server, { path, fd }: { path: string; fd: number }): Promise<SocketFile> {
    await using opening = new AsyncDisposableStack();
    opening.use(await takeLock(path));
    await listenOn(server, { fd });
    return new SocketFile(path, opening.move());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#identity !== undefined) await this.#removeFile(this.#identity);
    await this.#lock[Symbol.asyncDispose]();
  }

  async #removeFile({ dev, ino }: { readonly dev: number; readonly ino: number }): Promise<void> {
    const found = await lstat(this.path).catch(() => undefined);
    if (found?.ino === ino && found.dev === dev) await rm(this.path, { force: true });
  }
}

async function prepareDirectory(
  directory: string,
  { directoryMode, isPrivate }: SocketFileOptions,
): Promise<void> {
  await makeDirectory(directory, directoryMode);
  const stats = await lstat(directory);
  const isOpenToAll = (stats.mode & 0o002) !== 0 && (stats.mode & 0o1000) === 0;
  if (isOpenToAll) throw new Error(`all users can replace files in ${directory}`);
  const isOwn = stats.isDirectory() && stats.uid === process.geteuid?.() && (stats.mode & 0o077) === 0;
  if (isPrivate === true && !isOwn) throw new Error(`other users can enter ${directory}, or have created it`);
}

/** The lock file is never removed: otherwise two daemons could lock two files of the same name. */
async function takeLock(path: string): Promise<AsyncDisposable> {
  await using opening = new AsyncDisposableStack();
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW;
  const { fd } = opening.use(await open(`${path}.lock`, flags, 0o600));
  if (!tryLock(fd)) throw inUse(path);
  return opening.move();
}

async function rejectLiveSocket(path: string): Promise<void> {
  const stats = await lstat(path).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  });
  if (stats === undefined) return;
  if (!stats.isSocket()) throw new Error(`${path} is not a socket; remove it or name another path`);
  if (await isAnswered(path)) throw inUse(path);
}

/** Whether a daemon listens. Only ECONNREFUSED means no: a full queue or a timeout is a busy daemon. */
function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const settle = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(probeTimeoutMs, () => settle(true));
    socket.once("connect", () => settle(true));
    socket.once("error", (error: NodeJS.ErrnoException) =>
      settle(error.code !== "ECONNREFUSED" && error.code !== "ENOENT"),
    );
  });
}

/** @throws system errors */
export async function listenOn(
  server: Server,
  where: ListenOptions | { readonly fd: number },
): Promise<void> {
  const listening = once(server, "listening");
  // With a descriptor, Node ignores a `backlog` option.
  server.listen(where, acceptBacklog);
  await listening;
}

function inUse(path: string): SvcError {
  return new SvcError("unavailable", `another daemon serves ${path}`);
}
