/**
 * Chooses the service layer that a command uses: the daemon behind an existing socket, else this process.
 * File checks are synchronous: `node:fs/promises` and its threads take longer to start than all of this takes
 * to run.
 */
import { lstatSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { SvcError } from "../../errors.ts";
import { rootSocketOf } from "../../lib/paths.ts";
import { exists } from "../exists.ts";
import type { CliHost, SocketPaths } from "../host.ts";
import { jobNotes, noDaemonNotes, NotingClient, systemDaemonDown } from "../no-daemon.ts";
import { chooseNode, type NodeOptions } from "../nodes/choose-node.ts";
import type { Client } from "./client.ts";
import { send, UnreachableError, type SocketEndpoint } from "./http.ts";
import { FallbackClient } from "./fallback-client.ts";
import { SocketClient } from "./socket-client.ts";

export type Route =
  | {
      readonly kind: "socket";
      readonly path: string;
      /** Whether the command may run in this process if the socket does not respond; only root may. */
      readonly mayFallBack: boolean;
    }
  | { readonly kind: "in-process" };

export interface RoutingInput {
  /** The value of `--socket`. */
  readonly socketOption: string | undefined;
  readonly sockets: SocketPaths;
  readonly uid: number;
}

/**
 * The first existing socket, else in-process. A socket given with `--socket`, or of a checkout where `npm
 * start` ran, is used even if no daemon responds there.
 */
export function chooseRoute({ socketOption, sockets, uid }: RoutingInput): Route {
  if (socketOption !== undefined) return { kind: "socket", path: socketOption, mayFallBack: false };
  const { checkoutDir } = sockets;
  const checkout = checkoutDir === undefined ? [] : [checkoutSocket(checkoutDir)];
  for (const path of new Set([...checkout, sockets.system, sockets.user])) {
    if (exists(path)) {
      const isRoot = uid === 0;
      return { kind: "socket", path: isRoot ? rootSocketFor(path) : path, mayFallBack: isRoot };
    }
    // The checkout's daemon is only stopped; silently switching to another store would be surprising.
    if (path === checkout[0] && checkoutDir !== undefined && exists(join(checkoutDir, "svc.toml"))) {
      return { kind: "socket", path, mayFallBack: false };
    }
  }
  return { kind: "in-process" };
}

/**
 * Root has a separate socket that other users cannot keep busy. It is used only if nobody else could have
 * created it.
 */
function rootSocketFor(socketPath: string): string {
  const path = rootSocketOf(socketPath);
  try {
    const directory = lstatSync(dirname(path));
    const isRoots = directory.isDirectory() && directory.uid === 0 && (directory.mode & 0o077) === 0;
    return isRoots && exists(path) ? path : socketPath;
  } catch {
    return socketPath;
  }
}

/**
 * If a checkout's path is too long for a socket, the socket is elsewhere, and a file named `socket` contains
 * its path.
 */
function checkoutSocket(stateDir: string): string {
  try {
    return readFileSync(join(stateDir, "socket"), "utf8").trim();
  } catch {
    return join(stateDir, "svc.sock");
  }
}

export interface ConnectOptions {
  /** The daemon that the command line names. */
  readonly target: NodeOptions;
  /** Tells the user that no daemon runs, or that root bypasses an unresponsive one. */
  readonly warn: (message: string) => void;
  /** Opens the service layer in this process; loaded when needed. */
  readonly openInProcess: () => Promise<Client>;
}

/** Milliseconds without a response before the daemon is probed. */
const slowMs = 1_000;

/** The client for the chosen route. Connection problems appear at the first call. */
export async function connect(host: CliHost, options: ConnectOptions): Promise<Client> {
  const { target, warn, openInProcess } = options;
  const node = chooseNode(host, target);
  if (node !== undefined) {
    const { connectNode } = await import("../nodes/connect-node.ts");
    return connectNode(host, node);
  }
  const route = chooseRoute({ socketOption: target.socket, sockets: host.sockets, uid: host.uid });
  if (route.kind === "in-process") {
    const warning = systemDaemonDown(host);
    if (warning !== undefined) warn(warning);
    const notes = warning === undefined ? noDaemonNotes(host) : jobNotes(host);
    return new NotingClient(await openInProcess(), notes, warn);
  }
  const endpoint = { socketPath: route.path, headers: sudoHeaders(host) };
  return new FallbackClient(new SocketClient(endpoint), {
    slowMs,
    openInProcess: async () => {
      if (!route.mayFallBack) throw await explainUnavailable(endpoint);
      warn(`no daemon responds on ${route.path}; running the command in this process`);
      return new NotingClient(await openInProcess(), jobNotes(host), warn);
    },
  });
}

/** Why no daemon responds: nothing listens, or the listener is unresponsive. */
async function explainUnavailable(endpoint: SocketEndpoint): Promise<SvcError> {
  try {
    // A short timeout is enough: connecting succeeds or fails before it.
    await send(endpoint, { method: "GET", path: "/healthz", timeoutMs: 100 });
  } catch (error) {
    if (error instanceof UnreachableError) return error;
  }
  return new SvcError(
    "unavailable",
    `the daemon on ${endpoint.socketPath} accepts connections but does not respond: it may be starting; try again in a few seconds, or see its log`,
  );
}

/** Root behind sudo names the calling user, so that installed apps belong to that user. */
export function sudoHeaders(host: Pick<CliHost, "uid" | "env">): Record<string, string> {
  const uid = sudoUid(host);
  if (uid === undefined) return {};
  const name = host.env["SUDO_USER"];
  // A name that cannot be a header value is left out: only the uid matters.
  const named = name !== undefined && /^[\x21-\x7e]{1,256}$/.test(name);
  return { "x-svc-sudo-uid": String(uid), ...(named ? { "x-svc-sudo-user": name } : {}) };
}

/** The uid that called sudo; undefined without sudo, or if the number is not a uid. */
export function sudoUid({ uid, env }: Pick<CliHost, "uid" | "env">): number | undefined {
  const text = env["SUDO_UID"];
  if (uid !== 0 || text === undefined || !/^(0|[1-9]\d{0,9})$/.test(text)) return undefined;
  const caller = Number(text);
  // 2^32 - 1 means "no uid" to the kernel.
  return caller < 0xffff_ffff ? caller : undefined;
}
