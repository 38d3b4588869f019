/** Where the daemon to try out listens. */
import { createHash } from "node:crypto";
import { chmod, lstat, mkdir, rm, writeFile } from "node:fs/promises";
import { createConnection, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Bytes of `sun_path` without its final NUL, unix(7). */
const maxSocketPathBytes = 107;
const connectTimeoutMs = 2_000;

/**
 * `svc.sock` in the state directory. Where that path is too long for a socket: in a short directory of the user's own,
 * and the file `socket` in the state directory says where, for the command line to find it.
 */
export async function placeSocket(stateDir: string, uid: number): Promise<string> {
  const pointer = join(stateDir, "socket");
  const socket = join(stateDir, "svc.sock");
  if (Buffer.byteLength(socket) <= maxSocketPathBytes) {
    await rm(pointer, { force: true });
    return socket;
  }
  const short = createHash("sha256").update(stateDir).digest("hex").slice(0, 12);
  const dir = join(tmpdir(), `svc-${uid}-${short}`);
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const { uid: owner } = await lstat(dir);
  if (owner !== uid)
    throw new Error(`${dir} belongs to uid ${owner}: remove it, or move the checkout to a shorter path`);
  await chmod(dir, uid === 0 ? 0o755 : 0o700);
  await writeFile(pointer, `${join(dir, "svc.sock")}\n`);
  return join(dir, "svc.sock");
}

/** The preferred port of the loopback address, or a free one where another program has it. */
export async function pickPort(preferred: number): Promise<number> {
  return (await bindOnce(preferred)) ?? (await bindOnce(0)) ?? preferred;
}

/** Binds the port for a moment and returns its number; undefined when it is taken. */
async function bindOnce(port: number): Promise<number | undefined> {
  const server = createServer();
  const { promise, resolve } = Promise.withResolvers<number | undefined>();
  server.once("error", () => resolve(undefined));
  server.listen(port, "127.0.0.1", () => {
    const address = server.address();
    server.close(() => resolve(typeof address === "object" ? address?.port : undefined));
  });
  return promise;
}

/** Whether something accepts connections there. */
export async function isListening(path: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const connection = createConnection({ path, timeout: connectTimeoutMs });
  connection.once("connect", () => resolve(true));
  connection.once("error", () => resolve(false));
  connection.once("timeout", () => resolve(false));
  return promise.finally(() => connection.destroy());
}
