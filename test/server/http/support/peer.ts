/** Calls as another uid: a child process that dropped its privileges sends HTTP to the socket. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";

export const isRoot = process.getuid?.() === 0;

/** For titles of tests that need other uids. */
export const needsRoot = isRoot ? "" : " (skipped: acting as other users needs root)";

export interface PeerAnswer {
  /** 0: the connection was closed without a response. */
  readonly status: number;
  readonly json: Record<string, unknown>;
}

const program = `
const [socketPath, path, method, headers, boundName, koffi] = JSON.parse(process.argv[1]);
const http = require("node:http");
const target = boundName === undefined ? { socketPath, agent: false } : { createConnection: connectFromName };
const request = http.request({ ...target, path, method, headers }, (response) => {
  let text = "";
  response.on("data", (chunk) => (text += chunk));
  response.on("end", () => console.log(JSON.stringify({ status: response.statusCode, json: JSON.parse(text || "{}") })));
});
request.on("error", () => console.log(JSON.stringify({ status: 0, json: {} })));
request.end();

// Node has no call that gives the calling end a name.
function connectFromName() {
  const { mkdtempSync, rmSync } = require("node:fs");
  const libc = require(koffi).load("libc.so.6");
  const socket = libc.func("int socket(int domain, int type, int protocol)");
  const [bind, connect] = ["bind", "connect"].map((name) => libc.func("int " + name + "(int fd, _In_ uint8_t *address, uint32_t length)"));
  const addressOf = (name) => Buffer.from("\\x01\\0" + name + "\\0");
  const fd = socket(1, 1, 0);
  const directory = mkdtempSync(require("node:os").tmpdir() + "/svc-peer-");
  for (const [call, name] of [[bind, directory + "/" + boundName], [connect, socketPath]]) {
    const address = addressOf(name);
    if (call(fd, address, address.length) !== 0) throw new Error("no connection from " + name);
  }
  rmSync(directory, { recursive: true });
  return new (require("node:net").Socket)({ fd });
}
`;

export interface PeerCall {
  readonly method?: string;
  readonly headers?: Record<string, string | string[]>;
  /** The file name that the client's end of the connection is bound to. */
  readonly boundName?: string;
}

/** @param uid of the calling process; its gid is the same number */
export function callAs(
  uid: number,
  socketPath: string,
  path: string,
  { method = "GET", headers = {}, boundName }: PeerCall = {},
): Promise<PeerAnswer> {
  const koffi = boundName === undefined ? [] : [boundName, fileURLToPath(import.meta.resolve("koffi"))];
  const argument = JSON.stringify([socketPath, path, method, headers, ...koffi]);
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
