/**
 * `node bare-server.ts SOCKET FILE [stream]`: what plain `node:http` does with an answer whose bytes are ready, or are
 * streamed from their file each time. Prints a line when it listens.
 */
import { createReadStream } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { createServer } from "node:http";
import type { ServerResponse } from "node:http";

const [, , socket, file, mode] = process.argv;
if (socket === undefined || file === undefined) throw new Error("usage: bare-server.ts SOCKET FILE [stream]");
const respond = mode === "stream" ? await streaming(file) : await ready(file);
const server = createServer((_request, response) => respond(response));
server.listen(socket, () => console.log("ready"));
process.once("SIGTERM", () => {
  server.close();
  server.closeAllConnections();
});

async function ready(path: string): Promise<(response: ServerResponse) => void> {
  const bytes = await readFile(path);
  return (response) => {
    response.writeHead(200, { "content-type": "application/json", "content-length": bytes.length });
    response.end(bytes);
  };
}

async function streaming(path: string): Promise<(response: ServerResponse) => void> {
  const { size } = await stat(path);
  return (response) => {
    response.writeHead(200, { "content-type": "application/octet-stream", "content-length": size });
    createReadStream(path).pipe(response);
  };
}
