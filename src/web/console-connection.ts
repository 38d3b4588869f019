/** A console of an app over a WebSocket, which does not count toward the browser's few HTTP connections. */
import type { IssueConsoleTokenRequest } from "../../gen/svc/v1/app_pb.ts";
import type { Api } from "./api.ts";

export type ConsoleSession = IssueConsoleTokenRequest["session"];

/** The console to open. */
export interface ConsoleUpgrade {
  readonly session: ConsoleSession;
  /** For a compose project with several services. */
  readonly service?: string | undefined;
}

/** Messages other than the terminal's output. */
export type ConsoleMessage =
  | { readonly type: "opened"; readonly interactive: boolean }
  | { readonly type: "exit"; readonly code: number }
  | { readonly type: "gap"; readonly bytes: number }
  | { readonly type: "error"; readonly error: string };

export interface ConsoleHandlers {
  readonly data: (bytes: Uint8Array) => void;
  readonly notice: (notice: ConsoleMessage) => void;
  readonly closed: () => void;
}

/** The ticket is valid for one attempt, and sent where no log records it. */
export async function connectConsole(
  api: Api,
  appId: string,
  { session, service }: ConsoleUpgrade,
  handlers: ConsoleHandlers,
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
    if (typeof data === "string") handlers.notice(JSON.parse(data) as ConsoleMessage);
    else handlers.data(new Uint8Array(data));
  });
  socket.addEventListener("close", () => {
    if (!signal.aborted) handlers.closed();
  });
  signal.addEventListener("abort", () => {
    // Browsers print a warning if a socket is closed before it is open.
    if (socket.readyState === socket.CONNECTING) socket.addEventListener("open", () => socket.close());
    else socket.close();
  });
  return socket;
}
