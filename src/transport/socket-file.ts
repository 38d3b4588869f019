/**
 * The file of the unix socket: in place at once with its final mode, a stale one replaced, a live daemon's never taken
 * (a lock that the kernel releases with its holder, and a connect that nobody answers), and only the own one removed.
 */
import { once } from "node:events";
import { constants } from "node:fs";
import { chmod, lstat, open, rename, rm } from "node:fs/promises";
import { connect, type ListenOptions, type Server } from "node:net";
import { dirname } from "node:path";
import { SvcError } from "../errors.ts";
import { tryLock } from "../lib/file-lock.ts";
import { makeDirectory } from "../lib/make-directory.ts";

export interface SocketFileOptions {
  /** Absolute. */
  readonly path: string;
  /** 0o666 for everybody's daemon, 0o600 for one user's. */
  readonly mode: number;
  /** Mode of the directory, when it has to be made. */
  readonly directoryMode: number;
  /** Whether nobody but this user may open the directory, or have made it. */
  readonly isPrivate?: boolean;
}

/** `sun_path` of unix(7) holds 108 bytes with its end; the socket is made under a name that is longer by `.new`. */
const maxPathBytes = 103;
/** Connections that wait to be accepted, as many as Linux allows by default: who finds no room in there is turned away by the kernel. */
const acceptBacklog = 4096;
const probeTimeoutMs = 2000;

/**
 * A bound socket; disposing removes its file and lets go of the lock, and leaves the server to its owner. The file of a
 * socket that somebody else has bound is theirs.
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
   * @throws SvcError `unavailable` when another daemon serves the path; what the system says for anything else
   */
  static async listen(server: Server, options: SocketFileOptions): Promise<SocketFile> {
    const { path } = options;
    if (Buffer.byteLength(path) > maxPathBytes) {
      throw new Error(`the path of the socket has more than ${maxPathBytes} bytes: ${path}`);
    }
    await prepareDirectory(dirname(path), options);
    await using opening = new AsyncDisposableStack();
    opening.use(await takeLock(path));
    await refuseLiveSocket(path);
    const fresh = `${path}.new`;
    await rm(fresh, { force: true });
    await listenOn(server, { path: fresh });
    await chmod(fresh, options.mode);
    // Bound elsewhere and moved: nobody ever meets the socket with another mode, and a stale file goes in the same step.
    const { dev, ino } = await lstat(fresh);
    await rename(fresh, path);
    return new SocketFile(path, opening.move(), { dev, ino });
  }

  /**
   * Makes `server` listen on a socket that is bound to `path` already.
   * @throws SvcError `unavailable` when another daemon serves the path
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
  if (isOpenToAll) throw new Error(`everybody may replace files in ${directory}`);
  const isOwn = stats.isDirectory() && stats.uid === process.geteuid?.() && (stats.mode & 0o077) === 0;
  if (isPrivate === true && !isOwn) throw new Error(`others may open ${directory}, or have made it`);
}

/** The lock file stays when its holder goes: removing it would let two daemons lock two files of one name. */
async function takeLock(path: string): Promise<AsyncDisposable> {
  await using opening = new AsyncDisposableStack();
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW;
  const { fd } = opening.use(await open(`${path}.lock`, flags, 0o600));
  if (!tryLock(fd)) throw inUse(path);
  return opening.move();
}

async function refuseLiveSocket(path: string): Promise<void> {
  const stats = await lstat(path).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  });
  if (stats === undefined) return;
  if (!stats.isSocket()) throw new Error(`${path} is not a socket; remove it or name another path`);
  if (await isAnswered(path)) throw inUse(path);
}

/** Whether somebody listens. Only a refusal says no: a full queue or a timeout is a busy daemon. */
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

/** @throws what the system says */
export async function listenOn(
  server: Server,
  where: ListenOptions | { readonly fd: number },
): Promise<void> {
  const listening = once(server, "listening");
  // An option of the name is not read beside a descriptor.
  server.listen(where, acceptBacklog);
  await listening;
}

function inUse(path: string): SvcError {
  return new SvcError("unavailable", `another daemon serves ${path}`);
}
