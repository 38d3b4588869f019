/**
 * Which service layer a command reaches: a socket that exists, else this very process (S 5.3, D30).
 * Files are asked for without promises: `node:fs/promises`, and the threads that Node starts for one, take longer than all of
 * this takes to run.
 */
import { lstatSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { SvcError } from "../errors.ts";
import { rootSocketOf } from "../lib/root-socket.ts";
import { exists } from "./exists.ts";
import type { CliHost, SocketPaths } from "./host.ts";
import { jobNotes, noDaemonNotes, NotingClient, systemDaemonDown } from "./no-daemon.ts";
import { chooseNode, type NodeOptions } from "./nodes/choose-node.ts";
import type { Client } from "./transport/client.ts";
import { send, UnreachableError, type SocketEndpoint } from "./transport/http.ts";
import { FallbackClient } from "./transport/fallback-client.ts";
import { SocketClient } from "./transport/socket-client.ts";

export type Route =
  | {
      readonly kind: "socket";
      readonly path: string;
      /** Work in this process when nothing answers there: root's privilege. */
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
 * The first socket that exists, else in-process. One that was asked for, or that belongs to a checkout in which `npm start`
 * ran, is taken as it is.
 */
export function chooseRoute({ socketOption, sockets, uid }: RoutingInput): Route {
  if (socketOption !== undefined) return { kind: "socket", path: socketOption, mayFallBack: false };
  const { checkoutDir } = sockets;
  const checkout = checkoutDir === undefined ? [] : [checkoutSocket(checkoutDir)];
  for (const path of new Set([...checkout, sockets.system, sockets.user])) {
    if (exists(path)) {
      const isRoot = uid === 0;
      return { kind: "socket", path: isRoot ? rootsWayTo(path) : path, mayFallBack: isRoot };
    }
    // Its daemon is only stopped: another store than the one that was tried so far would surprise.
    if (path === checkout[0] && checkoutDir !== undefined && exists(join(checkoutDir, "svc.toml"))) {
      return { kind: "socket", path, mayFallBack: false };
    }
  }
  return { kind: "in-process" };
}

/** Root has a socket of its own, which nobody else keeps busy (T 56): where nobody else can have put it. */
function rootsWayTo(socketPath: string): string {
  const path = rootSocketOf(socketPath);
  try {
    const directory = lstatSync(dirname(path));
    const isRoots = directory.isDirectory() && directory.uid === 0 && (directory.mode & 0o077) === 0;
    return isRoots && exists(path) ? path : socketPath;
  } catch {
    return socketPath;
  }
}

/** A checkout whose path is too long for a socket has the socket elsewhere, and a file `socket` that says where. */
function checkoutSocket(stateDir: string): string {
  try {
    return readFileSync(join(stateDir, "socket"), "utf8").trim();
  } catch {
    return join(stateDir, "svc.sock");
  }
}

export interface ConnectOptions {
  /** Which daemon the command line names. */
  readonly target: NodeOptions;
  /** Tells the user that there is no daemon, or that root works beside one that does not answer. */
  readonly warn: (message: string) => void;
  /** Opens the service layer in this process; loaded when needed. */
  readonly openInProcess: () => Promise<Client>;
  /** Asks whether the user wants to work on their own where the system's daemon is down. @throws SvcError who does not */
  readonly allowPrivate: (problem: SvcError) => Promise<void>;
}

/** Milliseconds after which a call without an answer makes one ask for a sign of life. */
const slowMs = 1_000;

/** The client of the route. Whether something answers there shows at the first call. */
export async function connect(host: CliHost, options: ConnectOptions): Promise<Client> {
  const { target, warn, openInProcess, allowPrivate } = options;
  const node = chooseNode(host, target);
  if (node !== undefined) {
    const { connectNode } = await import("./nodes/connect-node.ts");
    return connectNode(host, node);
  }
  const route = chooseRoute({ socketOption: target.socket, sockets: host.sockets, uid: host.uid });
  if (route.kind === "in-process") {
    const problem = systemDaemonDown(host);
    if (problem === undefined) return new NotingClient(await openInProcess(), noDaemonNotes(host), warn);
    await allowPrivate(problem);
    return new NotingClient(await openInProcess(), jobNotes(host), warn);
  }
  const endpoint = { socketPath: route.path, headers: sudoHeaders(host) };
  return new FallbackClient(new SocketClient(endpoint), {
    slowMs,
    openInProcess: async () => {
      if (!route.mayFallBack) throw await silenceOf(endpoint);
      warn(`no daemon answers on ${route.path}: working in this process, as root may`);
      return new NotingClient(await openInProcess(), jobNotes(host), warn);
    },
  });
}

/** Why nobody answers: nobody is there, or somebody is silent. */
async function silenceOf(endpoint: SocketEndpoint): Promise<SvcError> {
  try {
    // A request that has no time: whether there is a connection shows before.
    await send(endpoint, { method: "GET", path: "/healthz", timeoutMs: 100 });
  } catch (error) {
    if (error instanceof UnreachableError) return error;
  }
  return new SvcError(
    "unavailable",
    `the daemon on ${endpoint.socketPath} takes connections and answers nothing; see its log, or restart it`,
  );
}

/** Root behind sudo tells who called it, so that what it installs belongs to that user (S 5.2.3). */
export function sudoHeaders(host: Pick<CliHost, "uid" | "env">): Record<string, string> {
  const uid = sudoUid(host);
  if (uid === undefined) return {};
  const name = host.env["SUDO_USER"];
  // A name that no header can carry is left out: the uid is what counts.
  const named = name !== undefined && /^[\x21-\x7e]{1,256}$/.test(name);
  return { "x-svc-sudo-uid": String(uid), ...(named ? { "x-svc-sudo-user": name } : {}) };
}

/** The uid that called sudo; undefined where nobody did, or the number is no uid. */
export function sudoUid({ uid, env }: Pick<CliHost, "uid" | "env">): number | undefined {
  const text = env["SUDO_UID"];
  if (uid !== 0 || text === undefined || !/^(0|[1-9]\d{0,9})$/.test(text)) return undefined;
  const caller = Number(text);
  // 2^32 - 1 means "no uid" to the kernel.
  return caller < 0xffff_ffff ? caller : undefined;
}
