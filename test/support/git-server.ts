/** A git host on a loopback port: `git http-backend` (smart HTTP) behind node:http. */
import { execFile, spawn } from "node:child_process";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { once } from "node:events";
import { promisify } from "node:util";
import { nextEvent } from "./eventually.ts";

/** Responds to a request itself, or leaves it to git with `false`. */
export type Override = (request: IncomingMessage, response: ServerResponse) => boolean;

/** Serves every repository below `root` at `/<name>`; `override` may respond to a request itself. */
export class GitServer implements AsyncDisposable {
  /** The requested URLs, in order. */
  readonly requests: string[] = [];
  /** The Authorization header of each request; empty for a request without one. */
  readonly shown: string[] = [];
  override: Override = () => false;
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** @param tls key and certificate; absent: plain http */
  static async start(
    root: string,
    override?: Override,
    tls?: { readonly key: string; readonly cert: string },
  ): Promise<GitServer> {
    const { stdout } = await promisify(execFile)("git", ["--exec-path"]);
    const backend = `${stdout.trim()}/git-http-backend`;
    const server = tls === undefined ? createServer() : createTlsServer(tls);
    const started = new GitServer(server);
    if (override !== undefined) started.override = override;
    server.on("request", (request: IncomingMessage, response: ServerResponse) => {
      started.requests.push(request.url ?? "");
      started.shown.push(request.headers.authorization ?? "");
      if (!started.override(request, response)) serve(backend, root, request, response);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return started;
  }

  /** `127.0.0.1:port`. */
  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get url(): string {
    return `http://${this.host}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await nextEvent(this.#server, "close");
  }
}

/** Requests without it are rejected. */
export function askingFor({ username, password }: { username: string; password: string }): Override {
  const expected = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
  return ({ headers }, response) => {
    if (headers.authorization === expected) return false;
    response.writeHead(401, { "www-authenticate": 'Basic realm="git"' }).end();
    return true;
  };
}

/** Redirects all requests to this URL. */
export function redirectingTo(url: string): Override {
  return (request, response) => {
    response.writeHead(302, { location: `${url}${request.url ?? ""}` }).end();
    return true;
  };
}

/** One request by CGI (RFC 3875), as git-http-backend(1) specifies. */
function serve(backend: string, root: string, request: IncomingMessage, response: ServerResponse): void {
  const { pathname, search } = new URL(request.url ?? "/", "http://localhost");
  const child = spawn(backend, [], {
    env: {
      PATH: process.env["PATH"] ?? "",
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: "1",
      GIT_CONFIG_COUNT: "1",
      GIT_CONFIG_KEY_0: "safe.directory",
      GIT_CONFIG_VALUE_0: "*",
      REQUEST_METHOD: request.method ?? "GET",
      PATH_INFO: pathname,
      QUERY_STRING: search.slice(1),
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      HTTP_CONTENT_ENCODING: request.headers["content-encoding"] ?? "",
      GIT_PROTOCOL: String(request.headers["git-protocol"] ?? ""),
      REMOTE_ADDR: "127.0.0.1",
    },
    stdio: ["pipe", "pipe", "ignore"],
  });
  request.pipe(child.stdin);
  child.stdin.on("error", () => undefined);
  response.on("close", () => child.kill());
  let head = Buffer.alloc(0);
  const onHead = (chunk: Buffer): void => {
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf("\r\n\r\n");
    if (end === -1) return;
    child.stdout.off("data", onHead);
    let status = 200;
    for (const line of head.subarray(0, end).toString().split("\r\n")) {
      const [name = "", value = ""] = line.split(/: (.*)/);
      if (name.toLowerCase() === "status") status = Number.parseInt(value, 10);
      else response.setHeader(name, value);
    }
    response.writeHead(status);
    response.write(head.subarray(end + 4));
    child.stdout.pipe(response);
  };
  child.stdout.on("data", onHead);
}
