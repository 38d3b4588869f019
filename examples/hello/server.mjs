/**
 * `GET /` greets and counts the visit, `GET /healthz` answers `ok`. One line of log per visit.
 * Environment: PORT, HOST, GREETING, and DATA_DIR for the count, which therefore survives restarts and upgrades.
 */
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { createVisits } from "./visits.mjs";

const port = Number(process.env["PORT"] ?? 8080);
const host = process.env["HOST"] ?? "127.0.0.1";
const greeting = process.env["GREETING"] ?? "Hello";
const visits = await createVisits(join(process.env["DATA_DIR"] ?? ".", "visits"));
const version = await manifestVersion();

const server = createServer((request, response) => {
  const { pathname } = new URL(request.url ?? "/", "http://localhost");
  if (pathname === "/healthz") answer(response, 200, "ok");
  else if (pathname === "/")
    answer(response, 200, `${greeting}! You are visitor ${count()}. (hello ${version})`);
  else answer(response, 404, "There is nothing here.");
});

server.listen(port, host, () => console.log(`hello ${version} listens on http://${host}:${port}`));

process.once("SIGTERM", () => {
  // Once the last connection is closed and the count is written, Node exits.
  server.close(() => console.log("goodbye"));
  server.closeIdleConnections();
});

function count() {
  const number = visits.add();
  console.log(`visitor ${number}`);
  return number;
}

/**
 * @param {import("node:http").ServerResponse} response
 * @param {number} status
 * @param {string} text
 */
function answer(response, status, text) {
  response.writeHead(status, { "content-type": "text/plain; charset=utf-8" }).end(`${text}\n`);
}

async function manifestVersion() {
  const manifest = await readFile(new URL("svc.yaml", import.meta.url), "utf8");
  return /^version: "(.+)"$/m.exec(manifest)?.[1] ?? "unknown";
}
