/**
 * Which service layer a command reaches: a socket that exists, else this very process (S 5.3, D30).
 * Files are asked for by callbacks: `node:fs/promises` takes longer to load than all of this takes to run.
 */
import { readFile, stat } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { SvcError } from "../errors.ts";
import type { CliHost, SocketPaths } from "./host.ts";
import { jobNotes, noDaemonNotes, NotingClient } from "./no-daemon.ts";
import type { Client } from "./transport/client.ts";
import { readAll, send } from "./transport/http.ts";
import type { Endpoint } from "./transport/http.ts";
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
export async function chooseRoute({ socketOption, sockets, uid }: RoutingInput): Promise<Route> {
  if (socketOption !== undefined) return { kind: "socket", path: socketOption, mayFallBack: false };
  const { checkoutDir } = sockets;
  const checkout = checkoutDir === undefined ? [] : [await checkoutSocket(checkoutDir)];
  for (const path of new Set([...checkout, sockets.system, sockets.user])) {
    if (await exists(path)) return { kind: "socket", path, mayFallBack: uid === 0 };
    // Its daemon is only stopped: another store than the one that was tried so far would surprise.
    if (path === checkout[0] && checkoutDir !== undefined && (await exists(join(checkoutDir, "svc.toml")))) {
      return { kind: "socket", path, mayFallBack: false };
    }
  }
  return { kind: "in-process" };
}

/** A checkout whose path is too long for a socket has the socket elsewhere, and a file `socket` that says where. */
async function checkoutSocket(stateDir: string): Promise<string> {
  try {
    return (await promisify(readFile)(join(stateDir, "socket"), "utf8")).trim();
  } catch {
    return join(stateDir, "svc.sock");
  }
}

/** Anything at all at the path counts: a socket that this user may not even look at is still no reason to work beside it. */
async function exists(path: string): Promise<boolean> {
  try {
    await promisify(stat)(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code !== "ENOENT" && code !== "ENOTDIR";
  }
}

export interface ConnectOptions {
  readonly socketOption: string | undefined;
  /** Tells the user that there is no daemon, or that root works beside one that does not answer. */
  readonly warn: (message: string) => void;
  /** Opens the service layer in this process; loaded when needed. */
  readonly openInProcess: () => Promise<Client>;
  /** Milliseconds that a daemon has to show a sign of life, before root goes on without it. Default 3,000. */
  readonly probeTimeoutMs?: number;
}

/** The client of the route. Whether something answers there shows at the first call. */
export async function connect(host: CliHost, options: ConnectOptions): Promise<Client> {
  const { socketOption, warn, openInProcess } = options;
  const route = await chooseRoute({ socketOption, sockets: host.sockets, uid: host.uid });
  if (route.kind === "in-process") return new NotingClient(await openInProcess(), noDaemonNotes, warn);
  const endpoint = { socketPath: route.path, headers: sudoHeaders(host) };
  const client = new SocketClient(endpoint);
  if (!route.mayFallBack) return client;
  return new FallbackClient(client, {
    answers: () => answers(endpoint, options.probeTimeoutMs ?? 3000),
    slowMs: options.probeTimeoutMs ?? 3000,
    openInProcess: async () => {
      warn(`no daemon answers on ${route.path}: working in this process, as root may`);
      return new NotingClient(await openInProcess(), jobNotes, warn);
    },
  });
}

/** Whether a daemon is there and alive. */
async function answers(endpoint: Endpoint, timeoutMs: number): Promise<boolean> {
  try {
    await readAll(await send(endpoint, { method: "GET", path: "/healthz", timeoutMs }));
    return true;
  } catch (error) {
    if (error instanceof SvcError) return false;
    throw error;
  }
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
