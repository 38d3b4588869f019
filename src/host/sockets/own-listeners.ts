/** Checks whether the app itself listens on a port, for apps without a supervisor: another program could pose as a healthy app. */
import type { HostThread } from "../processes/host-thread.ts";
import type { HostSocket } from "../processes/process-questions.ts";

/** Most specific first: a connection to 127.0.0.1 reaches the first bound address. */
const reaching = ["127.0.0.1", "::ffff:7f00:1", "0.0.0.0", "::"];
const deadlineMs = 30_000;

/** @returns `undefined` if it is the app, or if the kernel's tables cannot be read now */
export async function explainPortConflict(
  thread: Pick<HostThread, "ask">,
  appId: string,
  port: number,
): Promise<string | undefined> {
  const sockets = await thread.ask("sockets", AbortSignal.timeout(deadlineMs)).catch(() => undefined);
  if (sockets === undefined) return undefined;
  const open = sockets.filter((socket) => socket.protocol === "tcp" && socket.port === port);
  const address = reaching.find((each) => open.some((socket) => socket.address === each));
  if (address === undefined) return `no process of the app listens on port ${port}`;
  // There are several only if processes share the port (SO_REUSEPORT); each then gets some of the connections.
  const stranger = open.find((socket) => socket.address === address && socket.owner?.appId !== appId);
  return stranger && `port ${port} is in use by ${holderOf(stranger)}`;
}

function holderOf({ owner, uid }: HostSocket): string {
  if (owner !== undefined) return `process ${owner.pid} (${owner.name})`;
  return uid === 0 ? "a process of root" : `a process of uid ${uid}`;
}
