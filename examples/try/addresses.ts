/** Chooses the addresses of the daemon for trying svc. */
import { createHash } from "node:crypto";
import { chmod, lstat, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createConnection, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Bytes of `sun_path` without its final NUL, unix(7). */
const maxSocketPathBytes = 107;
const connectTimeoutMs = 2_000;

/**
 * `svc.sock` in the state directory. If that path is too long for a socket, it is in a short private directory, and the
 * file `socket` in the state directory contains the path for the command line.
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
    throw new Error(`${dir} belongs to uid ${owner}; remove it, or move the checkout to a shorter path`);
  await chmod(dir, uid === 0 ? 0o755 : 0o700);
  await writeFile(pointer, `${join(dir, "svc.sock")}\n`);
  return join(dir, "svc.sock");
}

/**
 * A port of the loopback address: that of the last start, else the preferred one, else any free port.
 * @param file stores the choice for the next start
 */
export async function pickPort(preferred: number, file: string): Promise<number> {
  const stored = Number(await readFile(file, "utf8").catch(() => ""));
  const isPort = Number.isInteger(stored) && stored > 0 && stored < 65_536;
  const last = isPort ? await bindOnce(stored) : undefined;
  const port = last ?? (await bindOnce(preferred)) ?? (await bindOnce(0)) ?? preferred;
  await writeFile(file, `${port}\n`);
  return port;
}

/** Binds the port briefly and returns its number; undefined if it is in use. */
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
