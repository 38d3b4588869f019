/** Whether it is the app itself that listens on a port, for apps without a supervisor that could tell (threat 62). */
import type { HostThread } from "./host-thread.ts";
import type { HostSocket } from "./process-questions.ts";

/** The most specific first: what asks at 127.0.0.1 gets to the first that is bound. */
const reaching = ["127.0.0.1", "::ffff:7f00:1", "0.0.0.0", "::"];
const deadlineMs = 30_000;

/** @returns `undefined` when it is the app, or the kernel's tables cannot be read now, which says nothing against it */
export async function whyForeign(
  thread: Pick<HostThread, "ask">,
  appId: string,
  port: number,
): Promise<string | undefined> {
  const sockets = await thread.ask("sockets", AbortSignal.timeout(deadlineMs)).catch(() => undefined);
  if (sockets === undefined) return undefined;
  const open = sockets.filter((socket) => socket.protocol === "tcp" && socket.port === port);
  const address = reaching.find((each) => open.some((socket) => socket.address === each));
  if (address === undefined) return `no process of it listens on port ${port}`;
  // Several only where processes share it (SO_REUSEPORT): then each gets some of the connections.
  const stranger = open.find((socket) => socket.address === address && socket.owner?.appId !== appId);
  return stranger && `port ${port} is taken by ${holderOf(stranger)}`;
}

function holderOf({ owner, uid }: HostSocket): string {
  if (owner !== undefined) return `process ${owner.pid} (${owner.name})`;
  return uid === 0 ? "a process of root" : `a process of uid ${uid}`;
}
