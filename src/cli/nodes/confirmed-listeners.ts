/** Reads the TCP addresses of the system's daemon from a socket that only root can have created. */
import { lstatSync } from "node:fs";
import { isIPv4, isIPv6 } from "node:net";
import { dirname } from "node:path";
import { SvcError } from "../../errors.ts";
import { calls } from "../client/calls.ts";
import { SocketClient } from "../client/socket-client.ts";

export interface TcpEndpoint {
  /** An IP address, without brackets. */
  readonly host: string;
  readonly port: number;
}

const askTimeoutMs = 10_000;
/** With this bit on a directory, only a file's owner can move or remove the file (sticky, inode(7)). */
const stickyBit = 0o1000;

/**
 * The TCP address that the daemon behind `socketPath` serves.
 * @returns undefined without TCP, without a daemon, and if another user could have put the socket there
 */
export async function confirmedListener(socketPath: string): Promise<TcpEndpoint | undefined> {
  if (!isRootsSocket(socketPath)) return undefined;
  try {
    const client = new SocketClient({ socketPath, headers: {} });
    const { listeners } = await client.call(calls.getStatus, {}, { timeoutMs: askTimeoutMs });
    const served = listeners.find(({ kind, state }) => kind === "tcp" && state === "LISTENING");
    return served && endpointOf(served.address);
  } catch (error) {
    if (error instanceof SvcError) return undefined;
    throw error;
  }
}

/** Whether only `listener` can accept connections to `target`: the kernel binds no second socket to an address that it serves. */
export function covers(listener: TcpEndpoint, target: TcpEndpoint): boolean {
  if (listener.port !== target.port) return false;
  if (listener.host === "0.0.0.0") return isIPv4(target.host);
  // Without IPv4: another program may have that part, depending on the socket's options.
  if (listener.host === "::") return isIPv6(target.host);
  return listener.host === target.host;
}

/** @param text such as `[::1]:8420` */
function endpointOf(text: string): TcpEndpoint | undefined {
  const [, host = "", port = ""] = /^(.+):(\d+)$/.exec(text) ?? [];
  return host === "" ? undefined : { host: host.replace(/^\[|\]$/g, ""), port: Number(port) };
}

/** Root owns a file only if root made it, and nobody else can move a path whose directories are root's. */
function isRootsSocket(path: string): boolean {
  try {
    const socket = lstatSync(path);
    return socket.isSocket() && socket.uid === 0 && isRootsDirectory(dirname(path));
  } catch {
    return false;
  }
}

function isRootsDirectory(path: string): boolean {
  // A symbolic link is not followed: its target would need the same check.
  const status = lstatSync(path);
  const isClosed = (status.mode & 0o022) === 0 || (status.mode & stickyBit) !== 0;
  return (
    status.isDirectory() && status.uid === 0 && isClosed && (path === "/" || isRootsDirectory(dirname(path)))
  );
}
