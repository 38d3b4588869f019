/**
 * `node bare-server.ts SOCKET FILE [stream|take]`: plain `node:http` with a response whose bytes are ready, or are
 * streamed from their file each time, or with a body that it writes to a file. Prints a line when it listens.
 */
import { createReadStream, createWriteStream } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { pipeline } from "node:stream/promises";

const [, , socket, file, mode] = process.argv;
if (socket === undefined || file === undefined)
  throw new Error("usage: bare-server.ts SOCKET FILE [stream|take]");
const respond =
  mode === "take" ? taking(file) : mode === "stream" ? await streaming(file) : await ready(file);
const server = createServer((request, response) => void respond(response, request));
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

function taking(path: string): (response: ServerResponse, request: IncomingMessage) => Promise<void> {
  return async (response, request) => {
    await pipeline(request, createWriteStream(path, { flush: true }));
    response.end();
  };
}
