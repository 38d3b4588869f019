/** A console of an app over a WebSocket, which takes none of the few connections that a browser has for everything else. */
import type { IssueConsoleTokenRequest } from "../../gen/svc/v1/app_pb.ts";
import type { Api } from "./api.ts";

export type ConsoleSession = IssueConsoleTokenRequest["session"];

/** What to open. */
export interface ConsoleDoor {
  readonly session: ConsoleSession;
  /** Of a compose project with several. */
  readonly service?: string | undefined;
}

/** What comes besides the terminal's bytes. */
export type ConsoleSaid =
  | { readonly type: "opened"; readonly interactive: boolean }
  | { readonly type: "exit"; readonly code: number }
  | { readonly type: "gap"; readonly bytes: number }
  | { readonly type: "error"; readonly error: string };

export interface ConsoleHears {
  readonly data: (bytes: Uint8Array) => void;
  readonly said: (said: ConsoleSaid) => void;
  readonly closed: () => void;
}

/** The ticket is good for one try, and goes where no log has it. */
export async function connectConsole(
  api: Api,
  appId: string,
  { session, service }: ConsoleDoor,
  hears: ConsoleHears,
  signal: AbortSignal,
): Promise<WebSocket> {
  const { token } = await api.apps.issueConsoleToken({ appId, session }, { signal });
  signal.throwIfAborted();
  const url = new URL(`/v1/apps/${encodeURIComponent(appId)}/console`, location.origin);
  url.search = new URLSearchParams({ session, ...(service !== undefined && { service }) }).toString();
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(url, ["svc.console.v1", `svc.token.${token}`]);
  socket.binaryType = "arraybuffer";
  socket.addEventListener("message", ({ data }: MessageEvent<string | ArrayBuffer>) => {
    if (signal.aborted) return;
    if (typeof data === "string") hears.said(JSON.parse(data) as ConsoleSaid);
    else hears.data(new Uint8Array(data));
  });
  socket.addEventListener("close", () => {
    if (!signal.aborted) hears.closed();
  });
  signal.addEventListener("abort", () => {
    // Browsers warn of one that is closed before it is there.
    if (socket.readyState === socket.CONNECTING) socket.addEventListener("open", () => socket.close());
    else socket.close();
  });
  return socket;
}
