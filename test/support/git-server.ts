/** A git host on a loopback port that may ask for a password: `git http-backend` behind node:http. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface GitServer extends AsyncDisposable {
  /** `127.0.0.1:port`. */
  readonly host: string;
  /** The Authorization headers that came, in order; empty for a request without one. */
  readonly shown: string[];
}

export interface GitServerOptions {
  /** Directory of the repositories. */
  root: string;
  /** Nobody is asked without. */
  login?: { username: string; password: string };
  /** Sends everybody there instead. */
  redirectTo?: string;
}

export async function startGitServer(options: GitServerOptions): Promise<GitServer> {
  const shown: string[] = [];
  const { root, login, redirectTo } = options;
  const expected = login && `Basic ${Buffer.from(`${login.username}:${login.password}`).toString("base64")}`;
  const server = createServer((request, response) => {
    shown.push(request.headers.authorization ?? "");
    if (redirectTo !== undefined) {
      response.writeHead(302, { location: `${redirectTo}${request.url ?? ""}` }).end();
    } else if (expected !== undefined && request.headers.authorization !== expected) {
      response.writeHead(401, { "www-authenticate": 'Basic realm="git"' }).end();
    } else {
      serve(root, request, response);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    shown,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** One request by CGI (RFC 3875), as git-http-backend(1) wants it. */
function serve(root: string, request: IncomingMessage, response: ServerResponse): void {
  const [path = "", query = ""] = (request.url ?? "").split("?");
  const backend = spawn("git", ["http-backend"], {
    env: {
      PATH: "/usr/local/bin:/usr/bin:/bin",
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: "1",
      GIT_CONFIG_COUNT: "1",
      GIT_CONFIG_KEY_0: "safe.directory",
      GIT_CONFIG_VALUE_0: "*",
      REQUEST_METHOD: request.method ?? "GET",
      PATH_INFO: path,
      QUERY_STRING: query,
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      REMOTE_USER: "someone",
      ...(request.headers["content-encoding"] !== undefined && {
        HTTP_CONTENT_ENCODING: request.headers["content-encoding"],
      }),
      ...(request.headers["git-protocol"] !== undefined && {
        GIT_PROTOCOL: String(request.headers["git-protocol"]),
      }),
    },
    stdio: ["pipe", "pipe", "inherit"],
  });
  request.pipe(backend.stdin);
  backend.stdin.on("error", () => undefined);
  const chunks: Buffer[] = [];
  backend.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
  backend.once("close", () => {
    const output = Buffer.concat(chunks);
    const end = output.indexOf("\r\n\r\n");
    const headers = output.subarray(0, end).toString().split("\r\n");
    for (const line of headers) {
      const [name = "", value = ""] = line.split(": ");
      if (name === "Status") response.statusCode = Number.parseInt(value, 10);
      else response.setHeader(name, value);
    }
    response.end(output.subarray(end + 4));
  });
}
