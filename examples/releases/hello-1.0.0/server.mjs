/** `GET /` greets, `GET /healthz` answers `ok`. One line of log per visit. Environment: PORT, HOST, GREETING. */
import { createServer } from "node:http";

const port = Number(process.env["PORT"] ?? 8080);
const host = process.env["HOST"] ?? "127.0.0.1";
const greeting = process.env["GREETING"] ?? "Hello";

const server = createServer((request, response) => {
  const { pathname } = new URL(request.url ?? "/", "http://localhost");
  if (pathname === "/") console.log("a visitor");
  const [status, text] =
    pathname === "/healthz"
      ? [200, "ok"]
      : pathname === "/"
        ? [200, `${greeting}! (hello 1.0.0)`]
        : [404, "There is nothing here."];
  response.writeHead(status, { "content-type": "text/plain; charset=utf-8" }).end(`${text}\n`);
});

server.listen(port, host, () => console.log(`hello 1.0.0 listens on http://${host}:${port}`));

process.once("SIGTERM", () => {
  server.close();
  server.closeIdleConnections();
});
