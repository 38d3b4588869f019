/** Calls as another uid: a child process that dropped its privileges speaks HTTP to the socket. */
import { execFile } from "node:child_process";

export const isRoot = process.getuid?.() === 0;

/** In the title of a test that needs other uids. */
export const needsRoot = isRoot ? "" : " (skipped: acting as other users needs root)";

export interface PeerAnswer {
  /** 0: the connection was closed without an answer. */
  readonly status: number;
  readonly json: Record<string, unknown>;
}

const program = `
const [socketPath, path, method, headers] = JSON.parse(process.argv[1]);
const http = require("node:http");
const request = http.request({ socketPath, path, method, headers, agent: false }, (response) => {
  let text = "";
  response.on("data", (chunk) => (text += chunk));
  response.on("end", () => console.log(JSON.stringify({ status: response.statusCode, json: JSON.parse(text || "{}") })));
});
request.on("error", () => console.log(JSON.stringify({ status: 0, json: {} })));
request.end();
`;

/** @param uid of the calling process; its gid is the same number */
export function callAs(
  uid: number,
  socketPath: string,
  path: string,
  { method = "GET", headers = {} }: { method?: string; headers?: Record<string, string | string[]> } = {},
): Promise<PeerAnswer> {
  const argument = JSON.stringify([socketPath, path, method, headers]);
  const node = [process.execPath, "-e", program, argument];
  const [command, ...argv] =
    uid === process.getuid?.()
      ? node
      : ["setpriv", `--reuid=${uid}`, `--regid=${uid}`, "--clear-groups", ...node];
  return new Promise((resolve, reject) => {
    execFile(command ?? "", argv, { timeout: 20_000, cwd: "/" }, (error, stdout, stderr) => {
      if (error === null) resolve(JSON.parse(stdout) as PeerAnswer);
      else reject(new Error(`the peer failed: ${stderr}`, { cause: error }));
    });
  });
}
